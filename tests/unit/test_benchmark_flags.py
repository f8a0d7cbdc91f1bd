"""benchmark.py's flags: what is started, and what is refused."""

import json

import pytest

from whiflash_sglang.bench.cli import build_arms, parse
from whiflash_sglang.bench.prompts_file import DEMO, load_conversations, sample

BASE = ["--model-name-or-path", "org/target", "--device", "cpu"]


def arms(*flags):
    return build_arms(parse([*BASE, *flags]))


def test_plain_decoding_is_one_arm_named_plain():
    (arm,) = arms("--speculative-algorithm", "none")
    assert arm.name == "plain"
    assert "speculative_algorithm" not in arm.engine_arguments


def test_whiflash_arms_are_named_after_their_router():
    drafts = ["--draft-name-or-path", "d", "--whiflash-eagle-draft", "e"]
    names = [arm.name for arm in arms(*drafts, "--whiflash-router", "dflash", "--check-lossless")]
    assert names == ["plain", "whiflash:dflash"]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--concurrency", "0"], "--concurrency is 0"),
        (["--max-new-tokens", "-1"], "--max-new-tokens is -1"),
        (["--temperature", "-0.5"], "--temperature is -0.5"),
        (["--temperature", "0.7", "--check-lossless"], "--check-lossless.*0.7"),
        (["--speculative-algorithm", "EAGLE3"], "--draft-name-or-path is missing"),
        (["--speculative-algorithm", "NONE", "--whiflash-router", "dflash"], "--whiflash-router given.*NONE"),
        (["--whiflash-eagle-draft", "e"], "--speculative-draft-model-path is missing"),
    ],
)
def test_flags_that_do_not_go_together_are_refused(flags, said):
    with pytest.raises(ValueError, match=said):
        arms(*flags)


def test_the_shipped_prompts_cover_four_categories_with_unique_ids():
    conversations = load_conversations(DEMO)
    assert len({c.id for c in conversations}) == len(conversations) == 12
    assert {c.category for c in conversations} == {"chat", "math", "coding", "agentic"}


def test_samples_are_seeded_per_category_and_in_file_order():
    conversations = load_conversations(DEMO)
    picked = sample(conversations, 2, seed=1)
    assert picked == sample(conversations, 2, seed=1)
    assert picked == [c for c in conversations if c in picked]
    assert len(picked) == 8


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 1"),
        (json.dumps({"id": "a", "turns": ["x"]}), "category"),
        ("", "no prompts"),
    ],
)
def test_a_bad_prompts_file_is_named_with_its_line(tmp_path, line, said):
    path = tmp_path / "prompts.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(ValueError, match=said):
        load_conversations(path)
