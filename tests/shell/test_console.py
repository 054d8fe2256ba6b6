"""A console that does not read never makes its writer wait, and gets everything once it reads again."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import time
import tty
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from relight.shell import console as console_module
from relight.shell.console import FULL, MOST, Console, open_consoles


@pytest.fixture
def keep() -> Iterator[Callable[[int], int]]:
    """Closes what it was given, at the end."""
    fds: list[int] = []

    def kept(fd: int) -> int:
        fds.append(fd)
        return fd

    yield kept
    for fd in fds:
        try:
            os.close(fd)
        except OSError as error:
            assert error.errno == errno.EBADF


def pipe(keep: Callable[[int], int]) -> tuple[int, int]:
    read, write = os.pipe()
    return keep(read), keep(write)


def read_all(fd: int, console: Console, within_s: float = 10) -> bytes:
    """Reads until the console has nothing more to write and the descriptor has nothing more to read."""
    os.set_blocking(fd, False)
    data = b""
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        console.flush()
        done = console.settled
        try:
            data += os.read(fd, 1 << 16)
        except BlockingIOError:
            if done:
                return data
            time.sleep(0.001)
    raise AssertionError(f"the console did not settle; {len(data)} bytes came")


def is_non_blocking(fd: int) -> bool:
    return bool(fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_NONBLOCK)


def test_a_pipe_that_is_not_read_keeps_nobody_waiting_and_loses_nothing(keep: Callable[[int], int]) -> None:
    read, write = pipe(keep)
    console = Console(write)
    lines = [b"line %d %s\n" % (n, b"x" * 1000) for n in range(3000)]
    began = time.monotonic()
    for line in lines:
        console.write(line)
    assert time.monotonic() - began < 1
    assert console.wants_writing
    assert not console.settled
    assert console.fileno() not in (-1, write)
    assert not is_non_blocking(write)
    assert read_all(read, console) == b"".join(lines)
    assert not console.wants_writing
    console.close()


def test_a_terminal_that_is_stopped_keeps_nobody_waiting_and_loses_nothing(keep: Callable[[int], int]) -> None:
    user, terminal = os.openpty()
    keep(user), keep(terminal)
    tty.setraw(terminal)
    console = Console(terminal)
    assert console.screen.terminal
    lines = [b"line %d %s\n" % (n, b"x" * 100) for n in range(3000)]
    for line in lines:
        console.write(line)
    assert console.wants_writing
    assert not is_non_blocking(terminal)
    assert read_all(user, console) == b"".join(lines)
    console.close()


def test_it_knows_how_wide_its_terminal_is(keep: Callable[[int], int]) -> None:
    import struct
    import termios

    user, terminal = os.openpty()
    keep(user), keep(terminal)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 77, 0, 0))
    console = Console(terminal)
    console.look()
    assert console.screen.columns == 77
    console.close()


def test_a_socket_is_a_console_too(keep: Callable[[int], int]) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        console = Console(ours.fileno())
        text = b"x" * 99 + b"\n"
        for _ in range(10_000):
            console.write(text)
        assert console.wants_writing
        assert ours.getblocking()
        assert read_all(theirs.fileno(), console) == text * 10_000
        console.close()
        assert ours.fileno() >= 0


def test_where_reopening_is_refused_a_thread_carries(
    keep: Callable[[int], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    read, write = pipe(keep)
    real = os.open

    def refuse(path: str, flags: int, mode: int = 0o777) -> int:
        if path.startswith("/proc/self/fd/"):
            raise PermissionError(errno.EACCES, "belongs to somebody else")
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", refuse)
    console = Console(write)
    lines = [b"line %d %s\n" % (n, b"x" * 1000) for n in range(3000)]
    for line in lines:
        console.write(line)
    assert console.wants_writing
    assert not console.settled
    assert read_all(read, console) == b"".join(lines)
    settled(console)
    console.close()


def settled(console: Console) -> None:
    """Waits until everything has arrived."""
    end = time.monotonic() + 5
    while not console.settled:
        assert time.monotonic() < end, "waited 5 s for the console to have it all"
        console.flush()
        time.sleep(0.001)


def test_a_carrier_whose_reader_goes_is_gone(keep: Callable[[int], int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console_module, "_PTMX", 0)  # every pipe has device number 0: none is reopened
    read, write = pipe(keep)
    console = Console(write)
    os.close(read)
    console.write(b"nobody hears this\n")
    settled(console)
    console.close()


def test_a_file_is_written_where_its_other_writers_stand(tmp_path: Path, keep: Callable[[int], int]) -> None:
    path = tmp_path / "out"
    fd = keep(os.open(path, os.O_WRONLY | os.O_CREAT))
    os.write(fd, b"before\n")
    console = Console(fd)
    console.write(b"ours\n")
    os.write(fd, b"after\n")
    assert path.read_bytes() == b"before\nours\nafter\n"
    assert (console.fileno(), console.wants_writing, console.settled) == (-1, False, True)
    console.close()


def test_a_full_disk_under_a_console_is_told_afterwards(keep: Callable[[int], int]) -> None:
    console = Console(keep(os.open("/dev/full", os.O_WRONLY)))
    console.write(b"12345\n")
    assert (console.missed, console.gone, console.wants_writing) == (6, False, False)
    console.close()


def test_a_console_that_was_closed_is_forgotten_quietly(keep: Callable[[int], int]) -> None:
    read, write = pipe(keep)
    console = Console(write)
    os.close(read)
    console.write(b"nobody hears this\n")
    assert console.gone
    console.write(b"nor this\n")
    assert console.settled
    console.close()
    os.close(write)
    assert Console(write).gone


def test_a_named_pipe_without_a_reader_is_gone(tmp_path: Path, keep: Callable[[int], int]) -> None:
    os.mkfifo(tmp_path / "fifo")
    read = os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    write = keep(os.open(tmp_path / "fifo", os.O_WRONLY))
    os.close(read)
    assert Console(write).gone


def test_our_messages_begin_a_line_and_are_bounded(keep: Callable[[int], int]) -> None:
    read, write = pipe(keep)
    console = Console(write)
    message = b"m" * 1000
    for _ in range((MOST + FULL) // 1000 + 100):
        console.say(message)
    assert console.full
    assert console.backlog <= MOST
    assert console.missed > 0
    dropped = console.missed
    text = read_all(read, console)
    console.say(b"last\n")
    tail = read_all(read, console)
    assert tail == b"relight: %d bytes for this console were dropped\nlast\n" % dropped
    assert text.count(message + b"\n") * 1001 == len(text)
    console.close()


def test_what_was_not_read_can_be_abandoned_at_the_end_of_a_line(keep: Callable[[int], int]) -> None:
    read, write = pipe(keep)
    console = Console(write)
    console.write(b"x" * (FULL + 100))
    sent = FULL + 100 - console.backlog
    assert console.abandon() == FULL + 100 - sent
    console.write(b"the end\n")
    assert read_all(read, console) == b"x" * sent + b"\nthe end\n"
    console.close()


def test_two_descriptors_of_one_place_are_one_console(tmp_path: Path, keep: Callable[[int], int]) -> None:
    _, write = pipe(keep)
    _, other = pipe(keep)
    nothing = 9999
    both, again = open_consoles(write, keep(os.dup(write)))
    assert both is again
    out, err = open_consoles(write, other)
    assert out is not err
    alone, gone = open_consoles(write, nothing)
    assert (alone.gone, gone.gone) == (False, True)
    for console in (both, out, err, alone):
        console.close()
