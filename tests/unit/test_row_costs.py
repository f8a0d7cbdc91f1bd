"""What rounds teach about the cost of verify rows."""

import random

import pytest

from whiflash_sglang.row_costs import RowCosts

WIDTHS = (9, 17, 33, 65, 129)


def taught(seconds, rounds=40, noise=0.0, seed=0):
    """Costs after ``rounds`` rounds of every width, each taking ``seconds(rows)`` up to noise."""
    costs, coin = RowCosts(), random.Random(seed)
    for _ in range(rounds):
        for rows in WIDTHS:
            costs.observe(rows, seconds(rows) * (1 + coin.uniform(-noise, noise)))
    return costs


def linear(rows):
    return 0.02 + 0.0005 * rows


def test_times_seen_are_the_estimates():
    costs = taught(linear)
    assert [costs.seconds(rows) for rows in WIDTHS] == pytest.approx([linear(rows) for rows in WIDTHS])


def test_between_and_beyond_the_widths_seen_the_time_is_linear():
    costs = taught(linear)
    assert [costs.seconds(rows) for rows in (1, 12, 50, 300)] == pytest.approx(
        [linear(rows) for rows in (1, 12, 50, 300)]
    )


def test_noise_averages_out():
    costs = taught(linear, rounds=200, noise=0.3)
    assert [costs.seconds(rows) for rows in WIDTHS] == pytest.approx(
        [linear(rows) for rows in WIDTHS], rel=0.15
    )


def test_more_rows_never_seem_cheaper():
    costs = taught(lambda rows: 0.03 if rows != 33 else 0.05)
    found = [costs.seconds(rows) for rows in range(1, 200)]
    assert found == sorted(found)


def test_a_machine_that_slows_down_takes_the_widths_along_that_no_round_visits():
    costs = taught(linear)
    for _ in range(200):
        costs.observe(9, 2 * linear(9))
    assert costs.seconds(129) == pytest.approx(2 * linear(129), rel=0.05)


def test_one_outlier_moves_little():
    costs = taught(linear)
    costs.observe(33, 100 * linear(33))
    assert costs.seconds(33) == pytest.approx(linear(33), rel=0.1)


def test_a_width_is_known_after_two_rounds():
    costs = RowCosts()
    assert not costs.known(9)
    costs.observe(9, 0.01)
    assert not costs.known(9)
    costs.observe(9, 0.01)
    assert costs.known(9)
    assert not costs.known(17)


def test_nothing_is_estimated_from_nothing():
    with pytest.raises(ValueError, match="no round"):
        RowCosts().seconds(9)


def test_what_was_saved_is_read_again(tmp_path):
    costs = taught(linear)
    for _ in range(50):
        costs.observe(9, 1.5 * linear(9))
    costs.save(tmp_path / "folder" / "costs.json")
    again = RowCosts.load(tmp_path / "folder" / "costs.json")
    assert [again.seconds(rows) for rows in WIDTHS] == pytest.approx([costs.seconds(rows) for rows in WIDTHS])
    assert all(again.known(rows) for rows in WIDTHS)
    assert [file.name for file in (tmp_path / "folder").iterdir()] == ["costs.json"]


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"rows": 3}', '{"rows_seconds_rounds": [[9, -1, 2]]}', '{"rows_seconds_rounds": [[9]]}'],
)
def test_another_file_is_refused_by_flag_and_name(tmp_path, text):
    (tmp_path / "wrong.json").write_text(text)
    with pytest.raises(ValueError, match=r"--whiflash-calibration .*wrong\.json"):
        RowCosts.load(tmp_path / "wrong.json")
