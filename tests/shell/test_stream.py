"""One connection on the loop, with a real socket at each end."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator

import pytest

from relight.shell import stream as streams
from relight.shell.loop import Loop
from relight.shell.stream import Stream
from tests.waiting import until


class Line:
    """A stream, what it heard, and the other end of its connection."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.other = socket.create_connection(server.getsockname())
            ours, _ = server.accept()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 << 10)  # so that the kernel does not swallow it all
        ours.setblocking(False)
        self.other.setblocking(False)
        self.heard = b""
        self.ends = 0
        self.stream = Stream(loop, ours, self._hear, self._end)

    def read(self, size: int) -> bytes:
        """What the other end reads next."""
        found = bytearray()

        def enough() -> bool:
            try:
                while len(found) < size:
                    found.extend(self.other.recv(size - len(found)))
            except BlockingIOError:
                pass
            return len(found) == size

        until(enough, f"{size} bytes", self.loop)
        return bytes(found)

    def reset(self) -> None:
        self.other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.other.close()

    def _hear(self, chunk: bytes) -> None:
        self.heard += chunk

    def _end(self) -> None:
        self.ends += 1


@pytest.fixture
def line(loop: Loop) -> Iterator[Line]:
    line = Line(loop)
    yield line
    line.stream.close()
    line.other.close()


def test_bytes_go_both_ways_and_the_end_is_told_once(line: Line) -> None:
    line.stream.send(b"to you")
    assert line.read(6) == b"to you"
    line.other.send(b"to me")
    until(lambda: line.heard == b"to me", "the answer", line.loop)
    line.other.close()
    until(lambda: line.ends, "the end", line.loop)
    assert not line.stream.open
    line.stream.send(b"nobody hears this")
    line.stream.close()
    assert (line.ends, line.heard) == (1, b"to me")


def test_what_the_other_side_does_not_take_at_once_arrives_later_whole_and_in_order(line: Line) -> None:
    large = [os.urandom(300_000) for _ in range(10)]
    for part in large:
        line.stream.send(part)
    assert 0 < line.stream._waiting < 3_000_000
    assert line.read(3_000_000) == b"".join(large)
    assert line.stream._waiting == 0
    line.other.send(b"still here")
    until(lambda: line.heard == b"still here", "it to listen again", line.loop)


def test_who_does_not_read_is_not_read_either(line: Line) -> None:
    line.stream.send(bytes(3 << 20))
    for _ in range(20):  # until the kernel takes no more, however it lets its buffers grow
        line.loop.wait(0.0)
    line.other.send(b"more!")
    for _ in range(5):
        line.loop.wait(0.0)
    assert (line.heard, line.stream.open) == (b"", True)
    line.read(3 << 20)
    until(lambda: line.heard == b"more!", "what was said meanwhile", line.loop)


def test_who_never_reads_is_given_up_when_too_much_waits(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "MOST_UNSENT", 200_000)
    for _ in range(1000):
        line.stream.send(bytes(50_000))
        if not line.stream.open:
            break
    assert line.ends == 1
    assert line.stream._waiting <= 250_000


def test_nothing_to_send_is_nothing(line: Line) -> None:
    line.stream.send(b"")
    line.stream.send(b"x")
    assert line.read(1) == b"x"


def test_a_reset_is_an_end_whether_one_reads_or_writes(loop: Loop) -> None:
    reading, writing, blocked = Line(loop), Line(loop), Line(loop)
    blocked.stream.send(bytes(3 << 20))
    for line in (reading, writing, blocked):
        line.reset()
    writing.stream.send(b"x")
    assert (writing.ends, writing.stream.open) == (1, False)
    until(lambda: reading.ends and blocked.ends, "both to see it", loop)
    assert (reading.ends, blocked.ends) == (1, 1)


def test_after_it_was_closed_it_says_nothing_more(line: Line) -> None:
    line.other.send(b"too late")
    line.stream.close()
    for _ in range(3):
        line.loop.wait(0.0)
    assert (line.heard, line.ends) == (b"", 0)


def test_it_may_be_closed_by_whoever_hears_it(loop: Loop) -> None:
    line = Line(loop)
    line.stream._on_bytes = lambda _chunk: line.stream.close()
    line.other.send(b"go away")
    until(lambda: not line.stream.open, "the close", loop)
    assert line.ends == 0
    line.other.close()
