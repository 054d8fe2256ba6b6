"""The agent's conversation with the coordinator. For one node both machines are in one process: no socket."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from relight.core.documents import JobView, NodeReport
    from relight.core.job import Job


class LocalLink:
    """Report in, view out, at once."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def exchange(self, now: float, report: NodeReport) -> JobView:
        self._job.hear(now, report)
        return self._job.view

    def tick(self, now: float) -> JobView:
        self._job.tick(now)
        return self._job.view

    def wake_at(self) -> float | None:
        return self._job.wake_at()
