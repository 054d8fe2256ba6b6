"""What the kernel's counters prove about memory."""

from __future__ import annotations

import pytest

from relight.core.evidence import MemoryCounters, MemoryGroup, OomEvidence, out_of_memory, spell_bytes

GIB = 1 << 30


def counters(*groups: MemoryGroup, machine: int = 0) -> MemoryCounters:
    return MemoryCounters(groups, machine)


def test_nothing_counted_proves_nothing() -> None:
    group = MemoryGroup("/job", 3, 5)
    assert out_of_memory(counters(group, machine=7), counters(group, machine=7)) is None


def test_a_kill_in_the_own_cgroup_names_its_limit() -> None:
    before = counters(MemoryGroup("/job", 1, 0), MemoryGroup("/", 1))
    after = counters(MemoryGroup("/job", 2, 1, 2 * GIB, 2 * GIB), MemoryGroup("/", 2), machine=1)
    found = out_of_memory(before, after)
    assert found == OomEvidence(1, "in this cgroup", 2 * GIB, 2 * GIB)
    assert str(found) == ("the kernel counted 1 out-of-memory kill in this cgroup (limit 2.0 GiB, peak 2.0 GiB)")


def test_the_limit_named_is_the_one_that_was_hit() -> None:
    before = counters(MemoryGroup("/pod/job", 0), MemoryGroup("/pod", 0, 4))
    after = counters(MemoryGroup("/pod/job", 2, 0, None, GIB), MemoryGroup("/pod", 2, 5, 4 * GIB, 4 * GIB), machine=2)
    found = out_of_memory(before, after)
    assert found == OomEvidence(2, "in this cgroup", 4 * GIB, 4 * GIB)


def test_a_kill_further_up_says_so() -> None:
    before = counters(MemoryGroup("/pod/job", 0, 1), MemoryGroup("/pod", 0))
    after = counters(MemoryGroup("/pod/job", 0, 2, 5, 5), MemoryGroup("/pod", 1, 0, GIB))
    assert str(out_of_memory(before, after)) == (
        "the kernel counted 1 out-of-memory kill in the cgroup /pod above this one (limit 1.0 GiB)"
    )


def test_the_whole_machine_is_the_last_resort() -> None:
    found = out_of_memory(counters(MemoryGroup("/job", 0), machine=1), counters(MemoryGroup("/job", 0), machine=3))
    assert str(found) == "the kernel counted 2 out-of-memory kills on this machine"


def test_a_cgroup_that_could_not_be_read_before_proves_nothing() -> None:
    assert out_of_memory(counters(), counters(MemoryGroup("/job", 9, 9))) is None


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1 << 20, "1.0 MiB"),
        (1536 << 20, "1.5 GiB"),
        (2 << 40, "2.0 TiB"),
        (1000 << 40, "1000.0 TiB"),
    ],
)
def test_sizes_are_spelled_for_people(size: int, text: str) -> None:
    assert spell_bytes(size) == text
