"""Job: the one writer. It decides rounds: who takes part, which ranks, whether to try again, the verdict.

    GATHERING --everyone is ready--> RUNNING --everyone is done--> ENDED
        ^                               |
        +---- a failure, a loss, a newcomer, if the budget allows; else ENDED

A round begins only when every node that may still have workers has said that it has none, and has said so after
it saw the view that asked for it. A node is given up only after its lease: by then it has ended its own workers.
"""

from __future__ import annotations

from relight.core.budget import Refused, Spending
from relight.core.documents import JobView, NodeReport, Phase, Standing, Verdict
from relight.core.failure import Cause
from relight.core.launch import Budget
from relight.core.names import never
from relight.core.roster import seat
from relight.core.values import replace, value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from relight.core.roster import Roster

NEVER = float("inf")
ORPHANS_S = 0.5  # how long workers may outlive their agent: so long may its guardian take to end them
ANY_NUMBER = 1 << 60


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
    """A node as the coordinator knows it: its newest report, when that came, and whether it still takes part."""

    __slots__ = ("heard_at", "present", "report")

    def __init__(self, report: NodeReport, heard_at: float) -> None:
        self.report = report
        self.heard_at = heard_at
        self.present = report.standing is not Standing.LEFT


class Job:
    """Decides. `hear`, `lost` and `tick` take what happened; `view` is the decision."""

    def __init__(self, rules: JobRules, now: float) -> None:
        self._rules = rules
        self._known: dict[str, Member] = {}
        self._heard: dict[str, tuple[int, float]] = {}  # each life's number, by first hearing, and its newest report
        self._finished: set[str] = set()  # nodes whose workers have all finished well in this round
        self._restarts = Spending(Budget(rules.budget.restarts))  # for failures
        self._rate = Spending(replace(rules.budget, restarts=ANY_NUMBER))  # for whatever breaks a round off
        self._since = now  # when this gathering began
        self._changed_at = now  # when it began, or its last node came
        self._clear_at = now  # when the workers of agents that died are gone for certain
        self.view = JobView(0, Phase.GATHERING, 0, "waiting for nodes")

    # -- what happens ---------------------------------------------------------------------------------------

    def hear(self, now: float, report: NodeReport) -> None:
        """Takes a node's report. Reports may be repeated, late or overtaken; the newest standing counts."""
        if self.view.phase is Phase.ENDED or self._overtaken(report):
            return
        known = self._known.get(report.node)
        if known is None or not known.present or known.report.life != report.life:
            if not self._welcome(report):
                return
            if known is not None and known.report.life != report.life:
                self._clear_at = now + ORPHANS_S
                self.lost(now, report.node, "was started anew")
            self._changed_at = now
        self._known[report.node] = Member(report, now)
        self._judge(now, report)
        self._gather(now)

    def lost(self, now: float, node: str, how: str) -> None:
        """A node is gone for certain: its lease is over, or it is proved dead."""
        known = self._known.get(node)
        if known is not None and known.present:
            known.present = False
            self._fewer(now, node, how)

    def tick(self, now: float) -> None:
        """Gives up nodes whose lease is over, and begins or ends what is due."""
        if self.view.phase is Phase.ENDED:
            return
        for node, member in self._known.items():
            if now >= member.heard_at + self._rules.lease_s:
                self.lost(now, node, f"fell silent for {now - member.heard_at:.1f} s")
        self._gather(now)

    def wake_at(self) -> float | None:
        if self.view.phase is Phase.ENDED:
            return None
        moments = [member.heard_at + self._rules.lease_s for member in self._known.values() if member.present]
        if self.view.phase is Phase.GATHERING:
            moments += [self._begins_at(), self._gives_up_at()]
        return min((at for at in moments if at != NEVER), default=None)

    # -- who counts -----------------------------------------------------------------------------------------

    def _overtaken(self, report: NodeReport) -> bool:
        """Whether its node has said something newer, in this life or in a later one."""
        number, newest = self._heard.get(report.life, (len(self._heard), report.sent_at))
        self._heard[report.life] = number, max(newest, report.sent_at)
        known = self._known.get(report.node)
        return report.sent_at < newest or (known is not None and number < self._heard[known.report.life][0])

    def _welcome(self, report: NodeReport) -> bool:
        """Whether a newcomer takes part: only who has seen the newest view is known to live and to hear."""
        return report.seen == self.view.serial and report.standing not in (Standing.LEAVING, Standing.LEFT)

    def _present(self) -> list[NodeReport]:
        return [member.report for member in self._known.values() if member.present]

    def _staying(self) -> int:
        return sum(one.standing is not Standing.LEAVING for one in self._present())

    def _ready(self) -> list[NodeReport]:
        return [one for one in self._present() if one.standing is Standing.READY and one.seen == self.view.serial]

    # -- while a round runs ---------------------------------------------------------------------------------

    def _judge(self, now: float, report: NodeReport) -> None:
        """What a report means for the job."""
        seated = self._running is not None and self._running.seat_of(report.applicant) is not None
        mine = seated and report.round == self.view.round
        match report.standing:
            case Standing.BROKEN if mine:
                cause = report.cause or Cause(report.node, f"{report.node} failed")
                self._again(now, cause.sentence, cause)
            case Standing.DONE if mine:
                self._finish(report.node)
            case Standing.LEAVING:
                self._leaves(now, report.node, "is leaving")
            case Standing.LEFT:
                self._leaves(now, report.node, "left")
            case Standing.READY if report.seen == self.view.serial:
                if seated:
                    self._again(now, f"{report.node} could not hear the coordinator and ended its workers")
                elif self._has_room():
                    self._regroup(now, f"{report.node} joined")
            case Standing.READY | Standing.WORKING | Standing.BROKEN | Standing.DONE:
                pass
            case _:
                never(report.standing)

    @property
    def _running(self) -> Roster | None:
        return self.view.roster if self.view.phase is Phase.RUNNING else None

    def _finish(self, node: str) -> None:
        """Its part is done, whatever becomes of the node."""
        self._finished.add(node)
        if self._running is not None and self._finished == self._running.nodes:
            self._end(Verdict.SUCCEEDED, "every worker has finished")

    def _has_room(self) -> bool:
        """Whether a newcomer may join: nobody who has finished works again for its sake."""
        return self._running is not None and len(self._running.seats) < self._rules.max_nodes and not self._finished

    def _leaves(self, now: float, node: str, how: str) -> None:
        """A node was told to go. When all were, the job is over."""
        if self._staying():
            self._fewer(now, node, how)
        else:
            self._end(Verdict.STOPPED, f"{node} {how}; no node is left")

    def _fewer(self, now: float, node: str, how: str) -> None:
        """A node is gone or about to go. If it had work in this round, the others begin another one."""
        if self._running is not None and node in self._running.nodes - self._finished:
            self._again(now, f"{node} {how}")

    def _again(self, now: float, reason: str, cause: Cause | None = None) -> None:
        """Tries again if the budget allows: a failure spends a restart, and whatever breaks a round off counts
        for the rate, or a bad network would make a job begin anew for ever."""
        for limit in (self._rate, self._restarts) if cause else (self._rate,):
            answer = limit.ask(now)
            if isinstance(answer, Refused):
                self._end(Verdict.FAILED, f"{reason}; {answer.why}", cause)
                return
        self._regroup(now, reason, cause)

    # -- between rounds -------------------------------------------------------------------------------------

    def _regroup(self, now: float, reason: str, cause: Cause | None = None) -> None:
        self._since = self._changed_at = now
        self._decide(Phase.GATHERING, self.view.round + 1, reason, cause=cause)

    def _gather(self, now: float) -> None:
        """Begins the round as soon as it may begin; ends the job when too few nodes come."""
        if self.view.phase is not Phase.GATHERING:
            return
        rules = self._rules
        if now >= self._begins_at():
            roster = seat([one.applicant for one in self._ready()], self.view.roster, rules.max_nodes)
            nodes = ", ".join(taken.node for taken in roster.seats)
            self._finished.clear()
            self._decide(Phase.RUNNING, self.view.round, f"round {self.view.round} on {nodes}", roster=roster)
        elif now >= self._gives_up_at():
            came = f"only {self._staying()} of {rules.min_nodes} nodes came within {rules.join_timeout_s:g} s"
            self._end(Verdict.FAILED, f"{self.view.reason}; {came}", self.view.cause)

    def _begins_at(self) -> float:
        """When this round may begin if nothing else happens; never while someone is missing."""
        ready = self._ready()
        if len(ready) < max(len(self._present()), self._rules.min_nodes):
            return NEVER
        before = self.view.roster
        full = len(ready) >= self._rules.max_nodes
        if full or (before is not None and before.nodes <= {one.node for one in ready}):
            return self._clear_at
        return max(self._clear_at, self._changed_at + self._rules.settle_s)

    def _gives_up_at(self) -> float:
        """When too few nodes have come for too long; never while enough are there and only end their workers."""
        return self._since + self._rules.join_timeout_s if self._staying() < self._rules.min_nodes else NEVER

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
            restarts=self._restarts.used,
            roster=roster or self.view.roster,
            verdict=verdict,
            cause=cause,
        )
