"""The drafters that are trained are the drafters that SGLang runs: same weights, same drafts as the reference."""

import copy
import dataclasses
import json

import pytest
import torch
from safetensors.torch import load_file

from engine import tiny
from engine.reference import Reference
from whiflash_sglang.drafter_training.answers import Answer, _done, load_answers
from whiflash_sglang.drafter_training.checkpoint import save_draft
from whiflash_sglang.drafter_training.dflash import DFlashDraft, _Blocks
from whiflash_sglang.drafter_training.eagle3 import Eagle3Draft, _Rows
from whiflash_sglang.drafter_training.layers import soft_cross_entropy
from whiflash_sglang.drafter_training.loop import Curve, Schedule, _batches, train
from whiflash_sglang.drafter_training.states import TargetStates, Text, compute_states

IDS = torch.randint(100, 40000, (26,), generator=torch.Generator().manual_seed(5)).tolist()
PROMPT_LEN = 9


@pytest.fixture(scope="module")
def reference():
    return Reference()


@pytest.fixture(scope="module")
def vocabulary(reference):
    target = reference.target
    return target.model.embed_tokens.weight.detach(), target.lm_head.weight.detach()


def sequence(reference, layers):
    final = reference.target.model(torch.tensor([IDS])).last_hidden_state[0].detach()
    return Text(torch.tensor(IDS), PROMPT_LEN, reference.layer_outputs(IDS, layers), final)


@pytest.fixture(scope="module")
def eagle3(vocabulary):
    weights, config = loaded(tiny.eagle3())
    model = Eagle3Draft(config, weights["d2t"], *vocabulary)
    missing, _ = model.load_state_dict({k: v.float() for k, v in weights.items()}, strict=False)
    assert not missing
    return model


@pytest.fixture(scope="module")
def dflash(vocabulary):
    weights, config = loaded(tiny.dflash())
    model = DFlashDraft(config, torch.arange(512), *vocabulary)
    model.load_state_dict({k: v.float() for k, v in weights.items()})
    return model


def loaded(folder):
    return load_file(folder / "model.safetensors"), json.loads((folder / "config.json").read_text())


@torch.no_grad()
def test_eagle3s_first_step_is_the_references(reference, eagle3):
    text = sequence(reference, eagle3.layers)
    plan = _Rows([text])
    fused = eagle3.fc(text.taps[:-1])
    keys, values = eagle3._context(fused, plan)
    hidden = eagle3._step(fused[plan.queries], plan, 0, keys, values, [])
    best = eagle3.lm_head(eagle3.norm(hidden)).topk(4).indices
    for row, position in enumerate(range(PROMPT_LEN - 1, len(IDS) - 1)):
        expected = reference.eagle3_first_level(IDS[: position + 2], 4)
        assert eagle3.draft_ids[best[row]].tolist() == expected


@torch.no_grad()
def test_eagle3s_later_steps_attend_to_true_rows_and_their_own(reference, eagle3):
    """Against one row at a time, with keys and values in a plain list."""
    text = sequence(reference, eagle3.layers)
    plan = _Rows([text])
    fused = eagle3.fc(text.taps[:-1])
    keys, values = eagle3._context(fused, plan)
    own, steps, hidden = [], [], fused[plan.queries]
    for step in range(3):
        hidden = eagle3._step(hidden, plan, step, keys, values, own)
        steps.append(hidden)
    row, position = 4, PROMPT_LEN - 1 + 4
    state = fused[position]
    seen_k, seen_v = list(keys[: position + 1]), list(values[: position + 1])
    for step in range(3):
        state, k, v = one_row(eagle3, state, IDS[position + 1 + step], position + step, seen_k, seen_v, step)
        torch.testing.assert_close(steps[step][row], state, rtol=1e-4, atol=1e-4)
        seen_k, seen_v = [*seen_k, *([k] if step else [])], [*seen_v, *([v] if step else [])]


def one_row(model, state, token, position, seen_k, seen_v, step):
    attn, at = model.midlayer.self_attn, torch.tensor([position])
    normed = model._normed(torch.tensor([token]), state[None])
    q = model._rotary(attn.heads(attn.q_proj(normed)), at)[0]
    k = model._rotary(attn.heads(attn.k_proj(normed)), at)[0]
    v = attn.heads(attn.v_proj(normed))[0]
    all_k = torch.stack([*seen_k, *([k] if step else [])])
    all_v = torch.stack([*seen_v, *([v] if step else [])])
    group = q.shape[0] // k.shape[0]
    heads = []
    for head in range(q.shape[0]):
        scores = all_k[:, head // group] @ q[head] * q.shape[-1] ** -0.5
        heads.append(scores.softmax(-1) @ all_v[:, head // group])
    state = state + attn.o_proj(torch.cat(heads))
    return state + model.midlayer.mlp(model.midlayer.post_attention_layernorm(state)), k, v


@torch.no_grad()
def test_dflashs_blocks_are_the_references(reference, dflash, vocabulary):
    text = sequence(reference, dflash.layers_read)
    blocks = _Blocks([text], 6, dflash.block)
    hidden = dflash.forward_blocks(text.taps, blocks).view(-1, dflash.block, text.final.shape[-1])
    for i, anchor in enumerate(blocks.anchors.tolist()):
        drafted = (hidden[i, 1:] @ vocabulary[1].T).argmax(-1).tolist()
        assert drafted == reference.dflash_block(IDS[: anchor + 1])


@torch.no_grad()
def test_packed_sequences_do_not_see_each_other(reference, eagle3, dflash):
    for model, layers, run in (
        (eagle3, eagle3.layers, lambda m, b, c: m.loss(b, c, 2)[0]),
        (dflash, dflash.layers_read, lambda m, b, c: m.loss(b, c, 99, 4.0, 0)[0]),
    ):
        text = sequence(reference, layers)
        other = dataclasses.replace(text, taps=text.taps.flip(0), final=text.final.flip(0))
        columns = torch.arange(text.taps.shape[1])
        alone = [run(model, [one], columns) for one in (text, other)]
        together = run(model, [text, other], columns)
        torch.testing.assert_close(together, (alone[0] + alone[1]) / 2, rtol=1e-3, atol=1e-3)


def test_the_loss_and_its_gradient_are_torchs_own():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(5, 33, generator=generator, requires_grad=True)
    law = torch.randn(5, 33, generator=generator).softmax(-1)
    soft_cross_entropy(logits, law).mean().backward()
    ours, logits.grad = logits.grad.clone(), None
    torch.nn.functional.cross_entropy(logits, law).backward()
    torch.testing.assert_close(ours, logits.grad)


def test_states_are_the_references_whatever_the_batch(reference, tmp_path):
    answers = [Answer(f"a{n}", "chat", IDS[:4], IDS[4:n]) for n in (9, 26, 14)]
    compute_states(str(tiny.target()), answers, [1, 8], tmp_path)
    states = TargetStates(tmp_path, answers)
    expected = reference.layer_outputs(IDS, [1, 8])
    torch.testing.assert_close(states[1].taps.float(), expected, rtol=3e-2, atol=0.3)
    torch.testing.assert_close(states[2].taps.float(), expected[:14], rtol=3e-2, atol=0.3)
    assert states[0].ids.tolist() == IDS[:9]


def test_states_of_other_answers_are_refused(tmp_path):
    answers = [Answer("a", "chat", IDS[:4], IDS[4:9])]
    compute_states(str(tiny.target()), answers, [1], tmp_path)
    with pytest.raises(ValueError, match="states of other answers"):
        TargetStates(tmp_path, [Answer("a", "chat", IDS[:4], IDS[4:12])])


def test_a_layer_that_was_not_recorded_is_named(tmp_path):
    answers = [Answer("a", "chat", IDS[:4], IDS[4:9])]
    compute_states(str(tiny.target()), answers, [1, 8], tmp_path)
    with pytest.raises(ValueError, match=r"\[15\].*\[1, 8\]"):
        TargetStates(tmp_path, answers).columns([1, 15])


def test_a_line_that_is_no_answer_is_named(tmp_path):
    file = tmp_path / "answers.jsonl"
    file.write_text('{"id": "a", "category": "chat", "prompt_ids": [1], "output_ids": [2]}\n{"id": "b"}\n')
    with pytest.raises(ValueError, match=r"answers.jsonl, line 2"):
        load_answers([file])


def test_a_half_written_last_line_of_a_killed_run_is_cut_off(tmp_path):
    file = tmp_path / "answers.jsonl"
    whole = '{"id": "a", "category": "chat", "prompt_ids": [1], "output_ids": [2]}\n'
    file.write_text(whole + '{"id": "b", "cat')
    assert _done(file) == {"a"}
    assert file.read_text() == whole


def test_every_pass_over_the_rows_takes_each_once():
    batches = _batches(range(6), Schedule(minutes=1, batch=2))
    assert sorted(row for _ in range(3) for row in next(batches)) == list(range(6))


def test_a_batch_may_be_larger_than_the_rows():
    assert len(next(_batches([4], Schedule(minutes=1, batch=3)))) == 3


def test_training_lowers_the_loss_and_saves_what_sglang_loads(reference, dflash, tmp_path):
    text, model = sequence(reference, dflash.layers_read), copy.deepcopy(dflash)
    columns = torch.arange(text.taps.shape[1])

    def loss(batch):
        return model.loss(batch, columns, 8, 4.0, 0)

    curve = train(
        model,
        loss,
        [text],
        [0] * 2,
        {"chat": [0]},
        Schedule(minutes=0.05, learning_rate=1e-2, warmup=1, batch=1),
        lambda curve: save_draft(model, tmp_path, curve, "card"),
    )
    values = [value for _, _, value in curve.losses]
    assert min(values[-3:]) < values[0]
    saved, config = loaded(tmp_path)
    original, _ = loaded(tiny.dflash())
    assert {k: v.shape for k, v in saved.items()} == {k: v.shape for k, v in original.items()}
    assert config["dflash_config"]["target_layer_ids"] == list(dflash.layers_read)
    assert isinstance(curve, Curve)
