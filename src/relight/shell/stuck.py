"""Workers that are stuck in the kernel: uninterruptible (state D) all the time, so that no signal reaches them."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

EVERY_S = 1.0


class StuckWatch:
    """Looks once a second, and only if the user asked for it: a worker's ordinary disk reads are state D as well."""

    def __init__(self, timeout_s: float, proc: str = "/proc") -> None:
        self._timeout_s = timeout_s
        self._proc = proc
        self._look_at: float | None = None
        self._since: dict[int, float] = {}  # by pid: since when every look has found it in state D

    def begin(self, now: float) -> None:
        """New workers have been started."""
        self._since = {}
        self._look_at = now + EVERY_S if self._timeout_s else None

    def wake_at(self) -> float | None:
        return self._look_at

    def look(self, now: float, pids: Mapping[int, int]) -> str | None:
        """One sentence about the workers (by local rank) that have been stuck for too long, or None."""
        if self._look_at is None or now < self._look_at:
            return None
        self._look_at = now + EVERY_S
        self._since = {pid: self._since.get(pid, now) for pid in pids.values() if self._uninterruptible(pid)}
        stuck = [rank for rank, pid in pids.items() if now - self._since.get(pid, now) >= self._timeout_s]
        if not stuck:
            return None
        self._look_at = None
        ranks = ", ".join(map(str, sorted(stuck)))
        return f"local rank {ranks} was stuck in the kernel (uninterruptible, state D) for {self._timeout_s:g} s"

    def _uninterruptible(self, pid: int) -> bool:
        try:
            with open(f"{self._proc}/{pid}/stat", "rb") as file:
                return file.read().rpartition(b") ")[2][:1] == b"D"
        except OSError:  # it has just ended
            return False
