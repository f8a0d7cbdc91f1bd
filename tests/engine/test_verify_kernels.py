"""An engine whose verified trees are walked by this package's Triton kernels, under Triton's interpreter."""

import pytest

from engine import lab as labs
from engine.lab import assert_plain_text


@pytest.fixture(scope="module")
def lab(truth, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")  # the scheduler's process inherits it
        with labs.whiflash(tmp_path_factory.mktemp("lab"), whiflash={"verify_kernels": "triton"}) as lab:
            yield lab


def test_greedy_decoding_gives_the_plain_text(lab, prompts, truth):
    lab.steer("ED", truth, 0.3)
    assert_plain_text(lab.generate(prompts[:4], max_new_tokens=24), prompts[:4], truth)
    assert any(entry["drafter"] == "eagle3" for entry in lab.rounds())


def test_sampling_from_the_best_token_alone_gives_the_plain_text(lab, prompts, truth):
    lab.steer("ED", truth, 0.3)
    results = lab.generate(prompts[:2], max_new_tokens=10, temperature=1.0, top_k=1)
    assert_plain_text(results, prompts[:2], truth)


def test_sampling_draws_as_many_tokens_as_asked(lab, prompts):
    lab.steer("ED")
    results = lab.generate(prompts[:2], max_new_tokens=6, temperature=1.0, top_p=0.9)
    assert [len(result["output_ids"]) for result in results] == [6, 6]
