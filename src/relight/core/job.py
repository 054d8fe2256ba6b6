"""Job: the one writer. It decides rounds: who takes part, which ranks, whether to try again, the verdict.

    GATHERING --everyone is ready--> RUNNING --everyone is done--> ENDED
        ^                               |
        +---- a failure, a loss, a newcomer, if the budget allows; else ENDED

A round begins only when every node that may still have workers has said that it has none, and has said so after
it saw the view that asked for it. A node is given up only after its lease: by then it has ended its own workers.
"""

from __future__ import annotations

from collections import OrderedDict

from relight.core.budget import Refused, Spending
from relight.core.documents import JobView, NodeReport, Phase, Standing, Verdict
from relight.core.failure import Cause
from relight.core.launch import Budget
from relight.core.names import never
from relight.core.roster import seat
from relight.core.values import replace, value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from relight.core.roster import Applicant, Part, Roster

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
    settle_s: float = 0.5  # how long the first round waits for more nodes after the last arrival
    join_timeout_s: float = 600.0  # how long any round waits for enough of them
    last_call_s: float = 30.0  # how long the first round waits for more at most, from when it could have begun
    batch_s: float = 0.2  # how long later rounds wait for more after an arrival, so that several make one change
    fails_below_min: bool = False  # the loss of a node that leaves too few ends the job at once


@value
class Decision:
    """What the job does, and why. A larger serial is newer."""

    serial: int
    phase: Phase
    round: int
    reason: str
    restarts: int = 0
    roster: Roster | None = None  # of this round, or the last one there was: it keeps the survivors' order
    verdict: Verdict | None = None
    cause: Cause | None = None


class Member:
    """A node as the coordinator knows it: its newest report, when that came, and whether it still takes part."""

    __slots__ = ("heard_at", "present", "report")

    def __init__(self, report: NodeReport, heard_at: float) -> None:
        self.report = report
        self.heard_at = heard_at
        self.present = report.standing is not Standing.LEFT


class Job:
    """Decides. `hear`, `lost`, `died` and `tick` take what happened; `decision` is what follows.

    What a report costs does not grow with the number of nodes: whoever is present, ready or leaving is in a set.
    """

    def __init__(self, rules: JobRules, now: float) -> None:
        self._rules = rules
        self._known: dict[str, Member] = {}
        self._present: OrderedDict[str, Member] = OrderedDict()  # by when they were heard, the longest ago first
        self._ready: set[str] = set()  # of these: who has no worker and has seen the newest decision
        self._leaving: set[str] = set()  # of these: who was told to go
        self._parts: dict[str, Part] = {}  # of the round that runs
        self._heard: dict[str, tuple[int, float]] = {}  # each life's number, by first hearing, and its newest report
        self._finished: set[str] = set()  # nodes whose workers have all finished well in this round
        self._restarts = Spending(Budget(rules.budget.restarts))  # for failures
        self._rate = Spending(replace(rules.budget, restarts=ANY_NUMBER))  # for whatever breaks a round off
        self._since = now  # when this gathering began
        self._arrived_at = now  # when the last newcomer came
        self._enough_at = NEVER  # since when enough nodes are there for this gathering
        self._grow_at = NEVER  # when those who came while a round runs break it off
        self._clear_at = now  # when the workers of agents that died are gone for certain
        self.decision = Decision(0, Phase.GATHERING, 0, "waiting for nodes")

    def view_for(self, applicant: Applicant) -> JobView:
        """The decision as one node is told it. A seat is for one start of a node's agent, not for the next one."""
        decision = self.decision
        part = self._parts.get(applicant.node)
        return JobView(
            serial=decision.serial,
            phase=decision.phase,
            round=decision.round,
            reason=decision.reason,
            restarts=decision.restarts,
            part=part if part is not None and part.seat.life == applicant.life else None,
            verdict=decision.verdict,
            cause=decision.cause,
        )

    def has(self, node: str) -> bool:
        """Whether a node counts as alive."""
        return node in self._present

    # -- what happens ---------------------------------------------------------------------------------------

    def hear(self, now: float, report: NodeReport) -> None:
        """Takes a node's report. Reports may be repeated, late or overtaken; the newest standing counts."""
        if self.decision.phase is Phase.ENDED or self._overtaken(report):
            return
        known = self._known.get(report.node)
        if known is None or not known.present or known.report.life != report.life:
            if not self._welcome(report):
                return
            if known is not None and known.report.life != report.life:
                self.died(now, report.node, "was started anew")
            self._arrived_at = now
        self._take(Member(report, now))
        self._judge(now, report)
        self._gather(now)

    def lost(self, now: float, node: str, how: str) -> None:
        """A node is gone for certain: its lease is over, or it is proved dead."""
        known = self._known.get(node)
        if known is not None and known.present:
            known.present = False
            self._forget(node)
            if self._is_needed(node):
                self._again(now, f"{node} {how}")

    def died(self, now: float, node: str, how: str) -> None:
        """A node's agent is proved dead. Its workers may live a moment longer."""
        self._clear_at = now + ORPHANS_S
        self.lost(now, node, how)

    def tick(self, now: float) -> None:
        """Gives up nodes whose lease is over, and begins or ends what is due."""
        while self.decision.phase is not Phase.ENDED and now >= self._silent_at():
            node, member = next(iter(self._present.items()))
            self.lost(now, node, f"fell silent for {now - member.heard_at:.1f} s")
        if now >= self._grow_at:
            self._grow(now)
        self._gather(now)

    def wake_at(self) -> float | None:
        if self.decision.phase is Phase.ENDED:
            return None
        moments = [self._silent_at(), self._grow_at]
        if self.decision.phase is Phase.GATHERING:
            moments += [self._begins_at(), self._gives_up_at()]
        return min((at for at in moments if at != NEVER), default=None)

    def stop(self, reason: str) -> None:
        """Somebody who may do so ends the job."""
        if self.decision.phase is not Phase.ENDED:
            self._end(Verdict.STOPPED, reason)

    # -- who counts -----------------------------------------------------------------------------------------

    def _overtaken(self, report: NodeReport) -> bool:
        """Whether its node has said something newer, in this life or in a later one."""
        number, newest = self._heard.get(report.life, (len(self._heard), report.sent_at))
        self._heard[report.life] = number, max(newest, report.sent_at)
        known = self._known.get(report.node)
        return report.sent_at < newest or (known is not None and number < self._heard[known.report.life][0])

    def _welcome(self, report: NodeReport) -> bool:
        """Whether a newcomer takes part: only who has seen the newest view is known to live and to hear."""
        return report.seen == self.decision.serial and report.standing not in (Standing.LEAVING, Standing.LEFT)

    def _take(self, member: Member) -> None:
        """A node is what it says it is."""
        report = member.report
        node = report.node
        self._known[node] = member
        self._forget(node)
        if not member.present:
            return
        self._present[node] = member
        if report.standing is Standing.LEAVING:
            self._leaving.add(node)
        if report.standing is Standing.READY and report.seen == self.decision.serial:
            self._ready.add(node)

    def _forget(self, node: str) -> None:
        self._present.pop(node, None)
        self._ready.discard(node)
        self._leaving.discard(node)

    def _staying(self) -> int:
        return len(self._present) - len(self._leaving)

    def _silent_at(self) -> float:
        """When whoever was heard the longest ago has been silent for too long."""
        longest = next(iter(self._present.values()), None)
        return NEVER if longest is None else longest.heard_at + self._rules.lease_s

    # -- while a round runs ---------------------------------------------------------------------------------

    def _judge(self, now: float, report: NodeReport) -> None:
        """What a report means for the job."""
        part = self._parts.get(report.node)
        seated = part is not None and part.seat.life == report.life
        mine = seated and report.round == self.decision.round
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
            case Standing.READY if report.seen == self.decision.serial:
                if seated:
                    self._again(now, f"{report.node} could not hear the coordinator and ended its workers")
                elif self._has_room():
                    self._grow_at = min(self._grow_at, now + self._rules.batch_s)
            case Standing.READY | Standing.WORKING | Standing.BROKEN | Standing.DONE:
                pass
            case _:
                never(report.standing)

    @property
    def _running(self) -> Roster | None:
        return self.decision.roster if self.decision.phase is Phase.RUNNING else None

    def _finish(self, node: str) -> None:
        """Its part is done, whatever becomes of the node."""
        self._finished.add(node)
        if len(self._finished) == len(self._parts):
            self._end(Verdict.SUCCEEDED, "every worker has finished")

    def _has_room(self) -> bool:
        """Whether a newcomer may join: nobody who has finished works again for its sake."""
        return self._running is not None and len(self._running.seats) < self._rules.max_nodes and not self._finished

    def _grow(self, now: float) -> None:
        """Takes in everybody who has come since the round began, if they are still there and there is still room."""
        self._grow_at = NEVER
        newcomers = sorted(self._ready - self._parts.keys())
        if newcomers and self._has_room():
            self._regroup(now, f"{_listed(newcomers)} joined")

    def _leaves(self, now: float, node: str, how: str) -> None:
        """A node was told to go. When all were, the job is over."""
        if not self._staying():
            self._end(Verdict.STOPPED, f"{node} {how}; no node is left")
        elif self._is_needed(node):
            self._regroup(now, f"{node} {how}")

    def _is_needed(self, node: str) -> bool:
        """Whether it has work in this round, so that without it the others begin another one."""
        return node in self._parts and node not in self._finished

    def _again(self, now: float, reason: str, cause: Cause | None = None) -> None:
        """Tries again if the budget allows: a failure spends a restart, and whatever breaks a round off unasked counts
        for the rate, or a bad network would make a job begin anew for ever."""
        for limit in (self._rate, self._restarts) if cause else (self._rate,):
            answer = limit.ask(now)
            if isinstance(answer, Refused):
                self._end(Verdict.FAILED, f"{reason}; {answer.why}", cause)
                return
        self._regroup(now, reason, cause)

    # -- between rounds -------------------------------------------------------------------------------------

    def _regroup(self, now: float, reason: str, cause: Cause | None = None) -> None:
        if self._rules.fails_below_min and self._staying() < self._rules.min_nodes:
            left = f"{self._staying()} of {self._rules.min_nodes} nodes are left"
            self._end(Verdict.FAILED, f"{reason}; {left}, and the job was to fail then", cause)
            return
        self._since = now
        self._enough_at = self._grow_at = NEVER
        self._decide(Phase.GATHERING, self.decision.round + 1, reason, cause=cause)

    def _gather(self, now: float) -> None:
        """Begins the round as soon as it may begin; ends the job when too few nodes come."""
        if self.decision.phase is not Phase.GATHERING:
            return
        rules = self._rules
        self._enough_at = min(self._enough_at, now) if self._staying() >= rules.min_nodes else NEVER
        if now >= self._begins_at():
            ready = [self._present[node].report.applicant for node in self._ready]
            roster = seat(ready, self.decision.roster, rules.max_nodes)
            self._finished.clear()
            where = _listed([taken.node for taken in roster.seats])
            self._decide(Phase.RUNNING, self.decision.round, f"round {self.decision.round} on {where}", roster=roster)
        elif now >= self._gives_up_at():
            came = f"only {self._staying()} of {rules.min_nodes} nodes came within {rules.join_timeout_s:g} s"
            self._end(Verdict.FAILED, f"{self.decision.reason}; {came}", self.decision.cause)

    def _begins_at(self) -> float:
        """When this round may begin if nothing else happens; never while someone is missing."""
        if len(self._ready) < max(len(self._present), self._rules.min_nodes):
            return NEVER
        if len(self._ready) >= self._rules.max_nodes:
            return self._clear_at
        if self.decision.roster is None:
            more = min(self._arrived_at + self._rules.settle_s, self._enough_at + self._rules.last_call_s)
        else:
            more = self._arrived_at + self._rules.batch_s
        return max(self._clear_at, more)

    def _gives_up_at(self) -> float:
        """When too few nodes have come for too long; never while enough are there and only end their workers."""
        return self._since + self._rules.join_timeout_s if self._staying() < self._rules.min_nodes else NEVER

    def _end(self, verdict: Verdict, reason: str, cause: Cause | None = None) -> None:
        self._decide(Phase.ENDED, self.decision.round, reason, cause=cause, verdict=verdict)

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
        """Makes a decision known. The last roster stays in it: it keeps the survivors' order."""
        self._parts = roster.parts() if roster else {}
        self._ready.clear()  # nobody has seen this one yet
        self.decision = Decision(
            serial=self.decision.serial + 1,
            phase=phase,
            round=round_,
            reason=reason,
            restarts=self._restarts.used,
            roster=roster or self.decision.roster,
            verdict=verdict,
            cause=cause,
        )


def _listed(nodes: list[str], most: int = 8) -> str:
    """n1, n2 and n3 by name; of a thousand only the first ones, and how many there are."""
    shown = ", ".join(nodes[:most])
    return shown if len(nodes) <= most else f"{shown} and {len(nodes) - most} more"
