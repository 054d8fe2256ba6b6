"""Which CPUs each worker gets: every mode, on machines drawn by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relight.core.affinity import (
    Binding,
    Cpu,
    Topology,
    cpu_sets,
    parse_binding,
    parse_cpus,
    spell_cpus,
)
from relight.core.names import UsageError


def two_sockets(accelerators: tuple[int, ...], allowed: frozenset[int] | None = None) -> Topology:
    """2 packages of 2 NUMA nodes, 4 cores each, 2 threads a core (n and n + 16), a cache for every 2 cores."""
    cpus = tuple(
        Cpu(number, node=core // 4, package=core // 8, core=core, cache=core // 2 * 2)
        for number in range(32)
        for core in (number % 16,)
    )
    return Topology(cpus, frozenset(range(32)) if allowed is None else allowed, accelerators)


ON_EVERY_NODE = (0, 0, 1, 1, 2, 2, 3, 3)
TWO_CORES_EACH = [f"{core}-{core + 1},{core + 16}-{core + 17}" for core in range(0, 16, 2)]


@pytest.mark.parametrize(
    ("binding", "expected"),
    [
        (Binding.NODE, ["0-3,16-19"] * 2 + ["4-7,20-23"] * 2 + ["8-11,24-27"] * 2 + ["12-15,28-31"] * 2),
        (Binding.SOCKET, ["0-7,16-23"] * 4 + ["8-15,24-31"] * 4),
        (Binding.EXCLUSIVE, TWO_CORES_EACH),
        (Binding.CORE_COMPLEX, TWO_CORES_EACH),
    ],
)
def test_each_mode_on_two_sockets(binding: Binding, expected: list[str]) -> None:
    sets = cpu_sets(binding, two_sockets(ON_EVERY_NODE), 8)
    assert [spell_cpus(cpus) for cpus in sets] == expected


def test_accelerators_need_not_come_in_the_order_of_their_nodes() -> None:
    sets = cpu_sets(Binding.EXCLUSIVE, two_sockets((3, 0, 3, 0)), 4)
    assert [spell_cpus(cpus) for cpus in sets] == ["12-13,28-29", "0-1,16-17", "14-15,30-31", "2-3,18-19"]


def test_fewer_workers_than_accelerators_share_as_if_all_ran() -> None:
    assert cpu_sets(Binding.EXCLUSIVE, two_sockets((0, 0)), 1) == ((0, 1, 16, 17),)


def test_cores_that_do_not_divide_go_to_the_lowest_ranks() -> None:
    sets = cpu_sets(Binding.EXCLUSIVE, two_sockets((0, 0, 0)), 3)
    assert [spell_cpus(cpus) for cpus in sets] == ["0-1,16-17", "2,18", "3,19"]


def test_complexes_are_dealt_largest_first_and_round_robin() -> None:
    without_0_and_16 = frozenset(range(32)) - {0, 16}
    sets = cpu_sets(Binding.CORE_COMPLEX, two_sockets((0, 0, 0), without_0_and_16), 3)
    assert [spell_cpus(cpus) for cpus in sets] == ["2-3,18-19", "1,17", "2-3,18-19"]


def test_as_many_accelerators_as_cores_get_one_core_each() -> None:
    sets = cpu_sets(Binding.EXCLUSIVE, two_sockets((0, 0, 0, 0)), 4)
    assert [spell_cpus(cpus) for cpus in sets] == ["0,16", "1,17", "2,18", "3,19"]


def test_complexes_of_one_size_are_dealt_by_their_own_numbers() -> None:
    sets = cpu_sets(Binding.CORE_COMPLEX, two_sockets((0, 0), frozenset({2, 3, 16, 17})), 2)
    assert [spell_cpus(cpus) for cpus in sets] == ["16-17", "2-3"]


def test_only_allowed_cpus_are_given() -> None:
    sets = cpu_sets(Binding.SOCKET, two_sockets((0,), frozenset({1, 6, 9})), 1)
    assert sets == ((1, 6),)


def test_a_node_whose_cpus_each_call_themselves_a_package_stays_whole() -> None:
    topology = Topology(tuple(Cpu(n, node=0, package=n) for n in range(4)), frozenset(range(4)), (0,))
    assert cpu_sets(Binding.SOCKET, topology, 1) == ((0, 1, 2, 3),)


@pytest.mark.parametrize(
    ("binding", "topology", "nproc", "what", "remedy"),
    [
        (
            Binding.NODE,
            two_sockets((0, 1)),
            3,
            "--numa-binding node binds worker n to the CPUs near accelerator n, "
            "but 3 workers are asked for and 2 accelerators are visible",
            "--nproc-per-node 2, or leave --numa-binding out",
        ),
        (
            Binding.NODE,
            two_sockets(()),
            1,
            "--numa-binding node binds worker n to the CPUs near accelerator n, "
            "but 1 workers are asked for and 0 accelerators are visible",
            "leave --numa-binding out",
        ),
        (
            Binding.NODE,
            two_sockets((0, 3), frozenset(range(8))),
            2,
            "accelerator 1 is on NUMA node 3, of whose CPUs this process may use none (it may use 0-7)",
            "start relight with more CPUs (taskset, cpuset, --cpus-per-task), or leave --numa-binding out",
        ),
        (
            Binding.EXCLUSIVE,
            two_sockets((0, 0, 0, 0, 0)),
            5,
            "--numa-binding exclusive: NUMA node 0 has 4 physical cores that this process may use, "
            "fewer than its 5 accelerators",
            "--numa-binding node",
        ),
    ],
)
def test_what_cannot_be_bound_is_refused_with_a_remedy(
    binding: Binding, topology: Topology, nproc: int, what: str, remedy: str
) -> None:
    with pytest.raises(UsageError) as refused:
        cpu_sets(binding, topology, nproc)
    assert (refused.value.what, refused.value.remedy) == (what, remedy)


def test_modes_go_by_torchruns_names() -> None:
    assert [parse_binding(mode) for mode in ("node", "socket", "exclusive", "core-complex")] == list(Binding)
    with pytest.raises(UsageError, match="--numa-binding core is no mode") as refused:
        parse_binding("core")
    assert refused.value.remedy == "--numa-binding node (one of node, socket, exclusive, core-complex)"


@pytest.mark.parametrize(
    ("text", "cpus"), [("0-3,8\n", {0, 1, 2, 3, 8}), ("5", {5}), ("", set()), (" 1 , 4-5 ", {1, 4, 5})]
)
def test_the_kernels_lists_are_read(text: str, cpus: set[int]) -> None:
    assert parse_cpus(text) == cpus


def test_anything_else_is_not_a_list_of_cpus() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        parse_cpus("all")


@given(st.frozensets(st.integers(0, 300)))
def test_lists_of_cpus_survive_writing_and_reading(cpus: frozenset[int]) -> None:
    assert parse_cpus(spell_cpus(cpus)) == cpus


@given(
    accelerators=st.lists(st.integers(0, 3), min_size=1, max_size=8),
    allowed=st.frozensets(st.integers(0, 31), min_size=1),
    binding=st.sampled_from(list(Binding)),
)
def test_a_worker_gets_some_allowed_cpus_or_the_user_a_sentence(
    accelerators: list[int], allowed: frozenset[int], binding: Binding
) -> None:
    topology = two_sockets(tuple(accelerators), allowed)
    try:
        sets = cpu_sets(binding, topology, len(accelerators))
    except UsageError as refused:
        assert refused.what and refused.remedy
        return
    assert all(cpus and allowed.issuperset(cpus) for cpus in sets)
    if binding is Binding.EXCLUSIVE:
        given_out = [cpu for cpus in sets for cpu in cpus]
        assert len(given_out) == len(set(given_out))
