"""The demo's cache: built once, whole or not at all."""

import pytest

from whiflash_sglang import cache


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("WHIFLASH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_folder_is_built_once():
    built = []

    def build(path):
        built.append(path)
        (path / "file").write_text("x")

    first, second = cache.build_once("thing", build), cache.build_once("thing", build)
    assert first == second
    assert len(built) == 1
    assert (first / "file").read_text() == "x"


def test_an_interrupted_build_leaves_nothing_and_the_next_run_builds_anew(folder):
    def interrupted(path):
        (path / "half").write_text("x")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.build_once("thing", interrupted)
    assert list(folder.iterdir()) == []
    assert cache.build_once("thing", lambda path: (path / "whole").touch()).joinpath("whole").exists()


def test_a_build_that_lost_a_race_uses_the_winners_folder():
    def slow(path):
        cache.build_once("thing", lambda winner: (winner / "winner").touch())

    assert cache.build_once("thing", slow).joinpath("winner").exists()
