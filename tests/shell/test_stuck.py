"""A worker counts as stuck when every look for long enough finds it uninterruptible."""

from __future__ import annotations

import pathlib

from relight.shell.stuck import StuckWatch


def state(proc: pathlib.Path, pid: int, letter: str) -> None:
    folder = proc / str(pid)
    folder.mkdir(exist_ok=True)
    (folder / "stat").write_text(f"{pid} (a (strange) name) {letter} 1 1 1 0")


def test_only_an_unbroken_time_in_state_d_counts(tmp_path: pathlib.Path) -> None:
    watch = StuckWatch(3.0, str(tmp_path))
    watch.begin(100.0)
    for now, letter in [(101.0, "D"), (102.0, "D"), (103.0, "S"), (104.0, "D"), (106.0, "D")]:
        state(tmp_path, 70, letter)
        state(tmp_path, 71, "S")
        assert watch.look(now, {0: 71, 1: 70}) is None
    sentence = watch.look(107.0, {0: 71, 1: 70})
    assert sentence == "local rank 1 was stuck in the kernel (uninterruptible, state D) for 3 s"
    assert watch.wake_at() is None, "it is told once"


def test_it_does_not_look_more_often_than_once_a_second(tmp_path: pathlib.Path) -> None:
    state(tmp_path, 70, "D")
    watch = StuckWatch(0.5, str(tmp_path))
    watch.begin(100.0)
    assert watch.wake_at() == 101.0
    assert watch.look(100.9, {0: 70}) is None
    assert watch.look(101.0, {0: 70}) is None
    assert watch.wake_at() == 102.0


def test_without_a_timeout_it_never_looks(tmp_path: pathlib.Path) -> None:
    watch = StuckWatch(0.0, str(tmp_path))
    watch.begin(100.0)
    assert watch.wake_at() is None
    assert watch.look(1e9, {0: 70}) is None


def test_a_worker_that_has_ended_is_not_stuck(tmp_path: pathlib.Path) -> None:
    watch = StuckWatch(1.0, str(tmp_path))
    watch.begin(100.0)
    assert watch.look(101.0, {0: 70}) is None
    assert watch.look(103.0, {0: 70}) is None
