"""Job: the one writer. It decides rounds: who takes part, which ranks, whether to try again, the verdict.

    GATHERING --everyone is ready--> RUNNING --everyone is done--> ENDED
        ^                               |
        +---- a failure, a loss, a newcomer, if the budget allows; else ENDED

A round begins only when every node that may still have workers has said that it has none, and has said so after
it saw the view that asked for it. A node is given up only after its lease: by then it has ended its own workers.
"""

from __future__ import annotations

from relight.core.budget import Allowed, Refused, Spending
from relight.core.documents import JobView, NodeReport, Phase, Standing, Verdict
from relight.core.failure import Cause
from relight.core.launch import Budget
from relight.core.names import never
from relight.core.roster import seat
from relight.core.values import value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from relight.core.roster import Roster

NEVER = float("inf")


@value
class JobRules:
    """What a job decides by."""

    min_nodes: int = 1
    max_nodes: int = 1
    budget: Budget = Budget()
    lease_s: float = NEVER  # a node that is silent for so long is lost
    settle_s: float = 0.5  # how long an incomplete gathering waits for more nodes after the last arrival
    join_timeout_s: float = 600.0  # how long it waits for enough of them


class Member:
    """A node as the coordinator knows it: its newest report, and when that came."""

    __slots__ = ("heard_at", "report")

    def __init__(self, report: NodeReport, heard_at: float) -> None:
        self.report = report
        self.heard_at = heard_at


class Job:
    """Decides. `hear`, `lost` and `tick` take what happened; `view` is the decision."""

    def __init__(self, rules: JobRules, now: float) -> None:
        self._rules = rules
        self._members: dict[str, Member] = {}
        self._spending = Spending(rules.budget)
        self._since = now  # when this gathering began
        self._arrival_at = now  # when the last newcomer arrived
        self.view = JobView(0, Phase.GATHERING, 0, "waiting for nodes")

    def hear(self, now: float, report: NodeReport) -> None:
        """Takes a node's report. Reports may be repeated, late or overtaken; the newest standing counts."""
        known = self._members.get(report.node)
        if known is not None and known.report.life == report.life:
            if report.sent_at < known.report.sent_at:
                return  # overtaken by a newer one
        elif report.standing is Standing.LEFT:
            return
        elif known is not None:
            self.lost(now, report.node, "was started anew")
        if report.node not in self._members:
            self._arrival_at = now
        self._members[report.node] = Member(report, now)
        if self.view.phase is Phase.RUNNING:
            self._judge(now, report)
        if report.standing is Standing.LEFT:
            self._members.pop(report.node, None)
            self._fewer(now, f"{report.node} left")
        self._gather(now)

    def lost(self, now: float, node: str, how: str) -> None:
        """A node is gone for certain: its lease is over, or it is proved dead."""
        if self._members.pop(node, None) is not None:
            self._fewer(now, f"{node} {how}")

    def tick(self, now: float) -> None:
        """Gives up nodes whose lease is over, and begins or ends what is due."""
        for name, member in list(self._members.items()):
            if now - member.heard_at >= self._rules.lease_s:
                self.lost(now, name, f"fell silent for {now - member.heard_at:.1f} s")
        self._gather(now)

    def wake_at(self) -> float | None:
        moments = [member.heard_at + self._rules.lease_s for member in self._members.values()]
        if self.view.phase is Phase.GATHERING:
            moments.append(self._since + self._rules.join_timeout_s)
            if self._everyone_ready():
                moments.append(self._arrival_at + self._rules.settle_s)
        return min((at for at in moments if at != NEVER), default=None)

    def _judge(self, now: float, report: NodeReport) -> None:
        """What a report means for the round that is running."""
        seated = self.view.roster is not None and report.node in self.view.roster.nodes
        mine = seated and report.round == self.view.round
        match report.standing:
            case Standing.BROKEN:
                if mine:
                    self._try_again(now, report.cause or Cause(report.node, f"{report.node} failed"))
            case Standing.DONE:
                if mine and self._all_done():
                    self._end(Verdict.SUCCEEDED, "every worker has finished")
            case Standing.LEAVING:
                if seated:
                    self._fewer(now, f"{report.node} is leaving")
            case Standing.READY:
                if seated:
                    if report.seen == self.view.serial:  # it ended its workers by itself
                        self._regroup(now, f"{report.node} could not hear the coordinator and ended its workers")
                elif self.view.roster is not None and len(self.view.roster.seats) < self._rules.max_nodes:
                    self._regroup(now, f"{report.node} joined")
            case Standing.WORKING | Standing.LEFT:
                pass
            case _:
                never(report.standing)

    def _all_done(self) -> bool:
        assert self.view.roster is not None
        reports = [self._members[node].report for node in self.view.roster.nodes if node in self._members]
        return len(reports) == len(self.view.roster.nodes) and all(
            one.standing is Standing.DONE and one.round == self.view.round for one in reports
        )

    def _try_again(self, now: float, cause: Cause) -> None:
        match self._spending.ask(now):
            case Allowed():
                self._regroup(now, cause.sentence, cause)
            case Refused(why):
                self._end(Verdict.FAILED, f"{cause.sentence}; {why}", cause)

    def _fewer(self, now: float, reason: str) -> None:
        """A node went. If it sat in the round, or nobody is left, that changes what we do."""
        if self.view.phase is Phase.ENDED:
            return
        if not any(m.report.standing is not Standing.LEAVING for m in self._members.values()):
            self._end(Verdict.STOPPED, f"{reason}; no node is left")
        elif self.view.phase is Phase.RUNNING and self._round_is_short():
            self._regroup(now, reason)

    def _round_is_short(self) -> bool:
        assert self.view.roster is not None
        staying = {n for n, m in self._members.items() if m.report.standing is not Standing.LEAVING}
        return not self.view.roster.nodes <= staying

    def _regroup(self, now: float, reason: str, cause: Cause | None = None) -> None:
        self._since = now
        self._decide(Phase.GATHERING, self.view.round + 1, reason, cause=cause)

    def _gather(self, now: float) -> None:
        """Begins the round as soon as it may begin; ends the job when nobody comes."""
        if self.view.phase is not Phase.GATHERING:
            return
        rules = self._rules
        ready = self._ready()
        settled = len(ready) >= rules.max_nodes or now - self._arrival_at >= rules.settle_s
        if self._everyone_ready() and len(ready) >= rules.min_nodes and settled:
            roster = seat([one.applicant for one in ready], self.view.roster, rules.max_nodes)
            nodes = ", ".join(taken.node for taken in roster.seats)
            self._decide(Phase.RUNNING, self.view.round, f"round {self.view.round} on {nodes}", roster=roster)
        elif now - self._since >= rules.join_timeout_s and len(ready) < rules.min_nodes:
            self._end(
                Verdict.FAILED,
                f"{len(ready)} of {rules.min_nodes} nodes were ready after {rules.join_timeout_s:g} s",
                self.view.cause,
            )

    def _ready(self) -> list[NodeReport]:
        reports = (member.report for member in self._members.values())
        return [one for one in reports if one.standing is Standing.READY and one.seen == self.view.serial]

    def _everyone_ready(self) -> bool:
        return bool(self._members) and len(self._ready()) == len(self._members)

    def _end(self, verdict: Verdict, reason: str, cause: Cause | None = None) -> None:
        self._decide(Phase.ENDED, self.view.round, reason, cause=cause, verdict=verdict)

    def _decide(
        self,
        phase: Phase,
        round_: int,
        reason: str,
        *,
        cause: Cause | None = None,
        roster: Roster | None = None,
        verdict: Verdict | None = None,
    ) -> None:
        """Makes a decision known. The last roster stays in view: it keeps the survivors' order."""
        self.view = JobView(
            serial=self.view.serial + 1,
            phase=phase,
            round=round_,
            reason=reason,
            restarts=self._spending.used,
            roster=roster or self.view.roster,
            verdict=verdict,
            cause=cause,
        )
