"""Which CPUs each worker is bound to: facts about a machine in, one CPU set for each local rank out.

The modes and their meaning are torchrun's (`--numa-binding`): local rank n belongs to accelerator n, and a
worker only ever gets CPUs that the launcher itself may use. How a fact is found out is not known here.
"""

from __future__ import annotations

import enum

from relight.core.names import UsageError, never
from relight.core.values import value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class Binding(enum.Enum):
    """What `--numa-binding` may say."""

    NODE = "node"  # all CPUs of the accelerator's NUMA node
    SOCKET = "socket"  # all CPUs of all NUMA nodes in that node's package
    EXCLUSIVE = "exclusive"  # physical cores of the node that no other worker has
    CORE_COMPLEX = "core-complex"  # one group of cores of the node that share their last-level cache


@value
class Cpu:
    """One logical CPU and what it shares; each group goes by the number of its lowest CPU."""

    number: int
    node: int
    package: int = 0
    core: int = 0
    cache: int = 0


@value
class Topology:
    """A machine as far as binding is concerned."""

    cpus: tuple[Cpu, ...]
    allowed: frozenset[int]  # the launcher's own affinity
    accelerators: tuple[int, ...]  # the NUMA node of each accelerator, in the order the workers see them


def parse_cpus(text: str) -> frozenset[int]:
    """Reads the kernel's `0-3,8`; ValueError if it is anything else."""
    numbers: set[int] = set()
    for part in text.strip().split(","):
        first, dash, last = part.strip().partition("-")
        if first:
            numbers.update(range(int(first), int(last if dash else first) + 1))
    return frozenset(numbers)


def spell_cpus(cpus: Iterable[int]) -> str:
    """Writes CPUs as the kernel does: `0-3,8`."""
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and runs[-1][1] == cpu - 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join([str(first) if first == last else f"{first}-{last}" for first, last in runs])


def parse_binding(mode: str) -> Binding:
    """The mode of that name."""
    try:
        return Binding(mode)
    except ValueError:
        known = ", ".join(binding.value for binding in Binding)
        raise UsageError(f"--numa-binding {mode} is no mode", f"--numa-binding node (one of {known})") from None


def cpu_sets(binding: Binding, topology: Topology, nproc: int) -> tuple[tuple[int, ...], ...]:
    """For each local rank the CPUs it is bound to, in order. UsageError if a worker would have none."""
    count = len(topology.accelerators)
    if nproc > count:
        raise UsageError(
            f"--numa-binding {binding.value} binds worker n to the CPUs near accelerator n, but {nproc} "
            f"workers are asked for and {count} accelerators are visible",
            f"--nproc-per-node {count}, or leave --numa-binding out" if count else "leave --numa-binding out",
        )
    return tuple(tuple(sorted(_cpus_for(binding, topology, rank))) for rank in range(nproc))


def _cpus_for(binding: Binding, topology: Topology, rank: int) -> Iterable[int]:
    node = topology.accelerators[rank]
    near = _allowed_on(topology, {node})
    if not near:
        raise UsageError(
            f"accelerator {rank} is on NUMA node {node}, of whose CPUs this process may use none "
            f"(it may use {spell_cpus(topology.allowed)})",
            "start relight with more CPUs (taskset, cpuset, --cpus-per-task), or leave --numa-binding out",
        )
    match binding:
        case Binding.NODE:
            return [cpu.number for cpu in near]
        case Binding.SOCKET:
            return [cpu.number for cpu in _allowed_on(topology, _nodes_of_package(topology, node))]
        case Binding.EXCLUSIVE:
            return _share_of_cores(near, topology, rank)
        case Binding.CORE_COMPLEX:
            return _core_complex(near, topology, rank)
        case _:
            return never(binding)


def _allowed_on(topology: Topology, nodes: set[int]) -> list[Cpu]:
    return [cpu for cpu in topology.cpus if cpu.node in nodes and cpu.number in topology.allowed]


def _nodes_of_package(topology: Topology, node: int) -> set[int]:
    """By nodes, not by package number: a virtual machine may show each CPU of a node as its own package."""
    packages = {cpu.package for cpu in topology.cpus if cpu.node == node}
    return {cpu.node for cpu in topology.cpus if cpu.package in packages}


def _share_of_cores(near: list[Cpu], topology: Topology, rank: int) -> list[int]:
    neighbours, place = _neighbours(topology, rank)
    cores = sorted(_grouped(near, lambda cpu: cpu.core).items())
    if len(cores) < neighbours:
        raise UsageError(
            f"--numa-binding exclusive: NUMA node {topology.accelerators[rank]} has {len(cores)} physical "
            f"cores that this process may use, fewer than its {neighbours} accelerators",
            "--numa-binding node",
        )
    each, left_over = divmod(len(cores), neighbours)
    start = place * each + min(place, left_over)
    mine = cores[start : start + each + (place < left_over)]
    return [number for _, numbers in mine for number in numbers]


def _core_complex(near: list[Cpu], topology: Topology, rank: int) -> list[int]:
    _, place = _neighbours(topology, rank)
    complexes = sorted(_grouped(near, lambda cpu: cpu.cache).items(), key=lambda group: (-len(group[1]), group[0]))
    return complexes[place % len(complexes)][1]


def _neighbours(topology: Topology, rank: int) -> tuple[int, int]:
    """How many accelerators share this one's node, and the place of this one among them."""
    node = topology.accelerators[rank]
    return topology.accelerators.count(node), topology.accelerators[:rank].count(node)


def _grouped(cpus: list[Cpu], key: Callable[[Cpu], int]) -> dict[int, list[int]]:
    groups: dict[int, list[int]] = {}
    for cpu in cpus:
        groups.setdefault(key(cpu), []).append(cpu.number)
    return groups
