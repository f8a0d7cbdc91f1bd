"""The benchmark without a GPU: it says that it times nothing, and its own parts work."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from whiflash_kernels import bench, bench_cases

SMALL = [
    bench_cases.tree_build_case(2, 7),
    bench_cases.greedy_case(3, 7),
    bench_cases.sample_case(2, 5, filtered=False, vocabulary=50),
    bench_cases.sample_case(2, 5, filtered=True, vocabulary=200),
    bench_cases.ddtree_case(2, 8, depth=3, vocabulary=30),
    bench_cases.router_mlp_case(3, 32, 8, torch.float32),
    bench_cases.router_gather_case(5, 4),
    bench_cases.entropy_case(3, 100),
    bench_cases.put_case(3, 4, 40, slots=5, bound=8),
    bench_cases.take_case(5, 40, slots=5, bound=8),
    bench_cases.move_case(5, slots=9, heads=2, d=8),
    bench_cases.kv_case(5, norm=True, heads=2, d=8, slots=9),
    bench_cases.kv_case(5, norm=False, heads=2, d=8, slots=9),
    bench_cases.norm_case(3, 40),
]


@pytest.fixture
def _no_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.mark.usefixtures("_no_gpu")
def test_without_a_gpu_it_says_that_it_times_nothing_and_succeeds(capsys):
    assert bench.main([]) == 0
    assert capsys.readouterr().out == bench.NO_GPU + "\n"
    assert "nothing is timed" in bench.NO_GPU


@pytest.mark.parametrize("case", SMALL, ids=lambda case: f"{case.op}, {case.shape}")
def test_every_case_checks_its_kernel_against_its_reference(case):
    bench.check(case, "cpu")


def test_every_op_it_runs_is_among_the_small_cases():
    assert {case.op for case in bench_cases.cases()} == {case.op for case in SMALL}


@pytest.mark.parametrize("case", SMALL, ids=lambda case: f"{case.op}, {case.shape}")
def test_a_wrong_kernel_fails_its_check(case):
    """A kernel that answers for other inputs than it was given."""

    def wrong(*inputs):
        others = case.make("cpu")
        returned = case.reference(*others)
        for i in case.written:
            inputs[i].copy_(others[i] + 1)
        return returned

    def check_often():  # two random inputs may have equal results
        for _ in range(5):
            bench.check(dataclasses.replace(case, kernel=wrong), "cpu")

    with pytest.raises(AssertionError):
        check_often()


def test_the_table_shows_times_shares_ratios_and_wrong_results(capsys):
    right, wrong = SMALL[7], SMALL[1]
    results = [
        bench.Result(right, kernel=0.004, eager=0.012, compiled=0.006),
        bench.Result(wrong, problem="AssertionError: 1 / 3"),
    ]
    bench.print_table(results, bench.Floors(bytes_per_ms=3e9, launch=0.002))
    _, first, second, _, looped = capsys.readouterr().out.splitlines()
    assert " ".join(first.split()) == "row_entropy rows 3, V 100 4.0 0.001 launch 50% 3.00x 1.50x equal"
    assert second.split()[-1] == "3"
    assert "WRONG: AssertionError: 1 / 3" in second
    assert "tree_verify_greedy loop in Python" in looped


def test_the_floor_is_the_larger_of_memory_and_launch():
    case = dataclasses.replace(SMALL[0], bytes_moved=6_000_000)
    assert bench.Floors(bytes_per_ms=3e9, launch=0.001).of(case) == (0.002, "memory")
    assert bench.Floors(bytes_per_ms=3e9, launch=0.003).of(case) == (0.003, "launch")


def test_compilation_starts_with_one_shape_of_every_op():
    a, b = SMALL[0], SMALL[1]
    results = [bench.Result(case) for case in (a, a, a, b, b)]
    assert [r.case.op for r in bench.first_of_each_op_first(results)] == [a.op, b.op, a.op, b.op, a.op]
