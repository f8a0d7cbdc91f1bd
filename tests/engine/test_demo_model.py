"""The embedded demo, as a user runs it: real prompts, the real model, the real benchmark."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def benchmark(*flags, timeout=600):
    command = [sys.executable, "benchmark.py", *map(str, flags)]
    offline = {**os.environ, "HF_HUB_OFFLINE": "1"}  # the demo needs no network, and must not wait for one
    return subprocess.run(command, cwd=ROOT, env=offline, capture_output=True, text=True, timeout=timeout)


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    """Eight prompts of 32 tokens, float32, the demo's router and drafters, four at a time."""
    path = tmp_path_factory.mktemp("bench") / "result.json"
    done = benchmark("--max-samples", 2, "--max-new-tokens", 32, "--concurrency", 4, "--output-json", path)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout, json.loads(path.read_text())


def test_the_demos_text_is_plain_decodings_token_for_token(result):
    _, data = result
    assert data["lossless"]["compared"] >= 8
    assert data["lossless"]["first_difference"] is None
    assert data["lossless"]["identical"] + len(data["lossless"]["near_ties"]) == data["lossless"]["compared"]


def test_the_result_file_holds_what_it_promises(result):
    _, data = result
    plain, arm = data["arms"]
    assert (plain["name"], arm["name"]) == ("plain", "whiflash:neural")
    assert set(arm["categories"]) == {"chat", "math", "coding", "agentic"}
    totals = arm["totals"]
    assert totals["failed"] == 0
    assert totals["output_tokens"] == sum(len(r["output_ids"]) for r in arm["requests"])
    assert totals["output_tokens_per_s"] == pytest.approx(totals["output_tokens"] / totals["seconds"])
    assert sum(totals["share"].values()) == pytest.approx(1.0)
    assert set(totals["share"]) <= {"eagle3", "dflash"}
    assert plain["totals"]["acceptance_length"] is None


def test_the_demos_drafters_are_trained(result):
    _, data = result
    assert data["arms"][1]["totals"]["acceptance_length"] > 1.5


def test_the_table_shows_categories_drafters_and_the_verdict(result):
    printed, _ = result
    for text in ("chat", "agentic", "eagle3", "tok/s", "lossless"):
        assert text in printed


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--dataset", "nowhere.jsonl"], ["--dataset", "nowhere.jsonl"]),
        (["--whiflash-neural-router-path", "nowhere"], ["--whiflash-neural-router-path", "nowhere"]),
        (["--draft-name-or-path", "nowhere"], ["--speculative-draft-model-path", "nowhere"]),
    ],
)
def test_bad_arguments_end_with_one_clear_line(flags, said):
    done = benchmark(*flags)
    assert done.returncode == 2
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("benchmark.py: error: ")
    assert all(text in last for text in said), last
