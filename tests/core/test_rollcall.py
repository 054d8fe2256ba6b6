"""Who is missing, in one sentence, and when that is asked."""

from __future__ import annotations

import struct

import pytest

from relight.core.rollcall import AFTER_S, RollCall, absentees, arrived, counted
from relight.core.storewire import MAGIC, framed
from relight.core.tcpstore import WorkerStore


@pytest.mark.parametrize(
    ("world", "arrived", "counted", "sentence"),
    [
        (4, frozenset(), 0, None),
        (4, frozenset({0, 1, 2, 3}), 4, None),
        (4, frozenset(), 4, None),
        (4, frozenset({0, 1, 3}), 3, "after 30 s, rank 2 has not reached init_process_group; the others wait there"),
        (4, frozenset({0}), 1, "after 30 s, ranks 1, 2, 3 have not reached init_process_group; the others wait there"),
        (4, frozenset(), 3, "after 30 s, 1 of 4 workers has not reached init_process_group; the others wait there"),
        (4, frozenset(), 1, "after 30 s, 3 of 4 workers have not reached init_process_group; the others wait there"),
        (
            14,
            frozenset({0, 1}),
            2,
            "after 30 s, ranks 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13 have not reached "
            "init_process_group; the others wait there",
        ),
        (
            15,
            frozenset({0, 1}),
            2,
            "after 30 s, ranks 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13 and 1 more have not reached "
            "init_process_group; the others wait there",
        ),
        (
            20,
            frozenset({0, 1}),
            2,
            "after 30 s, ranks 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13 and 6 more have not reached "
            "init_process_group; the others wait there",
        ),
    ],
)
def test_the_sentence_names_who_is_missing(
    world: int, arrived: frozenset[int], counted: int, sentence: str | None
) -> None:
    assert absentees(world, arrived, counted, 30.0) == sentence


SOON, LATE = AFTER_S


def holding(*pairs: tuple[bytes, bytes]) -> WorkerStore:
    """A store in which workers have set these keys."""
    store = WorkerStore()
    store.joined(1)
    store.received(1, b"\0" + struct.pack("<I", MAGIC))
    for key, stored in pairs:
        store.received(1, b"\1" + framed(key) + framed(stored))
    return store


def of_ranks(*ranks: int, device: bytes = b"cpu") -> WorkerStore:
    return holding(*[(b"/default_pg/0//%s//0/%d" % (device, rank), b"address") for rank in ranks])


def test_who_has_arrived_is_read_from_the_keys_of_init_process_group() -> None:
    assert arrived(4, holding()) == frozenset()
    assert arrived(4, of_ranks(0, 3, 9)) == {0, 3}
    assert arrived(4, of_ranks(1, device=b"cuda")) == {1}


def test_how_many_have_come_is_read_from_their_counter() -> None:
    assert counted(holding()) == 0
    assert counted(holding((b"init/", b"3"))) == 3
    assert counted(holding((b"init/", b"nonsense"))) == 0


def test_it_is_asked_twice_in_a_round() -> None:
    call = RollCall(2, 100.0)
    store = of_ranks(1)
    assert call.wake_at() == 100.0 + SOON
    assert call.call(100.0 + SOON - 0.1, store) is None
    assert call.call(100.0 + SOON, store) == (
        "after 30 s, rank 0 has not reached init_process_group; the others wait there"
    )
    assert call.call(100.0 + SOON, store) is None
    assert call.wake_at() == 100.0 + LATE
    assert call.call(101.0 + LATE, store) == (
        "after 301 s, rank 0 has not reached init_process_group; the others wait there"
    )
    assert call.wake_at() is None
    assert call.call(1e9, store) is None


def test_who_is_not_known_by_name_is_counted() -> None:
    assert RollCall(4, 100.0).call(100.0 + SOON, holding((b"init/", b"3"))) == (
        "after 30 s, 1 of 4 workers has not reached init_process_group; the others wait there"
    )


def test_nobody_is_missed_who_was_stopped() -> None:
    call = RollCall(2, 100.0)
    call.paused(1000.0)
    assert call.wake_at() == 1100.0 + SOON
    assert call.call(1100.0, of_ranks(1)) is None
    sentence = call.call(1100.0 + SOON, of_ranks(1))
    assert sentence is not None and sentence.startswith("after 30 s")
