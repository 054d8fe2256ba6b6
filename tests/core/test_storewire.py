"""Requests out of torn bytes. What the whole store answers to them is told in test_tcpstore."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from relight.core.storewire import (
    ANSWERS_AT_ONCE,
    FIELD,
    GET,
    MAGIC,
    PING,
    SET,
    SHAPES,
    Limits,
    Reader,
    Refused,
    framed,
    number,
)

HELLO = b"\0" + struct.pack("<I", MAGIC)
STORE = bytes([SET]) + framed(b"k") + framed(b"v")
# How much is kept of STORE after each of its bytes: of the key once it is whole, what Python spends on it, too.
KEPT = [*range(9), *range(1 + FIELD, 10 + FIELD), 0]
ASK = bytes([PING]) + b"1234"

Asked = tuple[str, int, list[bytes], bytes]


class Server:
    """Carries out nothing; remembers what it was asked."""

    def __init__(self, answer: bytes = b"") -> None:
        self.reader = Reader(Limits(key=8, value=16, keys=4))
        self.asked: list[Asked] = []
        self.answers: list[bytes] = []
        self._answer = answer
        self._verbs = {operation: self._verb(operation) for operation in SHAPES}

    def _verb(self, operation: int) -> Callable[[str, list[bytes], bytes], bytes]:
        def verb(asker: str, strings: list[bytes], tail: bytes) -> bytes:
            self.asked.append((asker, operation, strings, tail))
            return self._answer

        return verb

    def hears(self, data: bytes) -> int:
        return self.reader.read(data, "me", self._verbs, self.answers)


def test_a_request_comes_whole_with_who_asks() -> None:
    server = Server(b"yes")
    assert server.hears(HELLO + STORE + ASK) == 0
    assert server.asked == [("me", SET, [b"k", b"v"], b""), ("me", PING, [], b"1234")]
    assert server.answers == [b"yes", b"yes"]


@pytest.mark.parametrize("cut", range(1, len(STORE)))
def test_what_is_not_whole_yet_is_kept_and_counts(cut: int) -> None:
    server = Server()
    assert server.hears(HELLO + STORE[:cut]) == KEPT[cut - 1]
    assert server.asked == [] and not server.reader.sated
    assert server.hears(STORE[cut:]) == 0
    assert server.asked == [("me", SET, [b"k", b"v"], b"")]


def test_what_trickles_in_counts_as_what_comes_at_once() -> None:
    server = Server()
    assert [server.hears(bytes([each])) for each in HELLO] == [0, 1, 2, 3, 0]
    assert [server.hears(bytes([each])) for each in STORE] == KEPT


def test_who_is_owed_much_is_read_on_later() -> None:
    server = Server(bytes(ANSWERS_AT_ONCE // 2 + 1))
    assert server.hears(HELLO + ASK * 3) == len(ASK)
    assert (len(server.asked), server.reader.sated) == (2, True)
    assert server.hears(b"") == 0
    assert (len(server.asked), server.reader.sated) == (3, False)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (ASK, "did not begin with TCPStore's hello"),
        (b"\0" + bytes(4), "did not begin with TCPStore's hello"),
        (HELLO + HELLO, "said hello twice"),
        (HELLO + b"\x13", "asked for operation 19, which this store does not know"),
        (HELLO + bytes([GET]) + framed(b"k" * 9), "sent a key of 9 bytes, and 8 is the most"),
        (HELLO + STORE[:-9] + framed(b"v" * 17), "sent a value of 17 bytes, and 16 is the most"),
        (HELLO + b"\5" + struct.pack("<Q", 5), "asked for 5 keys in one request, and 4 is the most"),
    ],
)
def test_nonsense_is_refused_with_a_reason(said: bytes, why: str) -> None:
    with pytest.raises(Refused, match=why):
        Server().hears(said)


@pytest.mark.parametrize(
    ("text", "counted"),
    [
        (b"12", 12),
        (b" \t+12abc", 12),
        (b"-3", -3),
        (b"1_0", 1),
        (b"", None),
        (b"abc", None),
        (b"%d" % (2**63 - 1), 2**63 - 1),
        (b"%d" % 2**63, None),
        (b"1" * 1001, None),
    ],
)
def test_numbers_are_read_as_tcpstore_reads_them(text: bytes, counted: int | None) -> None:
    assert number(text) == counted
