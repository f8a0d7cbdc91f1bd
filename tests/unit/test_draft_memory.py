"""The pending rows come out of the K/V budget, for WHIFLASH's target alone."""

from types import SimpleNamespace

import pytest
import torch
from sglang.srt import runtime_context

from whiflash_sglang.catch_up import memory

BUDGET = 10**9


@pytest.fixture
def budget_left(monkeypatch):
    """The budget after the hook, for an algorithm and a kind of worker: 4 requests, 5 layers of 16, blocks of 8."""

    def left(algorithm="WHIFLASH", is_draft_worker=False, steps=3):
        context = {
            "get_spec": SimpleNamespace(speculative_algorithm=algorithm),
            "get_schedule": SimpleNamespace(max_running_requests=4),
            "get_server_args": SimpleNamespace(speculative_num_steps=steps),
        }
        for name, value in context.items():
            monkeypatch.setattr(runtime_context, name, lambda value=value: value)
        drafts = SimpleNamespace(dflash=SimpleNamespace(block_size=8), feature_size=5 * 16)
        monkeypatch.setattr(memory, "read_drafts", lambda *_: drafts)
        monkeypatch.setattr(memory, "config_of", lambda _: None)
        monkeypatch.setattr(memory, "resolving_view", lambda args: args)
        configurator = SimpleNamespace(
            is_draft_worker=is_draft_worker, model_config=SimpleNamespace(dtype=torch.bfloat16)
        )
        return memory.pay_for_pending_rows(BUDGET, configurator, 0)

    return left


def test_every_request_slot_and_the_padding_slot_pay_for_their_rows(budget_left):
    row = 5 * 16 * 2 + 8 + 8  # bfloat16 features, next token, position
    assert budget_left() == BUDGET - (4 + 1) * 64 * row


def test_long_rounds_pay_for_two_of_them(budget_left):
    assert budget_left(steps=40) == BUDGET - (4 + 1) * 82 * (5 * 16 * 2 + 16)


@pytest.mark.parametrize("others", [{"algorithm": "EAGLE3"}, {"is_draft_worker": True}])
def test_other_runs_keep_their_budget(budget_left, others):
    assert budget_left(**others) is None
