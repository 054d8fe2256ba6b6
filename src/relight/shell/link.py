"""The agent's conversation with a coordinator in its own process: no socket. `remote` is the other kind."""

from __future__ import annotations

from relight.core.documents import Standing
from relight.core.values import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from relight.core.documents import JobView, NodeReport
    from relight.core.job import Job
    from relight.shell.coordinator import Coordinator, Member

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
        if report.repeats(self._told):
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


class LocalSeat:
    """The link of the agent that hosts the coordinator: report in, view out, at once."""

    def __init__(self, coordinator: Coordinator, member: Member) -> None:
        self._coordinator = coordinator
        self._member = member
        self._told: NodeReport | None = None

    def tell(self, report: NodeReport) -> bool:
        if report.repeats(self._told):
            return False
        self._told = report
        if report.standing in (Standing.LEAVING, Standing.LEFT):
            self._coordinator.go(self._member)
        self._coordinator.hear(self._member, report)
        return True

    def tick(self, now: float) -> None:
        if self._told is not None:  # this agent hears its coordinator as long as it runs at all
            self._coordinator.hear(self._member, replace(self._told, sent_at=now))
        self._coordinator.tick(now)

    def wake_at(self) -> float | None:
        return self._coordinator.wake_at()

    @property
    def settled(self) -> bool:
        """Whether nobody waits for anything more from here."""
        return self._coordinator.settled

    def close(self) -> None:
        self._coordinator.close()
