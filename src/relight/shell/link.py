"""The agent's conversation with the coordinator. For one node both machines are in one process: no socket."""

from __future__ import annotations

from relight.core.values import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from relight.core.documents import JobView, NodeReport
    from relight.core.job import Job

    OnView = Callable[[JobView, float], None]  # the newest view, and when the report that it answers was sent


class LocalLink:
    """Report in, view out, at once."""

    def __init__(self, job: Job, on_view: OnView) -> None:
        self._job = job
        self._on_view = on_view
        self._told: NodeReport | None = None
        self._seen = -1

    def tell(self, report: NodeReport) -> bool:
        """Says what this node is. False if it has said just that already."""
        if self._told is not None and replace(report, sent_at=self._told.sent_at) == self._told:
            return False
        self._told = report
        self._job.hear(report.sent_at, report)
        self._answer(report)
        return True

    def tick(self, now: float) -> None:
        self._job.tick(now)
        if self._told is not None and self._job.decision.serial > self._seen:
            self._answer(replace(self._told, sent_at=now))

    def wake_at(self) -> float | None:
        return self._job.wake_at()

    @property
    def settled(self) -> bool:
        """Whether nobody waits for anything more from here."""
        return True

    def close(self) -> None:
        pass

    def _answer(self, report: NodeReport) -> None:
        view = self._job.view_for(report.applicant)
        self._seen = view.serial
        self._on_view(view, report.sent_at)
