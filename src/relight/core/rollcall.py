"""Who has not come to the workers' meeting: a job that hangs in `init_process_group` says so by itself.

What the workers' store holds tells who has come: the names of torch's own keys are known here and nowhere else.
"""

from __future__ import annotations

from relight.core.storewire import number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Set

    from relight.core.tcpstore import WorkerStore

AFTER_S = (30.0, 300.0)  # how long after the start of a round somebody asks
# Where `init_process_group` publishes a rank's address; what NCCL publishes does not name a rank.
ARRIVALS = ("/default_pg/0//cpu//0/%d", "/default_pg/0//cuda//0/%d")
COUNTER = b"init/"


class RollCall:
    """Asks who is missing, at a few moments of one round."""

    def __init__(self, world_size: int, now: float) -> None:
        self._world_size = world_size
        self._began_at = now
        self._left: tuple[float, ...] = AFTER_S

    def wake_at(self) -> float | None:
        return self._began_at + self._left[0] if self._left else None

    def call(self, now: float, store: WorkerStore) -> str | None:
        """One sentence about those who are missing, if it is time to ask and somebody is."""
        due = self.wake_at()
        if due is None or now < due:
            return None
        self._left = self._left[1:]
        return absentees(self._world_size, arrived(self._world_size, store), counted(store), now - self._began_at)

    def paused(self, for_s: float) -> None:
        """Nobody could come while everybody was stopped."""
        self._began_at += for_s


def arrived(world_size: int, store: WorkerStore) -> frozenset[int]:
    """The ranks that are known to be in `init_process_group`, or past it.

    Inferred from the keys under which each rank publishes its address for gloo. A rank in the answer has surely
    arrived. A rank that is not may use NCCL alone, which names no ranks: `counted` still counts it.
    """
    stored = store.stored
    return frozenset(
        rank for rank in range(world_size) if any(stored((key % rank).encode()) is not None for key in ARRIVALS)
    )


def counted(store: WorkerStore) -> int:
    """How many workers have said hello, by the counter that `env://` adds to; not who they are.

    A program's own TCPStore clients to the same address may add to it too.
    """
    return number(bytes(store.stored(COUNTER) or b"0")) or 0


def absentees(world_size: int, arrived: Set[int], counted: int, waited_s: float) -> str | None:
    """One sentence about the ranks that are missing, or None if nobody is, or nobody has come at all.

    `arrived` are ranks known to have come; `counted` is how many have, where the store cannot tell who.
    """
    if arrived:
        missing = [rank for rank in range(world_size) if rank not in arrived]
        if not missing:
            return None
        shown = ", ".join(map(str, missing[:12])) + (f" and {len(missing) - 12} more" if len(missing) > 12 else "")
        who = f"rank{'' if len(missing) == 1 else 's'} {shown}"
    elif 0 < counted < world_size:
        who = f"{world_size - counted} of {world_size} workers"
    else:
        return None
    have = "has" if who.startswith(("rank ", "1 of")) else "have"
    return f"after {waited_s:.0f} s, {who} {have} not reached init_process_group; the others wait there"
