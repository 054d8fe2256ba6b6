"""Whether the kernel killed something for want of memory, judged by its counters before and after.

A SIGKILL does not say who sent it; these counters do. The kernel raises them before it sends the signal, so a
worker that is seen dead has been counted already.
"""

from __future__ import annotations

from relight.core.values import value


@value
class MemoryGroup:
    """One memory cgroup at one moment."""

    path: str
    kills: int  # processes the kernel killed here for want of memory
    refusals: int = 0  # how often this group's own limit, not one further up, stopped an allocation
    limit_bytes: int | None = None
    peak_bytes: int | None = None


@value
class MemoryCounters:
    """What the kernel counted up to one moment: the process's own cgroup first, then those above it."""

    groups: tuple[MemoryGroup, ...]
    machine_kills: int


@value
class OomEvidence:
    """The kernel's own word that it ran out of memory and killed."""

    kills: int
    where: str  # "in this cgroup", "on this machine", ...
    limit_bytes: int | None = None
    peak_bytes: int | None = None

    def __str__(self) -> str:
        sizes = [
            f"{name} {spell_bytes(size)}"
            for name, size in (("limit", self.limit_bytes), ("peak", self.peak_bytes))
            if size is not None
        ]
        kills = "1 out-of-memory kill" if self.kills == 1 else f"{self.kills} out-of-memory kills"
        return f"the kernel counted {kills} {self.where}" + (f" ({', '.join(sizes)})" if sizes else "")


def out_of_memory(before: MemoryCounters, after: MemoryCounters) -> OomEvidence | None:
    """The innermost place where kills were counted meanwhile, with the limit that was hit, or None."""
    earlier = {group.path: group for group in before.groups}
    refused = [group for group in after.groups if group.refusals > _was(earlier, group).refusals]
    for place, group in enumerate(after.groups):
        kills = group.kills - _was(earlier, group).kills
        if kills > 0:
            full = next((each for each in refused if each in after.groups[place:]), group)
            where = "in this cgroup" if place == 0 else f"in the cgroup {group.path} above this one"
            return OomEvidence(kills, where, full.limit_bytes, full.peak_bytes)
    if after.machine_kills > before.machine_kills:
        return OomEvidence(after.machine_kills - before.machine_kills, "on this machine")
    return None


def _was(earlier: dict[str, MemoryGroup], group: MemoryGroup) -> MemoryGroup:
    """The group as it was; one that could not be read then counts as unchanged, for it proves nothing."""
    return earlier.get(group.path, group)


def spell_bytes(size: int) -> str:
    """2.0 GiB for 2147483648."""
    if size < 1024:
        return f"{size} B"
    amount = float(size)
    for unit in ("KiB", "MiB", "GiB"):
        amount /= 1024
        if amount < 1024:
            return f"{amount:.1f} {unit}"
    return f"{amount / 1024:.1f} TiB"
