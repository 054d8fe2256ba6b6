"""What must hold in every world, and exactly how far it is promised.

Two rounds never have live processes at the same time, no rank is alive twice, and the workers of a node that hears
nothing are gone when its lease is over. The one exception is a host whose agent has stood still for longer than
`HARMLESS_S`, because somebody stopped the process: its workers may outlive the lease, until `REACTION_S` after the
agent runs again, or until the guardian has ended them. If the whole host stood still its workers did nothing
meanwhile, and what they do in that first moment store and snapshots refuse.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from relight.core.documents import NodeReport, Phase, Standing, Verdict
from relight.core.job import Decision
from relight.core.node import Leave, StartWorkers

from .machine import HARMLESS_S, Host

if TYPE_CHECKING:
    from .machine import Worker
    from .world import World


class BrokenPromise(AssertionError):
    """Something that must hold did not. Begins with the seed, ends with the transcript."""


def insist(holds: bool, otherwise: str) -> None:
    if not holds:
        raise BrokenPromise(otherwise)


class Truth:
    """What an all-seeing observer knows, and compares with what the machines say."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._started: set[tuple[str, int]] = set()
        self._starts: dict[int, StartWorkers] = {}
        self._finished: dict[int, set[int]] = {}  # ranks that ended well by themselves, by round
        self._told_done: set[str] = set()  # nodes that told the coordinator so, in this round
        self._newest: dict[str, float] = {}  # of the reports that arrived, by life
        self._newest_life: dict[str, int] = {}  # of those that the job takes for members, by node
        self._anew: dict[str, int] = {}
        self._broken_off: list[float] = []
        self.rounds = 0

    # -- at every event -------------------------------------------------------------------------------------

    def check(self) -> None:
        rounds: set[int] = set()
        ranks: set[int] = set()
        for host in self._world.hosts.values():
            if not host.workers or self._excused(host):
                continue
            for worker in host.workers:
                if worker.lives:
                    within = host.node is None or self._world.now <= host.heard_at + self._world.weather.node.lease_s
                    insist(within, f"{host.name} works on when its lease is over")
                    rounds.add(worker.round)
                    insist(worker.rank not in ranks or len(rounds) > 1, f"rank {worker.rank} is alive twice")
                    ranks.add(worker.rank)
        insist(len(rounds) < 2, f"rounds {sorted(rounds)} are alive at the same time")

    def _excused(self, host: Host) -> bool:
        """Whether its agent did not run for so long that it could not keep its lease, or has just begun to again."""
        asleep = host.asleep and self._world.now - host.slept_at > HARMLESS_S
        return asleep or self._world.now <= host.excused_until

    # -- what a node does -----------------------------------------------------------------------------------

    def starts(self, host: Host, command: StartWorkers) -> None:
        insist((host.name, command.round) not in self._started, f"{host.name} starts round {command.round} twice")
        self._started.add((host.name, command.round))
        first = self._starts.setdefault(command.round, command)
        insist(command.restarts == first.restarts, f"round {command.round} is restart {first.restarts} only elsewhere")
        insist(_whole(command) == _whole(first), f"round {command.round} is not the same everywhere")
        seat = command.part.seat
        insist((seat.node, seat.life) == (host.name, host.life), f"{host.life} sits in the seat of {seat.life}")
        insist(not host.asleep, "a sleeping agent starts workers")
        for other in self._world.hosts.values():
            if other is not host and not self._excused(other):
                rounds = {worker.round for worker in other.workers if worker.lives} - {command.round}
                insist(not rounds, f"{host.name} starts round {command.round} while {rounds} is alive")

    def finished(self, worker: Worker) -> None:
        self._finished.setdefault(worker.round, set()).add(worker.rank)

    def leaves(self, host: Host, command: Leave) -> None:
        insist(not any(worker.lives for worker in host.workers if worker.life == host.life), "it leaves workers behind")
        _sentence(command.reason)
        view = self._world.job.decision
        if command.verdict is not Verdict.STOPPED:
            insist((command.verdict, command.reason) == (view.verdict, view.reason), "it tells another end")

    def not_overdue(self, who: str, due: float) -> None:
        insist(due > self._world.now, f"{who} wants to be woken in the past")

    # -- what the job decides -------------------------------------------------------------------------------

    @contextmanager
    def hears(self, report: NodeReport) -> Iterator[None]:
        """A report that was overtaken, by its own life or by a later one, must change nothing."""
        job = self._world.job
        before = job.decision, job.wake_at()
        number = int(report.life.partition("#")[2])
        overtaken = number < self._newest_life.get(report.node, 0) or report.sent_at < self._newest.get(report.life, 0)
        going = report.standing in (Standing.LEAVING, Standing.LEFT)
        if not overtaken and report.seen == job.decision.serial and not going:
            self._newest_life[report.node] = max(number, self._newest_life.get(report.node, 0))
        if report.standing is Standing.DONE and report.round == job.decision.round:
            self._told_done.add(report.node)
        yield
        if overtaken:
            insist((job.decision, job.wake_at()) == before, f"an overtaken report of {report.life} changed something")
        self._newest[report.life] = max(report.sent_at, self._newest.get(report.life, 0.0))

    def decides(self, before: Decision, after: Decision) -> None:
        rules = self._world.weather.job
        insist(before.phase is not Phase.ENDED, "a job that ended goes on")
        insist(after.serial > before.serial, "a newer decision has no larger serial")
        insist(before.restarts <= after.restarts <= rules.budget.restarts, f"{after.restarts} restarts")
        _sentence(after.reason)
        match after.phase:
            case Phase.GATHERING:
                insist(after.round == before.round + 1, "a gathering is for the next round")
                self._check_reason(before, after)
            case Phase.RUNNING:
                self.rounds += 1
                self._told_done.clear()
                self._check_roster(after)
            case Phase.ENDED:
                insist(after.verdict is not None, "an end has a verdict")
                if after.verdict is Verdict.SUCCEEDED:
                    assert after.roster is not None
                    done = self._finished.get(after.round, set())
                    insist(done == set(range(after.roster.world_size)), "success, but not every worker finished")

    def _check_reason(self, before: Decision, after: Decision) -> None:
        """Nobody's work is broken off without need, nor more often than allowed."""
        rules, now = self._world.weather.job, self._world.now
        if after.reason.endswith("joined"):
            assert before.roster is not None
            insist(len(before.roster.seats) < rules.max_nodes, "a newcomer breaks off a full round")
            insist(not self._told_done, "a newcomer makes finished workers work again")
            return
        if after.reason.endswith((" is leaving", " left")):
            return
        self._broken_off = [at for at in self._broken_off if at > now - rules.budget.period_s] + [now]
        if rules.budget.intensity is not None:
            insist(len(self._broken_off) <= rules.budget.intensity, "the job begins anew too often")
        if after.cause is not None:
            return
        name = after.reason.split()[0]
        host = self._world.hosts[name]
        insist(name not in self._told_done, "finished workers work again for the loss of a node that had finished")
        seats = before.roster.seats if before.roster else ()
        if "could not hear" in after.reason and host.node is not None and host.life in {seat.life for seat in seats}:
            insist(host.node.report(now).seen >= before.serial, f"{name} has not even seen what it should follow")
        if "started anew" in after.reason:
            self._anew[name] = self._anew.get(name, 0) + 1
            insist(self._anew[name] < host.lives, f"{name} was not started so often")

    def _check_roster(self, view: Decision) -> None:
        rules, roster = self._world.weather.job, view.roster
        assert roster is not None
        insist(rules.min_nodes <= len(roster.seats) <= rules.max_nodes, f"a round on {len(roster.seats)} nodes")
        for seat in roster.seats:
            number = int(seat.life.partition("#")[2])
            insist(number >= self._newest_life[seat.node], f"a seat for {seat.life}, which is no more")
        places = [place for part in roster.parts().values() for place in part.places()]
        insist(sorted(place.rank for place in places) == list(range(roster.world_size)), "ranks have gaps")


def _whole(command: StartWorkers) -> tuple[object, ...]:
    """What all nodes of a round have to agree on."""
    part = command.part
    return part.world_size, part.group_world_size, part.store_address, part.store_port


def _sentence(reason: str) -> None:
    whole = len(reason.split()) >= 2 and reason == reason.strip() and reason.isprintable() and reason[-1] not in ".;,:"
    insist(whole and "None" not in reason, f"{reason!r} is no reason")
