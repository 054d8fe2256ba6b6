"""The workers' store: PyTorch's TCPStore protocol, decided without a socket.

It owns the keys, the queues and who waits for what; it knows nothing of descriptors or clocks. Bytes of many
clients go in, bytes for many clients come out. Where PyTorch's own server was seen to answer otherwise, it is on
purpose: a client that sends nonsense is always closed, a request is carried out whole or not at all, a COMPARE_SET
that stores nothing wakes nobody, a client's second WAIT takes the place of its first, and memory has limits.
"""

from __future__ import annotations

import re
import struct
from collections import deque

from relight.core.values import value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Verb = Callable[["WorkerStore", "_Client", list[bytes], bytes], bytes]

MAGIC = 0x3C85F7CE
YES, NO, CANCELLED = b"\0", b"\1", b"\1"
NUMBER = re.compile(rb"[\t-\r ]*([+-]?[0-9]+)")  # as C++ reads it: leading blanks, digits, the rest ignored
DIGITS = 1000  # a longer number is out of range whatever it says, and slow to read
ENTRY = 200  # what Python spends on a key, beside its bytes
FIELD = 60
ANSWERS_AT_ONCE = 1 << 20
# Where `init_process_group` publishes a rank's address; what NCCL publishes does not name a rank.
ARRIVALS = ("/default_pg/0//cpu//0/%d", "/default_pg/0//cuda//0/%d")

_U64 = struct.Struct("<Q")
_I64 = struct.Struct("<q")
_U32 = struct.Struct("<I")


@value
class Limits:
    """How large things may be. The first three are PyTorch's; the others keep a flood out of the agent's memory."""

    key: int = 8 << 10
    value: int = 8 << 20
    keys: int = 128 << 10
    answer: int = 256 << 20
    memory: int = 1 << 30


class Send:
    """Bytes for a client. A plain class: one is made for every answer, and speed is what this store is for."""

    __match_args__ = ("client", "data")
    __slots__ = ("client", "data")

    def __init__(self, client: int, data: bytes) -> None:
        self.client = client
        self.data = data

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Send) and (self.client, self.data) == (other.client, other.data)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Send({self.client}, {self.data!r})"


@value
class Close:
    """The store has forgotten this client; `why` is a sentence."""

    client: int
    why: str


@value
class More:
    """This client has asked for more than is answered at once: once it took its answers, call `received` again."""

    client: int


class _Refused(Exception):
    """A request that closes its client; the text says why."""


class _Client:
    """One connection: what it has sent of a request, and what it waits for."""

    __slots__ = (
        "address",
        "answers",
        "awaits",
        "barrier",
        "greeted",
        "held",
        "left",
        "need",
        "number",
        "owed",
        "rest",
        "shape",
        "strings",
        "taken",
    )

    def __init__(self, number: int, address: str) -> None:
        self.number = number
        self.address = address
        self.greeted = False
        self.rest = bytearray()  # bytes that are not yet a whole field
        self.need = 1  # how many it takes to get on: nothing is looked at twice before they are there
        self.shape: _Shape | None = None  # the request that has begun
        self.strings: list[bytes] = []  # its whole fields so far
        self.left = 0  # how many fields are missing, -1 while their number is unknown
        self.taken = 0
        self.held = 0  # what `rest` and `strings` count for in the store's memory
        self.answers: list[bytes] = []
        self.owed = 0
        self.awaits: set[bytes] = set()
        self.barrier: bytes | None = None


class WorkerStore:
    """One key space and its clients, numbered by the caller."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._clients: dict[int, _Client] = {}
        self._empty()

    def joined(self, client: int, address: str) -> None:
        """A client has connected from `address`."""
        self._clients[client] = _Client(client, address)

    def left(self, client: int) -> None:
        """A client's connection is gone; what it stored stays."""
        peer = self._clients.pop(client, None)
        if peer is not None:
            self._stop_waiting(peer)
            self._held -= peer.held

    def empty(self) -> list[Close]:
        """Forgets every key and every client: a new round starts with nothing of the round before."""
        closed = [Close(client, "a new round has begun") for client in self._clients]
        self._clients.clear()
        self._empty()
        return closed

    def received(self, client: int, chunk: bytes) -> list[Send | Close | More]:
        """What a client's bytes lead to, for it and for those it wakes. No bytes: carry on where `More` was said."""
        peer = self._clients.get(client)
        if peer is None:
            return []
        rest = peer.rest
        if rest:
            rest += chunk
            if len(rest) < peer.need:
                return self._hold(peer, len(chunk))
            chunk = bytes(rest)
            rest.clear()
        self._held -= peer.held
        peer.held = 0
        try:
            at = self._answer(peer, chunk)
        except _Refused as refused:
            self.left(client)
            return [*self._flush(peer), Close(client, str(refused))]
        if at == len(chunk) and peer.shape is None:
            return self._flush(peer)
        rest += chunk[at:]
        kept = self._hold(peer, len(rest) + peer.taken)
        more = [More(client)] if peer.owed > ANSWERS_AT_ONCE and not kept else []
        return [*self._flush(peer), *kept, *more]

    def arrived(self, world_size: int) -> frozenset[int]:
        """The ranks that are known to be in `init_process_group`, or past it.

        Inferred from the keys under which each rank publishes its address for gloo. A rank in the answer has
        surely arrived. A rank that is not may use NCCL alone, which names no ranks: `counted` still counts it.
        """
        stored = self._values
        return frozenset(rank for rank in range(world_size) if any((key % rank).encode() in stored for key in ARRIVALS))

    @property
    def counted(self) -> int:
        """How many workers have said hello, by the counter that `env://` adds to; not who they are.

        A program's own TCPStore clients to the same address may add to it too.
        """
        return _number(bytes(self._values.get(b"init/", b"0"))) or 0

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where each connected client comes from, in the order in which they came."""
        return tuple([peer.address for peer in self._clients.values()])

    @property
    def held(self) -> int:
        """How many bytes this store counts: keys, values, waiting clients, and requests that are not whole yet."""
        return self._held

    def _empty(self) -> None:
        self._values: dict[bytes, bytes | bytearray] = {}
        self._queues: dict[bytes, deque[bytes]] = {}  # none of them is empty
        self._waiting: dict[bytes, dict[int, _Client]] = {}
        self._barriers: dict[bytes, dict[int, _Client]] = {}
        self._woken: list[_Client] = []
        self._held = 0

    def _hold(self, peer: _Client, size: int) -> list[Send | Close | More]:
        """Counts bytes of a request that is not whole yet."""
        peer.held += size
        self._held += size
        if self._held <= self.limits.memory:
            return []
        self.left(peer.number)
        return [Close(peer.number, self._full())]

    def _flush(self, peer: _Client) -> list[Send | Close | More]:
        """Every answer since the last flush, the asking client's first."""
        said: list[Send | Close | More] = []
        answers = peer.answers
        if answers:
            said.append(Send(peer.number, answers[0] if len(answers) == 1 else b"".join(answers)))
            peer.answers = []
            peer.owed = 0
        if self._woken:
            for other in self._woken:
                if other.answers:  # the asking client may have woken itself, and then has its answer
                    said.append(Send(other.number, b"".join(other.answers)))
                    other.answers = []
            self._woken.clear()
        return said

    # Reading: an operation, perhaps a count, strings, perhaps a number.

    def _answer(self, peer: _Client, data: bytes) -> int:
        """Carries out every whole request in `data`; returns how far it came."""
        at, end, unpack = 0, len(data), _U64.unpack_from
        while True:
            shape = peer.shape
            if shape is None:
                if at == end or peer.owed > ANSWERS_AT_ONCE:
                    peer.need = 1
                    return at
                shape = self._begin(peer, data[at])
                at += 1
            if peer.left < 0:
                if end - at < 8:
                    peer.need = 8
                    return at
                peer.left = self._fields(shape, unpack(data, at)[0])
                at += 8
            while peer.left:
                if end - at < 8:
                    peer.need = 8
                    return at
                size = unpack(data, at)[0]
                stop = at + 8 + size
                if stop > end or size > self.limits.key:
                    self._fits(peer, shape, size)
                    if stop > end:
                        peer.need = 8 + size
                        return at
                peer.strings.append(data[at + 8 : stop])
                peer.left -= 1
                peer.taken += size + FIELD
                at = stop
            if end - at < shape.tail:
                peer.need = shape.tail
                return at
            tail = data[at : at + shape.tail]
            at += shape.tail
            strings, peer.strings, peer.shape = peer.strings, [], None
            answer = shape.verb(self, peer, strings, tail)
            if answer:
                peer.answers.append(answer)
                peer.owed += len(answer)

    def _begin(self, peer: _Client, operation: int) -> _Shape:
        if (operation == 0) == peer.greeted:
            raise _Refused("said hello twice" if peer.greeted else "did not begin with TCPStore's hello")
        shape = SHAPES.get(operation)
        if shape is None:
            raise _Refused(f"asked for operation {operation}, which this store does not know")
        peer.shape = shape
        peer.left = -1 if shape.many else shape.width
        peer.taken = 0
        return shape

    def _fields(self, shape: _Shape, count: int) -> int:
        if count > self.limits.keys:
            raise _Refused(f"asked for {count} keys in one request, and {self.limits.keys} is the most")
        return count * shape.width

    def _fits(self, peer: _Client, shape: _Shape, size: int) -> None:
        is_key = len(peer.strings) % shape.width == 0
        limit = self.limits.key if is_key else self.limits.value
        if size > limit:
            raise _Refused(f"sent a {'key' if is_key else 'value'} of {size} bytes, and {limit} is the most")

    # Memory and waiting.

    def _full(self) -> str:
        return f"sent more than this store may hold, {self.limits.memory} bytes in all"

    def _room(self, growth: int) -> None:
        if self._held + growth > self.limits.memory:
            raise _Refused(self._full())

    def _put(self, key: bytes, stored: bytes) -> None:
        old = self._values.get(key)
        growth = len(stored) - len(old) if old is not None else len(key) + len(stored) + ENTRY
        self._room(growth)
        self._held += growth
        self._values[key] = stored
        if key in self._waiting:
            for peer in list(self._waiting[key].values()):
                self._appeared(peer, key)

    def _there(self, key: bytes) -> bool:
        return key in self._values or key in self._queues

    def _appeared(self, peer: _Client, key: bytes) -> None:
        """Ticks `key` off a client's list. Once ticked it counts, even if it is deleted before the others come."""
        peer.awaits.discard(key)
        self._unlist(self._waiting, key, peer)
        if not peer.awaits:
            self._wake(peer)

    def _wake(self, peer: _Client) -> None:
        peer.answers.append(YES)
        self._woken.append(peer)

    def _list(self, lists: dict[bytes, dict[int, _Client]], key: bytes, peer: _Client) -> None:
        lists.setdefault(key, {})[peer.number] = peer
        self._held += len(key) + ENTRY

    def _unlist(self, lists: dict[bytes, dict[int, _Client]], key: bytes, peer: _Client) -> None:
        listed = lists[key]
        del listed[peer.number]
        self._held -= len(key) + ENTRY
        if not listed:
            del lists[key]

    def _stop_waiting(self, peer: _Client) -> None:
        for key in peer.awaits:
            self._unlist(self._waiting, key, peer)
        peer.awaits = set()
        if peer.barrier is not None:
            self._unlist(self._barriers, peer.barrier, peer)
            peer.barrier = None

    # The verbs, each from the fields of one whole request to its answer.

    def _validate(self, peer: _Client, _strings: list[bytes], tail: bytes) -> bytes:
        if _U32.unpack(tail)[0] != MAGIC:
            raise _Refused("did not begin with TCPStore's hello")
        peer.greeted = True
        return b""

    def _ping(self, _peer: _Client, _strings: list[bytes], tail: bytes) -> bytes:
        return tail

    def _set(self, _peer: _Client, strings: list[bytes], _tail: bytes) -> bytes:
        self._put(strings[0], strings[1])
        return b""

    def _multi_set(self, _peer: _Client, strings: list[bytes], _tail: bytes) -> bytes:
        self._room(sum(map(len, strings)) + ENTRY * len(strings))  # all of it or nothing
        for key, stored in zip(strings[::2], strings[1::2], strict=True):
            self._put(key, stored)
        return b""

    def _compare_set(self, _peer: _Client, strings: list[bytes], _tail: bytes) -> bytes:
        key, expected, desired = strings
        old = self._values.get(key)
        if old is None and expected:
            return _framed(expected)
        if old is None or old == expected:
            self._put(key, desired)
            return _framed(desired)
        return _framed(old)

    def _get(self, _peer: _Client, strings: list[bytes], _tail: bytes) -> bytes:
        stored = self._values.get(strings[0], b"")
        if len(stored) > self.limits.answer:
            return self._answerable([stored])
        return _U64.pack(len(stored)) + stored

    def _multi_get(self, _peer: _Client, strings: list[bytes], _tail: bytes) -> bytes:
        return self._answerable([self._values.get(key, b"") for key in strings])

    def _answerable(self, found: list[bytes | bytearray]) -> bytes:
        size = sum(map(len, found)) + 8 * len(found)
        if size > self.limits.answer:
            raise _Refused(f"asked for {size} bytes in one answer, and {self.limits.answer} is the most")
        return b"".join(map(_framed, found))

    def _append(self, _peer: _Client, strings: list[bytes], _tail: bytes) -> bytes:
        key, added = strings
        old = self._values.get(key)
        if old is None:
            self._put(key, added)
            return b""
        self._room(len(added))
        self._held += len(added)
        if isinstance(old, bytes):  # so that many small additions to a large value do not copy it each time
            old = self._values[key] = bytearray(old)
        old += added
        return b""

    def _add(self, _peer: _Client, strings: list[bytes], tail: bytes) -> bytes:
        return _I64.pack(self._count(strings[0], _I64.unpack(tail)[0]))

    def _count(self, key: bytes, delta: int) -> int:
        old = _number(bytes(self._values.get(key, b"0")))
        if old is None:
            raise _Refused("counted on a key whose value is not a whole number of 64 bits")
        total = (old + delta + (1 << 63)) % (1 << 64) - (1 << 63)
        self._put(key, b"%d" % total)
        return total

    def _check(self, _peer: _Client, strings: list[bytes], _tail: bytes) -> bytes:
        return YES if all(map(self._there, strings)) else NO

    def _wait(self, peer: _Client, strings: list[bytes], _tail: bytes) -> bytes:
        self._stop_waiting(peer)
        missing = {key for key in strings if not self._there(key)}
        if not missing:
            return YES
        self._room(sum(map(len, missing)) + ENTRY * len(missing))
        for key in missing:
            self._list(self._waiting, key, peer)
        peer.awaits = missing
        return b""

    def _cancel_wait(self, peer: _Client, _strings: list[bytes], _tail: bytes) -> bytes:
        self._stop_waiting(peer)
        return CANCELLED

    def _barrier(self, peer: _Client, strings: list[bytes], tail: bytes) -> bytes:
        """Whoever comes as the n-th or later passes, and with it all who wait; the count stays under the key."""
        key = strings[0]
        self._stop_waiting(peer)
        self._room(len(key) + ENTRY)
        if self._count(key, 1) < _I64.unpack(tail)[0]:
            self._list(self._barriers, key, peer)
            peer.barrier = key
            return b""
        for other in list(self._barriers.get(key, {}).values()):
            self._stop_waiting(other)
            self._wake(other)
        return YES

    def _get_num_keys(self, _peer: _Client, _strings: list[bytes], _tail: bytes) -> bytes:
        return _I64.pack(len(self._values))

    def _list_keys(self, _peer: _Client, _strings: list[bytes], _tail: bytes) -> bytes:
        return _U64.pack(len(self._values)) + self._answerable(list(self._values))

    def _delete_key(self, _peer: _Client, strings: list[bytes], _tail: bytes) -> bytes:
        old = self._values.pop(strings[0], None)
        if old is None:
            return _I64.pack(0)
        self._held -= len(strings[0]) + len(old) + ENTRY
        return _I64.pack(1)

    def _queue_push(self, _peer: _Client, strings: list[bytes], _tail: bytes) -> bytes:
        key, pushed = strings
        self._room(len(key) + len(pushed) + ENTRY)
        self._held += len(key) + len(pushed) + ENTRY
        self._queues.setdefault(key, deque()).append(pushed)
        if key in self._waiting:  # one thing to take wakes one who waits: the first
            self._appeared(next(iter(self._waiting[key].values())), key)
        return b""

    def _queue_pop(self, _peer: _Client, strings: list[bytes], _tail: bytes) -> bytes:
        """How many things there were to take, then the first of them, if any."""
        key = strings[0]
        queue = self._queues.get(key)
        if queue is None:
            return _I64.pack(0)
        popped = queue.popleft()
        self._held -= len(key) + len(popped) + ENTRY
        if not queue:
            del self._queues[key]
        return _I64.pack(len(queue) + 1) + _framed(popped)

    def _queue_len(self, _peer: _Client, strings: list[bytes], _tail: bytes) -> bytes:
        return _I64.pack(len(self._queues.get(strings[0], ())))


def _framed(stored: bytes | bytearray) -> bytes:
    return _U64.pack(len(stored)) + stored


def _number(text: bytes) -> int | None:
    found = NUMBER.match(text)
    if found is None or len(found[1]) > DIGITS:
        return None
    number = int(found[1])
    return number if -(1 << 63) <= number < 1 << 63 else None


class _Shape:
    """What follows an operation's number: how many strings (a key, then values), or a list of them; then a tail."""

    __slots__ = ("many", "tail", "verb", "width")

    def __init__(self, verb: Verb, *, width: int = 0, many: bool = False, tail: int = 0) -> None:
        self.verb = verb
        self.width = width
        self.many = many
        self.tail = tail


SHAPES = {
    0: _Shape(WorkerStore._validate, tail=4),
    1: _Shape(WorkerStore._set, width=2),
    2: _Shape(WorkerStore._compare_set, width=3),
    3: _Shape(WorkerStore._get, width=1),
    4: _Shape(WorkerStore._add, width=1, tail=8),
    5: _Shape(WorkerStore._check, width=1, many=True),
    6: _Shape(WorkerStore._wait, width=1, many=True),
    7: _Shape(WorkerStore._get_num_keys),
    8: _Shape(WorkerStore._delete_key, width=1),
    9: _Shape(WorkerStore._append, width=2),
    10: _Shape(WorkerStore._multi_get, width=1, many=True),
    11: _Shape(WorkerStore._multi_set, width=2, many=True),
    12: _Shape(WorkerStore._cancel_wait),
    13: _Shape(WorkerStore._ping, tail=4),
    14: _Shape(WorkerStore._queue_push, width=2),
    15: _Shape(WorkerStore._queue_pop, width=1),
    16: _Shape(WorkerStore._queue_len, width=1),
    17: _Shape(WorkerStore._list_keys),
    18: _Shape(WorkerStore._barrier, width=1, tail=8),
}
