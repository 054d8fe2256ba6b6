"""The kernel's counters of out-of-memory kills: cgroup v2, cgroup v1, and the whole machine.

Reads files only, never writes. What a file does not say counts as nothing; a missing or odd file is never an
error, because evidence is a courtesy and must not hurt the agent.
"""

from __future__ import annotations

import os

from relight.core.evidence import MemoryCounters, MemoryGroup, OomEvidence, out_of_memory

_NO_LIMIT = 1 << 62  # cgroup v1 says "none" with the largest number of whole pages


class OomWatch:
    """Remembers the counters when told to, and tells what has been added since."""

    def __init__(self, root: str = "/") -> None:
        self._root = root
        self._groups = memory_groups(root)
        self._before: MemoryCounters | None = None

    def since(self) -> OomEvidence | None:
        """What the kernel killed since the last `remember()`."""
        return out_of_memory(self._before, self._now(sizes=True)) if self._before else None

    def remember(self) -> None:
        """Starts counting anew, so that a later failure is not explained by an earlier kill."""
        self._before = self._now(sizes=False)

    def _now(self, *, sizes: bool) -> MemoryCounters:
        groups = [_read_group(version, folder, sizes=sizes) for version, folder in self._groups]
        machine = _counters(os.path.join(self._root, "proc/vmstat")).get("oom_kill", 0)
        return MemoryCounters(tuple(group for group in groups if group is not None), machine)


def memory_groups(root: str = "/") -> tuple[tuple[int, str], ...]:
    """This process's memory cgroup and the visible ones above it: (version, folder), innermost first."""
    own = _own_paths(_read(os.path.join(root, "proc/self/cgroup")))
    found: list[tuple[int, str]] = []
    for version, mounted_from, mount_point in _mounts(_read(os.path.join(root, "proc/self/mountinfo"))):
        path = own.get(version)
        if path is not None:
            top = os.path.join(root, mount_point.lstrip("/"))
            found += [(version, folder) for folder in _upwards(top, _below(path, mounted_from))]
    return tuple(found)


def memory_limit(root: str = "/") -> int | None:
    """The tightest memory limit above this process, None if there is none."""
    groups = [_read_group(version, folder, sizes=True) for version, folder in memory_groups(root)]
    limits = [group.limit_bytes for group in groups if group is not None and group.limit_bytes is not None]
    return min(limits, default=None)


def memory_total(root: str = "/") -> int | None:
    """The machine's memory in bytes."""
    for line in _read(os.path.join(root, "proc/meminfo")).splitlines():
        name, _, rest = line.partition(":")
        if name == "MemTotal":
            kib = _number(rest.split()[0] if rest.split() else "")
            return None if kib is None else kib * 1024
    return None


def _own_paths(text: str) -> dict[int, str]:
    """Which cgroup this process is in, for version 2 and for version 1's memory controller."""
    paths: dict[int, str] = {}
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            paths[2] = path
        elif "memory" in controllers.split(","):
            paths[1] = path
    return paths


def _mounts(text: str) -> list[tuple[int, str, str]]:
    """The mounted hierarchies that may count memory: (version, what of it is mounted, where)."""
    found = []
    for line in text.splitlines():
        if " - cgroup" not in line:
            continue
        left, _, right = line.partition(" - ")
        mount, filesystem = left.split(), right.split()
        if len(mount) < 5 or len(filesystem) < 3:
            continue
        if filesystem[0] == "cgroup2":
            found.append((2, _unescaped(mount[3]), _unescaped(mount[4])))
        elif filesystem[0] == "cgroup" and "memory" in filesystem[2].split(","):
            found.append((1, _unescaped(mount[3]), _unescaped(mount[4])))
    return found


def _unescaped(path: str) -> str:
    return path.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")


def _below(path: str, mounted_from: str) -> str:
    """The path inside the mount; its top where the process is outside of what is mounted."""
    if mounted_from == "/":
        inside = path
    elif path == mounted_from or path.startswith(mounted_from + "/"):
        inside = path[len(mounted_from) :]
    else:
        inside = "/"
    return "" if "/../" in inside + "/" else inside.strip("/")


def _upwards(top: str, inside: str) -> list[str]:
    parts = inside.split("/") if inside else []
    return [os.path.join(top, *parts[:depth]) for depth in range(len(parts), -1, -1)]


def _read_group(version: int, folder: str, *, sizes: bool) -> MemoryGroup | None:
    """None where the kernel counts nothing: no memory controller in this hierarchy, or version 2's root."""
    if version == 2:
        # hierarchical, unless mounted with memory_localevents: kills in cgroups below this one count too
        kills = _counters(os.path.join(folder, "memory.events")).get("oom_kill")
        refusals = _counters(os.path.join(folder, "memory.events.local")).get("oom", 0)
        limit, peak = "memory.max", "memory.peak"
    else:
        kills = _counters(os.path.join(folder, "memory.oom_control")).get("oom_kill")
        refusals = _number(_read(os.path.join(folder, "memory.failcnt"))) or 0
        limit, peak = "memory.limit_in_bytes", "memory.max_usage_in_bytes"
    if kills is None:
        return None
    if not sizes:
        return MemoryGroup(folder, kills, refusals)
    limit_bytes = _number(_read(os.path.join(folder, limit)))
    if limit_bytes is not None and limit_bytes >= _NO_LIMIT:
        limit_bytes = None
    return MemoryGroup(folder, kills, refusals, limit_bytes, _number(_read(os.path.join(folder, peak))))


def _counters(path: str) -> dict[str, int]:
    counted: dict[str, int] = {}
    for line in _read(path).splitlines():
        name, _, number = line.partition(" ")
        amount = _number(number)
        if amount is not None:
            counted[name] = amount
    return counted


def _number(text: str) -> int | None:
    text = text.strip()
    return int(text) if text.isdecimal() else None


def _read(path: str) -> str:
    """The file's text; empty if it cannot be read. By descriptor: `open()` costs three times as much."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        pieces = []
        while piece := os.read(fd, 65536):
            pieces.append(piece)
        return b"".join(pieces).decode("utf-8", "replace")
    except OSError:
        return ""
    finally:
        os.close(fd)
