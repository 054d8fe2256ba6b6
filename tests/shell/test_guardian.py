"""The guardian by itself: what it kills, what it spares, and what it tidies when its agent is gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from relight.shell.guardian import MARK, MOST_LIVES, Guardian
from relight.shell.loop import Loop

from ..waiting import DEADLINE_S, until


@pytest.fixture
def sleepers() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []

    def start(**environment: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(["sleep", "100"], start_new_session=True, env={**os.environ, **environment})
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def forsake(guardian: Guardian) -> None:
    """What the guardian sees when its agent is killed: nobody holds the pipe any more."""
    os.close(guardian._pipe)
    assert guardian._process is not None
    guardian._process.wait(DEADLINE_S)
    guardian._pipe = os.open(os.devnull, os.O_WRONLY)


Sleepers = Callable[..., subprocess.Popen[bytes]]


def test_it_kills_the_groups_it_was_told_of_and_no_others(loop: Loop, sleepers: Sleepers) -> None:
    guardian = Guardian("a1", loop, print)
    told = [sleepers() for _ in range(5)]
    released, stranger = sleepers(), sleepers()
    for process in (*told[:3], released, *told[3:]):
        guardian.protect(process.pid)
    guardian.release(released.pid)
    guardian.release(stranger.pid)  # was never told of
    forsake(guardian)
    assert [process.wait(DEADLINE_S) for process in told] == [-signal.SIGKILL] * 5
    assert released.poll() is None and stranger.poll() is None
    guardian.dismiss()


def test_it_kills_what_carries_its_mark_and_nothing_that_carries_another(loop: Loop, sleepers: Sleepers) -> None:
    guardian = Guardian("0123abcd", loop, print)
    ours, others = sleepers(**{MARK: "0123abcd"}), sleepers(**{MARK: "89abcdef"})
    forsake(guardian)
    assert ours.wait(DEADLINE_S) == -signal.SIGKILL
    assert others.poll() is None
    guardian.dismiss()


def test_dismissed_it_kills_nothing(loop: Loop, sleepers: Sleepers) -> None:
    guardian = Guardian("0123abcd", loop, print)
    marked = sleepers(**{MARK: "0123abcd"})
    guardian.protect(marked.pid)
    pid = guardian.pid
    guardian.dismiss()
    assert guardian.pid == 0 and not Path(f"/proc/{pid}").exists()
    assert marked.poll() is None


def test_it_tidies_temporary_folders_if_nothing_was_written_there(loop: Loop, tmp_path: Path) -> None:
    guardian = Guardian("a1", loop, print)
    for name in ("empty", "written"):
        outer, inner = tmp_path / name, tmp_path / name / "run"
        (inner / "attempt_0" / "0").mkdir(parents=True)
        (inner / "attempt_1" / "0").mkdir(parents=True)
        (inner / "agent.sock").touch()
        guardian.tidy(str(outer))
        guardian.tidy(str(inner))
    (tmp_path / "written/run/agent.sock").unlink()
    guardian.remove(str(tmp_path / "empty/run/agent.sock"))
    (tmp_path / "written/run/attempt_0/0/stdout.log").write_text("it began")
    forsake(guardian)
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == [
        "written",
        "written/run",
        "written/run/attempt_0",
        "written/run/attempt_0/0",
        "written/run/attempt_0/0/stdout.log",
    ]
    guardian.dismiss()


def test_a_path_cannot_give_it_orders(loop: Loop, sleepers: Sleepers, tmp_path: Path) -> None:
    guardian = Guardian("a1", loop, print)
    spared, told = sleepers(), sleepers()
    guardian.remove(f"/tmp/x\n+ {spared.pid} /agent.sock")
    guardian.tidy(f"/tmp/x\n+ {spared.pid}")
    guardian.protect(told.pid)
    forsake(guardian)
    assert told.wait(DEADLINE_S) == -signal.SIGKILL
    assert spared.poll() is None
    guardian.dismiss()


@pytest.mark.parametrize("name", ["SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGTSTP", "SIGUSR1", "SIGUSR2"])
def test_it_ignores_what_a_terminal_or_a_scheduler_sends(loop: Loop, sleepers: Sleepers, name: str) -> None:
    guardian = Guardian("a1", loop, print)
    process = sleepers()
    guardian.protect(process.pid)
    until(lambda: int(_field(guardian.pid, "SigIgn"), 16) & 0x4000, "the guardian to be ready")
    os.kill(guardian.pid, getattr(signal, name))
    forsake(guardian)
    assert process.wait(DEADLINE_S) == -signal.SIGKILL
    guardian.dismiss()


def _field(pid: int, name: str) -> str:
    with open(f"/proc/{pid}/status") as file:
        return next(line.split()[1] for line in file if line.startswith(name))


def test_killed_it_is_replaced_by_one_that_knows_as_much(loop: Loop, sleepers: Sleepers, tmp_path: Path) -> None:
    guardian = Guardian("a1", loop, print)
    told, released = sleepers(), sleepers()
    (tmp_path / "empty").mkdir()
    guardian.protect(told.pid)
    guardian.protect(released.pid)
    guardian.tidy(str(tmp_path / "empty"))
    guardian.release(released.pid)
    first = guardian.pid
    os.kill(first, signal.SIGKILL)
    until(lambda: guardian.pid not in (0, first), "another guardian", loop)
    forsake(guardian)
    assert told.wait(DEADLINE_S) == -signal.SIGKILL
    assert released.poll() is None
    assert not (tmp_path / "empty").exists()
    guardian.dismiss()


def test_it_is_not_replaced_for_ever(loop: Loop) -> None:
    said: list[str] = []
    guardian = Guardian("a1", loop, said.append)
    seen = []
    while guardian.pid:
        assert said == []
        seen.append(guardian.pid)
        with suppress(ProcessLookupError):
            os.kill(guardian.pid, signal.SIGKILL)
        until(lambda: guardian.pid != seen[-1], "the end of a guardian", loop)
    assert len(seen) == MOST_LIVES
    assert said == [
        "the guardian has died 8 times and is not started again: should relight itself be killed, "
        "its workers may outlive it"
    ]
    guardian.protect(1)  # nobody hears it, and nothing breaks
    guardian.dismiss()


def test_one_that_does_not_listen_never_blocks_its_agent(loop: Loop) -> None:
    guardian = Guardian("a1", loop, print)
    first = guardian.pid
    os.kill(first, signal.SIGSTOP)
    begin = time.monotonic()
    for group in range(2_000_000, 2_020_000):
        guardian.protect(group)
        guardian.release(group)
    assert time.monotonic() - begin < 5
    until(lambda: guardian.pid != first, "another guardian", loop)
    guardian.dismiss()


def test_without_a_shell_there_is_none_and_all_goes_on(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> None:
        raise FileNotFoundError(2, "No such file or directory", "/bin/sh")

    monkeypatch.setattr(subprocess, "Popen", missing)
    said: list[str] = []
    guardian = Guardian("a1", loop, said.append)
    assert guardian.pid == 0
    assert said == [
        "no guardian could be started (No such file or directory): should relight itself be killed, "
        "its workers may outlive it"
    ]
    guardian.protect(1)
    guardian.release(1)
    guardian.dismiss()


def test_an_agent_that_is_killed_while_a_worker_is_being_started(sleepers: Sleepers) -> None:
    """The pipe stays open until the new process is itself: so the guardian never looks too early."""
    agent = textwrap.dedent(
        """
        import os, signal, subprocess, threading
        from relight.shell.guardian import MARK, Guardian
        from relight.shell.loop import Loop
        guardian = Guardian("feedbeef", Loop(), print)
        def die():
            os.kill(os.getpid(), signal.SIGKILL)
        threading.Timer(0.05, die).start()
        while True:
            subprocess.Popen(["sleep", "100"], env={**os.environ, MARK: "feedbeef"}, start_new_session=True)
        """
    )
    for _ in range(3):
        process = subprocess.run([sys.executable, "-c", agent], capture_output=True, timeout=DEADLINE_S)
        assert process.returncode == -signal.SIGKILL, process.stderr
        until(lambda: not _marked(b"RELIGHT_AGENT=feedbeef"), "all of them to be gone")


def _marked(mark: bytes) -> list[int]:
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            if mark in Path(f"/proc/{name}/environ").read_bytes():
                found.append(int(name))
    return found
