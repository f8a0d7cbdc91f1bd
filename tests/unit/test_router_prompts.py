"""Where collected rounds' prompts come from."""

import json

import pytest

from whiflash_sglang.router_training.prompts import load_prompts, prompts_of


def written(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_a_file_of_turns_gives_turns(tmp_path):
    file = written(tmp_path / "p.jsonl", [{"id": "a", "category": "chat", "turns": ["one", "two"]}])
    assert [(p.id, p.category, p.turns, p.ids) for p in load_prompts(file)] == [
        ("a", "chat", ("one", "two"), ())
    ]


def test_a_file_of_answers_gives_their_prompts_as_ids(tmp_path):
    row = {"id": "a", "category": "math", "prompt_ids": [1, 2], "output_ids": [3]}
    file = written(tmp_path / "p.jsonl", [row])
    assert [(p.id, p.turns, p.ids) for p in load_prompts(file)] == [("a", (), (1, 2))]


def test_a_limit_keeps_the_first_prompts(tmp_path):
    file = written(tmp_path / "p.jsonl", [{"id": str(i), "category": "c", "turns": ["x"]} for i in range(5)])
    assert [p.id for p in load_prompts(file, 2)] == ["0", "1"]


@pytest.mark.parametrize(
    "row",
    [
        {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "hi"}]},
        {"conversations": [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "yes"}]},
        {"prompt": "hi", "completion": "yes"},
    ],
)
def test_user_turns_are_taken_from_the_usual_columns(row):
    (prompt,) = prompts_of("org/Set", [row])
    assert (prompt.id, prompt.turns) == ("Set-0", ("hi",))


def test_rows_without_a_user_turn_are_passed_over():
    rows = [
        {"messages": [{"role": "assistant", "content": "yes"}]},
        {"messages": [{"role": "user", "content": "hi"}]},
    ]
    assert [p.id for p in prompts_of("Set", rows)] == ["Set-1"]


def test_a_data_set_without_such_a_column_is_refused_with_the_columns_it_has():
    with pytest.raises(ValueError, match=r"org/Set.*\['answer', 'question'\]"):
        list(prompts_of("org/Set", [{"question": "?", "answer": "!"}]))


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"nowhere\.jsonl"):
        load_prompts(str(tmp_path / "nowhere.jsonl"))
