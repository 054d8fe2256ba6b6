"""PyTorch's TCPStore protocol on the wire: whole requests out of torn bytes, within limits, and the form of answers.

A request is an operation's number; then strings, each after its length, or a counted list of them; then perhaps a
tail of fixed size. What the strings mean is not known here.
"""

from __future__ import annotations

import re
import struct

from relight.core.values import value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn, TypeVar

    Asker = TypeVar("Asker")
    Verbs = dict[int, Callable[[Asker, list[bytes], bytes], bytes]]

MAGIC = 0x3C85F7CE
YES, NO, CANCELLED = b"\0", b"\1", b"\1"
NUMBER = re.compile(rb"[\t-\r ]*([+-]?[0-9]+)")  # as C++ reads it: leading blanks, digits, the rest ignored
DIGITS = 1000  # a longer number is out of range whatever it says, and slow to read
ANSWERS_AT_ONCE = 1 << 20
FIELD = 60  # what Python spends on a string of a request that is not whole yet, beside its bytes

U64 = struct.Struct("<Q")
I64 = struct.Struct("<q")
U32 = struct.Struct("<I")

GREET, SET, COMPARE_SET, GET, ADD, CHECK, WAIT, GET_NUM_KEYS, DELETE_KEY, APPEND = range(10)
MULTI_GET, MULTI_SET, CANCEL_WAIT, PING, QUEUE_PUSH, QUEUE_POP, QUEUE_LEN, LIST_KEYS, BARRIER = range(10, 19)


@value
class Limits:
    """How large things may be. The first three are PyTorch's; the others keep a flood out of the agent's memory."""

    key: int = 8 << 10
    value: int = 8 << 20
    keys: int = 128 << 10
    answer: int = 256 << 20
    memory: int = 1 << 30


class Refused(Exception):
    """A request that closes its client; the text says why."""


class Shape:
    """What follows an operation's number: how many strings (a key, then values), or a list of them; then a tail."""

    __slots__ = ("many", "operation", "tail", "width")

    def __init__(self, operation: int, *, width: int = 0, many: bool = False, tail: int = 0) -> None:
        self.operation = operation
        self.width = width
        self.many = many
        self.tail = tail


HELLO = Shape(GREET, tail=4)
GREETING = {GREET: HELLO}  # all that a stranger may say
SHAPES = {
    shape.operation: shape
    for shape in (
        Shape(SET, width=2),
        Shape(COMPARE_SET, width=3),
        Shape(GET, width=1),
        Shape(ADD, width=1, tail=8),
        Shape(CHECK, width=1, many=True),
        Shape(WAIT, width=1, many=True),
        Shape(GET_NUM_KEYS),
        Shape(DELETE_KEY, width=1),
        Shape(APPEND, width=2),
        Shape(MULTI_GET, width=1, many=True),
        Shape(MULTI_SET, width=2, many=True),
        Shape(CANCEL_WAIT),
        Shape(PING, tail=4),
        Shape(QUEUE_PUSH, width=2),
        Shape(QUEUE_POP, width=1),
        Shape(QUEUE_LEN, width=1),
        Shape(LIST_KEYS),
        Shape(BARRIER, width=1, tail=8),
    )
}


class Reader:
    """One client's requests, as its bytes come in. No byte is looked at twice before there is enough to get on."""

    __slots__ = ("_left", "_limits", "_need", "_shape", "_shapes", "_strings", "_taken", "rest")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._shapes = GREETING
        self.rest = bytearray()  # bytes that are not yet a whole field, or that nobody wanted to read yet
        self._need = 1  # how many of them it takes to get on
        self._shape: Shape | None = None  # the request that has begun
        self._strings: list[bytes] = []  # its whole fields so far
        self._left = 0  # how many fields are missing, -1 while their number is unknown
        self._taken = 0  # how many bytes the whole ones count for

    def read(self, data: bytes, asker: Asker, verbs: Verbs[Asker], answers: list[bytes]) -> int:
        """Has each whole request carried out by the verb of its operation, until the answers are enough for now.

        Returns how much is kept of what was not carried out: `read` goes on with it, even without more data.
        """
        rest = self.rest
        if rest:
            rest += data
            if len(rest) < self._need:
                return len(rest) + self._taken
            data = bytes(rest)
            rest.clear()
        at, end, unpack, most, owed = 0, len(data), U64.unpack_from, self._limits.key, 0
        while True:
            shape = self._shape
            if shape is None:
                if at == end:
                    return 0
                if owed > ANSWERS_AT_ONCE:
                    return self._keep(data, at, 1)
                shape = self._shape = self._shapes.get(data[at]) or self._refuse(data[at])
                self._left = -1 if shape.many else shape.width
                at += 1
            if self._left < 0:
                if end - at < 8:
                    return self._keep(data, at, 8)
                self._left = self._fields(shape, unpack(data, at)[0])
                at += 8
            while self._left:
                if end - at < 8:
                    return self._keep(data, at, 8)
                size = unpack(data, at)[0]
                stop = at + 8 + size
                if stop > end or size > most:
                    self._fits(shape, size)
                    if stop > end:
                        return self._keep(data, at, 8 + size)
                self._strings.append(data[at + 8 : stop])
                self._left -= 1
                self._taken += size + FIELD
                at = stop
            stop = at + shape.tail
            if stop > end:
                return self._keep(data, at, shape.tail)
            tail = data[at:stop]
            at = stop
            strings, self._strings, self._shape, self._taken = self._strings, [], None, 0
            if shape is HELLO:
                self._greet(tail)
            elif answer := verbs[shape.operation](asker, strings, tail):
                answers.append(answer)
                owed += len(answer)

    @property
    def greeted(self) -> bool:
        """Whether hello was said."""
        return self._shapes is SHAPES

    @property
    def sated(self) -> bool:
        """Whether more was asked than is answered at once."""
        return self._shape is None and bool(self.rest)

    def _keep(self, data: bytes, at: int, need: int) -> int:
        """Keeps the rest of the data until there are `need` bytes of it."""
        self.rest += data[at:]
        self._need = need
        return len(self.rest) + self._taken

    def _refuse(self, operation: int) -> NoReturn:
        if self._shapes is GREETING:
            raise Refused("did not begin with TCPStore's hello")
        if operation == GREET:
            raise Refused("said hello twice")
        raise Refused(f"asked for operation {operation}, which this store does not know")

    def _greet(self, magic: bytes) -> None:
        if U32.unpack(magic)[0] != MAGIC:
            raise Refused("did not begin with TCPStore's hello")
        self._shapes = SHAPES

    def _fields(self, shape: Shape, count: int) -> int:
        if count > self._limits.keys:
            raise Refused(f"asked for {count} keys in one request, and {self._limits.keys} is the most")
        return count * shape.width

    def _fits(self, shape: Shape, size: int) -> None:
        is_key = len(self._strings) % shape.width == 0
        limit = self._limits.key if is_key else self._limits.value
        if size > limit:
            raise Refused(f"sent a {'key' if is_key else 'value'} of {size} bytes, and {limit} is the most")


def framed(stored: bytes | bytearray) -> bytes:
    """A string as it is sent: its length, then itself."""
    return U64.pack(len(stored)) + stored


def number(text: bytes) -> int | None:
    """The number that a value begins with, as TCPStore counts; None if it is none of 64 bits."""
    found = NUMBER.match(text)
    if found is None or len(found[1]) > DIGITS:
        return None
    counted = int(found[1])
    return counted if -(1 << 63) <= counted < 1 << 63 else None
