"""What a run prints and writes."""

import json

import pytest

from unit.rounds import a_round
from whiflash_sglang.bench import report
from whiflash_sglang.bench.answers import Answer, ArmRun
from whiflash_sglang.bench.lossless import check_arms
from whiflash_sglang.bench.statistics import all_ratios

NAMES = ("plain", "whiflash:eagle3", "whiflash:dflash", "whiflash:alternate")


def run(name):
    made = ArmRun(name)
    for number, category in enumerate(("agentic", "coding", "math", "summarization")):
        for half in (1, 2):
            answer = Answer(f"{category}-{half}", category, [1], output_ids=[5, 6, 7, 8])
            rounds = [a_round(name.partition(":")[2], 1, verify=0.1), a_round("plain", drafted=0, verify=0.1)]
            answer.count(rounds if ":" in name else (), 4)
            made.add(category, half + number, [answer])
    return made


@pytest.fixture
def runs():
    return [run(name) for name in NAMES]


class NoMargins:
    """Stands for plain decoding's process where nothing differs."""


def checks(runs):
    return check_arms(runs, [NoMargins()] * len(runs))


def test_tables_show_every_head_and_name_in_full(runs, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    report.print_tables(runs, checks(runs), ["a note"], all_ratios(runs))
    printed = capsys.readouterr().out
    assert "…" not in printed
    for said in (*NAMES, "category", "failed", "tokens", "= plain", "summarization", "alternate", "mean of"):
        assert said in printed
    assert "against plain decoding" in printed
    assert "against the better drafter alone" in printed
    assert report.ACCEPTANCE_FORMULA in printed
    assert report.BEFORE_LOOP in printed
    assert printed.rstrip().endswith("a note")


def test_an_arms_table_fits_into_80_columns(runs, capsys):
    report.print_tables(runs[-1:], None, [])
    table = capsys.readouterr().out.split("acceptance length =")[0]
    assert max(len(line.rstrip()) for line in table.splitlines()) <= 80


def test_the_result_file_keeps_its_keys_and_adds_ratios_and_checks(runs):
    result = json.loads(json.dumps(report.to_json({}, runs, checks(runs), all_ratios(runs))))
    assert {"schema", "meta", "arms", "lossless"} <= set(result)
    assert list(result["lossless_by_arm"]) == list(NAMES[1:])
    assert result["lossless"] == result["lossless_by_arm"]["whiflash:alternate"]
    assert {"name", "totals", "categories", "requests"} <= set(result["arms"][0])
    assert {"arm", "base", "category", "ratio", "low", "high"} <= set(result["ratios"][0])
    assert result["arms"][1]["requests"][0]["acceptance_length_before_loop"] == 1.5
    assert result["arms"][0]["mean_of_categories"]["acceptance_length_before_loop"] is None


def test_without_a_check_there_is_no_lossless_verdict(runs):
    result = report.to_json({}, runs[:1], None)
    assert (result["lossless"], result["lossless_by_arm"], result["ratios"]) == (None, {}, [])
    assert check_arms(runs[1:], [NoMargins()] * 3) == []
