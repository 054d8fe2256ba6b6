"""Workers' streams through the pump: files hold every byte, consoles whole lines, and nobody waits for anybody."""

from __future__ import annotations

import os
import resource
import select
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from relight.shell.console import Console
from relight.shell.source import Source
from relight.shell.tee import Pump

DEADLINE_S = 20


class Stage:
    """A pump, its one console (a pipe that this test reads when it likes), and workers' ends of pipes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.read_end, write_end = os.pipe()
        self.console = Console(write_end)
        os.close(write_end)
        self.pump = Pump(self.console, self.console)
        self.text = b""
        self.ends: list[int] = []

    def worker(self, name: str, **options: object) -> tuple[int, Source]:
        read, write = os.pipe()
        self.ends.append(write)
        path = str(self.folder / f"{name}.log")
        source = self.pump.add(read, path, f"[{name}]:".encode(), True, **options)  # type: ignore[arg-type]
        return write, source

    def read_until(self, *words: bytes) -> bytes:
        """Reads the console until all words have been seen."""
        until = time.monotonic() + DEADLINE_S
        while not all(word in self.text for word in words):
            left = until - time.monotonic()
            assert left > 0, f"the console never showed {words}, only {self.text[-500:]!r}"
            if select.select([self.read_end], [], [], left)[0]:
                self.text += os.read(self.read_end, 1 << 20)
        return self.text

    def wait_finished(self, *sources: Source) -> None:
        until = time.monotonic() + DEADLINE_S
        missing = set(sources)
        while missing:
            left = until - time.monotonic()
            assert left > 0, "the streams were never finished"
            select.select([self.pump.fileno()], [], [], left)
            missing -= set(self.pump.finished())

    def close(self) -> bytes:
        """Ends the pump with a console that reads to the end."""
        self.pump.close()
        reader = threading.Thread(target=self._read_to_the_end)
        reader.start()
        assert self.pump.join(DEADLINE_S), "the pump did not end"
        self.console.close()
        reader.join(DEADLINE_S)
        return self.text

    def _read_to_the_end(self) -> None:
        parts = [self.text]
        while parts[-1] or len(parts) == 1:
            parts.append(os.read(self.read_end, 1 << 20))
        self.text = b"".join(parts)

    def file(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    for end in stage.ends:
        try:
            os.close(end)
        except OSError:
            pass
    stage.pump.give_up()
    stage.pump.close(0)
    assert stage.pump.join(DEADLINE_S)
    stage.console.close()
    os.close(stage.read_end)


def test_bytes_go_to_the_file_and_lines_to_the_console(stage: Stage) -> None:
    a, source = stage.worker("a")
    b, _ = stage.worker("b")
    os.write(a, b"one\n\xff\x00two\nunfinished")
    os.write(b, b"three\n")
    stage.read_until(b"[a]:one\n[a]:\xff\x00two\n", b"[b]:three\n")
    os.close(a)
    stage.wait_finished(source)
    assert stage.file("a.log") == b"one\n\xff\x00two\nunfinished"
    assert b"[a]:unfinished\n" in stage.close()


def test_an_unfinished_line_is_shown_and_continued(stage: Stage) -> None:
    a, _ = stage.worker("a")
    b, _ = stage.worker("b")
    os.write(a, b"half")
    stage.read_until(b"[a]:half")
    os.write(b, b"other\n")
    stage.read_until(b"[b]:other\n")
    os.write(a, b" whole\n")
    assert stage.read_until(b"whole\n") == b"[a]:half\n[b]:other\n[a]: whole\n"


def test_our_own_lines_come_after_what_was_said_before(stage: Stage) -> None:
    a, _ = stage.worker("a")
    for n in range(200):
        os.write(a, b"worker %d\n" % n)
        stage.pump.say(b"ours %d" % n)
    lines = stage.read_until(b"ours 199\n").splitlines()
    assert [line for line in lines if line.startswith(b"ours")] == [b"ours %d" % n for n in range(200)]
    assert all(lines.index(b"[a]:worker %d" % n) < lines.index(b"ours %d" % n) for n in range(200))


def test_a_hidden_worker_is_only_in_its_file(stage: Stage) -> None:
    filtered = str(stage.folder / "filtered")
    a, first = stage.worker("a", needles=(b"loss",), filtered=filtered)
    b, second = stage.worker("b", needles=(b"loss",), filtered=filtered, console=False)
    c, third = stage.worker("c", needles=(b"loss",), filtered=filtered)
    for end in (a, b, c):
        os.write(end, b"loss 1\nnothing\n")
        os.write(end, b"the last loss")
        os.close(end)
    stage.wait_finished(first, second, third)
    assert stage.file("b.log") == b"loss 1\nnothing\nthe last loss"
    assert sorted(stage.file("filtered").splitlines()) == [
        b"[a]:loss 1",
        b"[a]:the last loss",
        b"[c]:loss 1",
        b"[c]:the last loss",
    ]
    assert b"[b]" not in stage.close()


def test_a_console_that_does_not_read_stops_nobody_and_gets_everything_later(stage: Stage) -> None:
    a, source = stage.worker("a")
    b, other = stage.worker("b")
    line = b"x" * 99 + b"\n"
    for _ in range(300):  # 30 MB each: far more than any buffer between here and there
        for end in (a, b):
            os.write(end, line * 1000)
    stage.pump.say(b"ours comes last")
    for end in (a, b):
        os.close(end)
    stage.wait_finished(source, other)
    text = stage.close()
    assert stage.file("a.log") == line * 300_000
    assert text.endswith(b"ours comes last\n")
    assert text.count(b"[a]:" + line) == text.count(b"[b]:" + line) == 300_000
    assert len(text) == 600_000 * 104 + len(b"ours comes last\n")


def test_a_console_that_never_reads_again_can_be_given_up(stage: Stage) -> None:
    a, _ = stage.worker("a")
    for _ in range(100):
        os.write(a, b"y" * 99_999 + b"\n")
    stage.pump.close()
    assert not stage.pump.join(0.3), "the pump must wait for a reader that may come back"
    stage.pump.give_up()
    assert stage.pump.join(DEADLINE_S)
    assert len(stage.file("a.log")) == 10_000_000
    stage.pump = Pump(stage.console, stage.console)  # for the fixture
    assert b"did not read" in stage.close()


def test_a_console_that_is_closed_leaves_the_files_going(stage: Stage) -> None:
    a, source = stage.worker("a")
    os.write(a, b"one\n")
    stage.read_until(b"one\n")
    os.close(stage.read_end)
    for n in range(100):
        os.write(a, b"line %d\n" % n)
        time.sleep(0.001)
    os.close(a)
    stage.wait_finished(source)
    assert stage.file("a.log") == b"one\n" + b"".join(b"line %d\n" % n for n in range(100))
    stage.read_end = os.open("/dev/null", os.O_RDONLY)


def test_what_a_killed_worker_wrote_is_not_lost(stage: Stage) -> None:
    read, write = os.pipe()
    source = stage.pump.add(read, str(stage.folder / "k.log"), b"[k]:", True)
    code = "import os\nfor n in range(5000): os.write(1, b'line %d\\n' % n)\nos.kill(os.getpid(), 9)"
    worker = subprocess.Popen([sys.executable, "-c", code], stdout=write)
    os.close(write)
    assert worker.wait(DEADLINE_S) == -signal.SIGKILL
    stage.pump.finish([source])
    stage.wait_finished(source)
    assert stage.file("k.log") == b"".join(b"line %d\n" % n for n in range(5000))
    assert stage.close().endswith(b"[k]:line 4999\n")


def test_a_child_that_keeps_the_pipe_holds_nobody(stage: Stage) -> None:
    a, source = stage.worker("a")  # our own end stays open, as a forked child's would
    os.write(a, b"z" * 60_000 + b"\n")
    began = time.monotonic()
    stage.pump.finish([source], within_s=0.1)
    stage.wait_finished(source)
    assert 0.1 <= time.monotonic() - began < 2
    assert len(stage.file("a.log")) == 60_001
    with pytest.raises(BrokenPipeError):
        os.write(a, b"nobody reads this\n")


def test_a_child_that_never_stops_writing_holds_nobody(stage: Stage) -> None:
    read, write = os.pipe()
    source = stage.pump.add(read, str(stage.folder / "f.log"), b"[f]:", True)
    flood = subprocess.Popen(["yes"], stdout=write)
    os.close(write)
    try:
        stage.pump.finish([source], within_s=0.1)
        stage.wait_finished(source)
        assert flood.wait(DEADLINE_S) != 0
    finally:
        flood.kill()
        flood.wait()


def test_a_full_disk_costs_one_warning_and_the_console_goes_on(stage: Stage) -> None:
    (stage.folder / "a.log").symlink_to("/dev/full")
    (stage.folder / "b.log").symlink_to("/dev/full")
    a, _ = stage.worker("a")
    b, _ = stage.worker("b")
    for n in range(50):
        os.write(a, b"line %d\n" % n)
        os.write(b, b"line %d\n" % n)
    text = stage.read_until(b"[a]:line 49\n", b"[b]:line 49\n")
    assert text.count(b"warning: cannot write") == 1
    assert b"No space left on device" in text
    assert b".log: " in text


def test_a_file_that_can_be_written_again_says_what_it_misses(stage: Stage) -> None:
    a, source = stage.worker("a")
    os.write(a, b"0123456789\n")
    stage.read_until(b"[a]:0123456789\n")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (15, before[1]))
    try:
        os.write(a, b"abcdefgh\n")
        stage.read_until(b"[a]:abcdefgh\n", b"warning: cannot write")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    until = time.monotonic() + DEADLINE_S
    while b"can be written again" not in stage.text:
        assert time.monotonic() < until
        os.write(a, b"again\n")
        time.sleep(0.05)
        stage.text += os.read(stage.read_end, 1 << 16)
    os.close(a)
    stage.wait_finished(source)
    kept = stage.file("a.log")
    assert kept.startswith(b"0123456789\nabcd\n[relight: ")
    assert b" bytes are missing here: File too large]\nagain\n" in kept


def test_a_folder_that_is_missing_is_told(stage: Stage) -> None:
    read, write = os.pipe()
    stage.ends.append(write)
    stage.pump.add(read, str(stage.folder / "missing" / "a.log"), b"[a]:", True)
    os.write(write, b"heard\n")
    text = stage.read_until(b"[a]:heard\n")
    assert b"missing/a.log: No such file or directory" in text


def test_without_a_file_a_lagging_console_is_told_what_it_lost(stage: Stage) -> None:
    read, write = os.pipe()
    source = stage.pump.add(read, None, b"[a]:", True)
    for _ in range(100):
        os.write(write, b"w" * 99_999 + b"\n")
    os.close(write)
    stage.wait_finished(source)
    text = stage.close()
    shown = text.count(b"w")
    assert shown < 100 * 99_999
    assert b"bytes of [a]: are lost here" in text


def test_a_bug_in_the_pump_is_reported(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    from relight.core.names import Broken
    from relight.shell import tee

    def broken(*_: object) -> int:
        raise RuntimeError("a bug")

    a, _ = stage.worker("a")
    monkeypatch.setattr(tee.Pump, "_take", broken)
    os.write(a, b"x\n")
    select.select([stage.pump.fileno()], [], [], DEADLINE_S)
    with pytest.raises(Broken, match="a bug"):
        stage.pump.finished()
    with pytest.raises(BrokenPipeError):
        os.write(a, b"nobody reads\n")


def memory_kb() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4


@pytest.mark.slow
@pytest.mark.parametrize("text", [b"x" * 99 + b"\n", b"x" * 100, b"\n", b"\r50%"], ids=["lines", "one", "empty", "bar"])
def test_a_flood_into_a_console_that_does_not_read_stays_small_in_memory(stage: Stage, text: bytes) -> None:
    a, _ = stage.worker("a")
    chunk = text * (100_000 // len(text))
    os.write(a, chunk)
    before = most = memory_kb()
    for _ in range(10_000):  # 1 GB
        os.write(a, chunk)
        most = max(most, memory_kb())
    (stage.folder / "a.log").unlink()  # pytest would keep it
    assert most - before < 30_000
    stage.pump.give_up()


@pytest.mark.slow
def test_lines_arrive_when_they_are_written_and_not_when_somebody_looks(stage: Stage) -> None:
    a, _ = stage.worker("a")
    late: list[float] = []
    for n in range(200):
        time.sleep(0.005)
        began = time.monotonic()
        os.write(a, b"tick %d\n" % n)
        stage.read_until(b"tick %d\n" % n)
        late.append(time.monotonic() - began)
    assert statistics.median(late) < 0.02


def open_files(folder: Path) -> list[str]:
    """Which files of a folder this process holds open."""
    held = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            held.append(os.readlink(f"/proc/self/fd/{fd}"))
        except OSError:  # it was the listing's own
            continue
    return sorted(os.path.basename(path) for path in held if path.startswith(f"{folder}/"))


def test_a_filtered_file_is_closed_when_the_next_round_begins(stage: Stage) -> None:
    folder = stage.folder
    a, first = stage.worker("a", needles=(b"loss",), filtered=str(folder / "filtered.0"))
    os.write(a, b"loss 1\n")
    os.close(a)
    stage.wait_finished(first)
    stage.pump.next_round()
    b, second = stage.worker("b", needles=(b"loss",), filtered=str(folder / "filtered.1"))
    stage.pump.next_round()  # nobody closes what is still written to
    os.write(b, b"loss 2\n")
    stage.read_until(b"loss 2")
    assert open_files(folder) == ["b.log", "filtered.1"]
    os.close(b)
    stage.wait_finished(second)
    assert [stage.file(f"filtered.{number}") for number in (0, 1)] == [b"[a]:loss 1\n", b"[b]:loss 2\n"]
