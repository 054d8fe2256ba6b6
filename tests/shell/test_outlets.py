"""Where relight's own lines come out, and who may write to a console when."""

from __future__ import annotations

import os
import select
import threading
import time
from pathlib import Path

import pytest

from relight.core.launch import Output
from relight.core.roster import Place
from relight.core.streams import streams
from relight.shell import outlets as room
from relight.shell.console import Console
from relight.shell.loop import Loop
from relight.shell.outlets import Outlets

DEADLINE_S = 10.0


def test_our_own_lines_hold_nothing_that_steers_a_terminal(loop: Loop, capfd: pytest.CaptureFixture[str]) -> None:
    outlets = Outlets(Output(), "n1", loop)
    outlets.say("relight: rank 0 exited with 1: \x1b[2Jgone\tby")
    outlets.release()
    assert capfd.readouterr().err == "relight: rank 0 exited with 1: \\x1b[2Jgone\tby\n"


class Watched(Console):
    """A console that remembers which threads have written to it."""

    def __init__(self, fd: int) -> None:
        super().__init__(fd)
        self.writers: set[str] = set()

    def flush(self) -> None:
        self.writers.add(threading.current_thread().name)
        super().flush()


def test_what_was_said_before_the_pump_began_is_the_pumps_to_bring_out(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = os.pipe()
    console = Watched(writer)
    os.close(writer)
    monkeypatch.setattr(room, "open_consoles", lambda: (console, console))
    outlets = Outlets(Output(tee=streams("3")), "n1", loop)
    line = "x" * 99_999
    for _ in range(20):  # twice what the pipe takes: this console does not read
        outlets.say(line)
    outlets.begin(str(tmp_path))
    outlets.streams(Place(0, 0, 1, 1, 0, 1, "r", 0, 1), str(tmp_path))
    outlets.started()
    console.writers.clear()
    outlets.say("the last word")
    outlets.close()
    heard = bytearray()
    end = time.monotonic() + DEADLINE_S
    while not outlets.closed:
        assert time.monotonic() < end, f"waited {DEADLINE_S:g} s for the console to have read {len(heard)} bytes"
        if select.select([reader], [], [], 0)[0]:
            heard += os.read(reader, 1 << 16)
        loop.wait(time.monotonic() + 0.01)
    outlets.release()
    while piece := os.read(reader, 1 << 20):
        heard += piece
    os.close(reader)
    assert heard.decode() == f"{line}\n" * 20 + "the last word\n"
    assert console.writers == {"relight pump"}


def test_an_agent_that_broke_leaves_no_thread_behind(
    loop: Loop, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    outlets = Outlets(Output(tee=streams("3")), "n1", loop)
    outlets.begin(str(tmp_path))
    outlets.streams(Place(0, 0, 1, 1, 0, 1, "r", 0, 1), str(tmp_path))
    outlets.say("relight: the last word")
    outlets.started()
    outlets.release()
    assert [thread.name for thread in threading.enumerate() if thread.name == "relight pump"] == []
    assert capfd.readouterr().err == "relight: the last word\n"
