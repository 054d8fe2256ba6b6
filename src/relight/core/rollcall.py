"""Who has not come to the workers' meeting: a job that hangs in `init_process_group` says so by itself."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Set

AFTER_S = (30.0, 300.0)  # how long after the start of a round somebody asks


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
