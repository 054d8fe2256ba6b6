"""Node: makes the local workers follow the newest decision.

It takes what happened (a view arrived, a worker ended, a signal came, time passed) and returns the commands to
carry out now. It decides nothing about the job: a failure is reported, and the answer says what to do. Two things
it does by itself: it leaves when told to, and it ends its workers when it can no longer hear the coordinator.
"""

from __future__ import annotations

import signal

from relight.core.documents import NodeReport, Phase, Standing, Verdict
from relight.core.ending import Ladder, Look, Stage, Step, Tell
from relight.core.failure import Cause, cause_of, first_of
from relight.core.names import never
from relight.core.values import replace, value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from relight.core.documents import JobView
    from relight.core.failure import WorkerEnd
    from relight.core.roster import Applicant, Part

NEVER = float("inf")
FENCE_AT, KILL_AT = 0.6, 0.8  # of the lease
HURRY_S = 5.0  # what a second signal leaves of the grace


@value
class StartWorkers:
    """Start one worker for each place, all of them or none."""

    round: int
    restarts: int
    part: Part


@value
class TellWorker:
    """Send a signal to a worker, or to its whole process group."""

    local_rank: int
    signal: int
    group: bool


@value
class LookAtGroup:
    """See whether anything of a worker's process group is alive."""

    local_rank: int


@value
class Leave:
    """The agent's work is done: nothing of its workers is alive, or nothing more can be done about it."""

    verdict: Verdict
    reason: str


Command = StartWorkers | TellWorker | LookAtGroup | Leave


@value
class NodeRules:
    """What a node goes by."""

    shutdown_timeout_s: float = 30.0
    lease_s: float = NEVER  # how long after its last answered report the coordinator gives it up
    asks_groups: bool = False  # workers are asked to end together with their children


class Node:
    """Follows. Verbs take the time and what happened, and return commands; `report` is what it would say now."""

    def __init__(self, applicant: Applicant, life: str, rules: NodeRules, now: float) -> None:
        self._applicant = replace(applicant, life=life)
        self._rules = rules
        self._heard_at = now  # when the newest answered report was sent
        self._view: JobView | None = None
        self._round = -1
        self._ladders: dict[int, Ladder] = {}
        self._left = False
        self._trouble: Cause | None = None  # why the workers of this round could not be started
        self.stop_signals: list[int] = []
        self.ends: dict[int, WorkerEnd] = {}

    # -- what it says ---------------------------------------------------------------------------------------

    def report(self, now: float) -> NodeReport:
        standing = self._standing()
        cause = None
        if standing is Standing.BROKEN:
            first = self._first_failure()
            cause = cause_of(self._applicant.node, first) if first else self._trouble
        return NodeReport(
            applicant=self._applicant,
            seen=self._view.serial if self._view else -1,
            standing=standing,
            round=self._round,
            sent_at=now,
            cause=cause,
        )

    def _standing(self) -> Standing:
        quiet = all(ladder.gone for ladder in self._ladders.values())
        if self.stop_signals or self._left:
            return Standing.LEFT if quiet else Standing.LEAVING
        if self._still_in_round():
            if self._trouble or self._first_failure() is not None:
                return Standing.BROKEN
            if len(self.ends) == len(self._ladders) and all(end.ok and not end.asked for end in self.ends.values()):
                return Standing.DONE
        return Standing.READY if quiet else Standing.WORKING

    def _first_failure(self) -> WorkerEnd | None:
        """What broke this round here. How a worker ends that the fence asked to end says nothing about its work."""
        return first_of(end for end in self.ends.values() if not end.asked)

    def _still_in_round(self) -> bool:
        view = self._view
        return view is not None and view.phase is Phase.RUNNING and view.round == self._round

    def joins(self, now: float, name: str, lease_s: float) -> None:
        """A coordinator has let it in, under this name. The lease begins anew."""
        self._applicant = replace(self._applicant, node=name)
        self._rules = replace(self._rules, lease_s=lease_s)
        self._heard_at = now

    # -- what happens to it ---------------------------------------------------------------------------------

    def see(self, now: float, view: JobView, sent_at: float) -> list[Command]:
        """The coordinator's answer to the report sent at `sent_at`. An older view than the newest is ignored."""
        self._heard_at = max(self._heard_at, sent_at)
        if self._view is not None and view.serial <= self._view.serial:
            return []
        ready = self._standing() is Standing.READY
        self._view = view
        match view.phase:
            case Phase.GATHERING:
                return self._end_workers(now)
            case Phase.RUNNING:
                if ready and view.part is not None and now < self._fence_at():
                    return self._start(view, view.part)
                return self._end_workers(now)
            case Phase.ENDED:
                return self._end_workers(now) + self._leave_if_quiet()
            case _:
                never(view.phase)

    def fail(self, sentence: str) -> None:
        """Something is wrong with this round that the end of no worker would tell."""
        self._trouble = Cause(self._applicant.node, sentence)

    def not_started(self, sentence: str) -> None:
        """The workers of this round could not be started; those that had been are gone again."""
        self._ladders = {}
        self.fail(sentence)

    def offer(self, store_port: int) -> None:
        """Where the workers' store will be, should this node get seat 0 of the next round."""
        self._applicant = replace(self._applicant, store_port=store_port)

    def ended(self, now: float, ends: Iterable[tuple[WorkerEnd, bool]]) -> list[Command]:
        """Workers have ended, in this order; the flag says whether others of the process group are alive."""
        commands: list[Command] = []
        for end, others in ends:
            ladder = self._ladders[end.local_rank]
            self.ends[end.local_rank] = replace(end, asked=ladder.asked)
            commands += self._steps(end.local_rank, ladder.ended(now, others))
        return commands + self._leave_if_quiet()

    def looked(self, now: float, local_rank: int, others: bool) -> list[Command]:
        """The answer to LookAtGroup."""
        return self._steps(local_rank, self._ladders[local_rank].looked(now, others)) + self._leave_if_quiet()

    def stop(self, now: float, number: int) -> list[Command]:
        """Someone asks this node to go. The first signal is passed on; the second hurries; the third kills."""
        self.stop_signals.append(number)
        commands: list[Command] = []
        for local_rank, ladder in self._ladders.items():
            match len(self.stop_signals):
                case 1:
                    steps = ladder.ask(now, number, self._rules.shutdown_timeout_s)
                case 2:
                    steps = ladder.ask(now, signal.SIGTERM, min(HURRY_S, self._rules.shutdown_timeout_s))
                case _:
                    steps = ladder.kill(now)
            commands += self._steps(local_rank, steps)
        return commands + self._leave_if_quiet()

    def tick(self, now: float) -> list[Command]:
        """Whatever is due: a deadline on the way down, or the lease."""
        commands: list[Command] = []
        for local_rank, ladder in self._ladders.items():
            if now >= self._fence_at():
                grace = max(0.0, self._kill_at() - now)
                commands += self._steps(local_rank, ladder.ask(now, signal.SIGTERM, grace))
            commands += self._steps(local_rank, ladder.tick(now))
        return commands + self._leave_if_quiet()

    def paused(self, for_s: float) -> None:
        """The agent and its workers were stopped for so long. The lease went on: the coordinator was not stopped."""
        for ladder in self._ladders.values():
            ladder.paused(for_s)

    def wake_at(self) -> float | None:
        moments: list[float] = []
        for ladder in self._ladders.values():
            moments += [at for at in (ladder.wake_at(),) if at is not None]
            if ladder.stage in (Stage.WORKING, Stage.REMAINS):
                moments.append(self._fence_at())
            elif ladder.stage in (Stage.ASKED, Stage.REMAINS_ASKED):
                moments.append(self._kill_at())
        return min((at for at in moments if at != NEVER), default=None)

    def _fence_at(self) -> float:
        """When a node that hears nothing asks its workers to end."""
        return self._heard_at + self._rules.lease_s * FENCE_AT

    def _kill_at(self) -> float:
        """When it kills them: the rest of the lease is for their dying."""
        return self._heard_at + self._rules.lease_s * KILL_AT

    # -- how it follows -------------------------------------------------------------------------------------

    def _start(self, view: JobView, part: Part) -> list[Command]:
        self._round = view.round
        self._ladders = {local_rank: Ladder(self._rules.asks_groups) for local_rank in range(part.seat.slots)}
        self._trouble = None
        self.ends = {}
        return [StartWorkers(view.round, view.restarts, part)]

    def _end_workers(self, now: float) -> list[Command]:
        commands: list[Command] = []
        for local_rank, ladder in self._ladders.items():
            if not ladder.asked:
                commands += self._steps(local_rank, ladder.ask(now, signal.SIGTERM, self._rules.shutdown_timeout_s))
        return commands

    def _leave_if_quiet(self) -> list[Command]:
        """Leaves, once, when nothing of the workers is left and there is nothing to stay for."""
        ended = self._view if self._view is not None and self._view.phase is Phase.ENDED else None
        stuck = [rank for rank, ladder in self._ladders.items() if ladder.stage is Stage.STUCK]
        quiet = all(ladder.gone for ladder in self._ladders.values())
        if self._left or not quiet or not (ended or self.stop_signals or stuck):
            return []
        self._left = True
        if stuck:
            ranks = ", ".join(map(str, stuck))
            return [Leave(Verdict.FAILED, f"local rank {ranks} cannot be killed: it is stuck in the kernel")]
        if ended is None or ended.verdict is None or (self.stop_signals and ended.verdict is Verdict.STOPPED):
            return [Leave(Verdict.STOPPED, "stopped by a signal")]
        return [Leave(ended.verdict, ended.reason)]

    @staticmethod
    def _steps(local_rank: int, steps: list[Step]) -> list[Command]:
        commands: list[Command] = []
        for step in steps:
            match step:
                case Tell(number, group):
                    commands.append(TellWorker(local_rank, number, group))
                case Look():
                    commands.append(LookAtGroup(local_rank))
                case _:
                    never(step)
        return commands
