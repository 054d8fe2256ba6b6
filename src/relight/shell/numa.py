"""Reads from /sys how CPUs, NUMA nodes and PCI devices belong together; `core.affinity` decides what follows.

Only what the asked mode needs is read: on a machine of 256 CPUs a full reading would cost 50 ms.
"""

from __future__ import annotations

import os

from relight.core.affinity import Binding, Cpu, parse_cpus

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def numa_nodes(root: str = "/") -> dict[int, frozenset[int]]:
    """The CPUs of each NUMA node. A kernel that shows no nodes has one, with all CPUs in it."""
    folder = os.path.join(root, "sys/devices/system/node")
    numbers = [int(name[4:]) for name in _names(folder) if name.startswith("node") and name[4:].isdecimal()]
    nodes = {number: _cpu_list(os.path.join(folder, f"node{number}/cpulist")) for number in sorted(numbers)}
    return nodes or {0: _cpu_list(os.path.join(root, "sys/devices/system/cpu/online"))}


def read_cpus(root: str, binding: Binding) -> tuple[Cpu, ...]:
    """Every CPU with what `binding` needs to know of it."""
    home = os.path.join(root, "sys/devices/system/cpu")
    match binding:
        case Binding.EXCLUSIVE:
            groups = _Groups(lambda cpu: _cpu_list(os.path.join(home, f"cpu{cpu}/topology/thread_siblings_list")))
        case Binding.CORE_COMPLEX:
            groups = _Groups(lambda cpu: _sharers_of_last_cache(os.path.join(home, f"cpu{cpu}/cache")))
        case Binding.NODE | Binding.SOCKET:
            groups = _Groups(lambda _cpu: frozenset())
    found = []
    for node, members in numa_nodes(root).items():
        for cpu in sorted(members):
            package = _package(home, cpu) if binding is Binding.SOCKET else 0
            core = groups.lowest(cpu, otherwise=cpu)
            cache = groups.lowest(cpu, otherwise=min(members))
            found.append(Cpu(cpu, node, package, core, cache))
    return tuple(found)


def node_of_device(root: str, pci: str) -> int:
    """The NUMA node of a PCI device; the first one where the firmware does not say (the kernel shows -1)."""
    text = _text(os.path.join(root, "sys/bus/pci/devices", pci, "numa_node"))
    return int(text) if text.isdecimal() else min(numa_nodes(root))


def render_devices(root: str, drivers: tuple[str, ...]) -> list[str]:
    """The PCI addresses of the devices that render by one of these drivers, in order of address."""
    folder = os.path.join(root, "sys/class/drm")
    found = set()
    for name in _names(folder):
        if name.startswith("renderD"):
            device = os.path.realpath(os.path.join(folder, name, "device"))
            if os.path.basename(os.path.realpath(os.path.join(device, "driver"))) in drivers:
                found.add(os.path.basename(device))
    return sorted(found)


class _Groups:
    """CPUs that share something, each group read once and named by its lowest CPU."""

    def __init__(self, sharers: Callable[[int], frozenset[int]]) -> None:
        self._sharers = sharers
        self._named: dict[int, int | None] = {}

    def lowest(self, cpu: int, *, otherwise: int) -> int:
        if cpu not in self._named:
            group = self._sharers(cpu)
            self._named.update(dict.fromkeys(group | {cpu}, min(group, default=None)))
        name = self._named[cpu]
        return otherwise if name is None else name


def _package(home: str, cpu: int) -> int:
    text = _text(os.path.join(home, f"cpu{cpu}/topology/physical_package_id"))
    return int(text) if text.isdecimal() else 0


def _sharers_of_last_cache(folder: str) -> frozenset[int]:
    """Who shares this CPU's highest cache; empty where a virtual machine shows no caches."""
    levels = []
    for name in _names(folder):
        index = os.path.join(folder, name)
        level = _text(os.path.join(index, "level"))
        if level.isdecimal() and _text(os.path.join(index, "type")) in ("Unified", "Data"):
            levels.append((int(level), index))
    return _cpu_list(os.path.join(max(levels)[1], "shared_cpu_list")) if levels else frozenset()


def _cpu_list(path: str) -> frozenset[int]:
    try:
        return parse_cpus(_text(path))
    except ValueError:
        return frozenset()


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""
