"""One host: a real `Node`, workers that are played, and the little shell between them."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from relight.core.documents import JobView, NodeReport
from relight.core.failure import WorkerEnd
from relight.core.names import ExitStatus, never
from relight.core.node import Command, Leave, LookAtGroup, Node, StartWorkers, TellWorker
from relight.core.roster import Applicant

from .weather import CALM_AT, HEARTBEAT_S, LEASE_S

if TYPE_CHECKING:
    from .world import World

DYING_S = 0.02  # how long a killed process takes to be gone
ORPHANS_S = 0.5  # from an agent's death to its workers' end, at most
HARMLESS_S = 0.15 * LEASE_S  # an agent that stands still for no longer than this keeps its lease
REACTION_S = 0.1  # from an agent's waking to its overdue workers' end


class Worker:
    """A process and what else is in its group. It ends by itself at a drawn time, or when it is told to."""

    def __init__(self, host: Host, start: StartWorkers, local_rank: int) -> None:
        world, chance = host.world, host.world.chance
        self.host = host
        self.life = host.life
        self.round = start.round
        self.local_rank = local_rank
        self.rank = start.part.places()[local_rank].rank
        self.alive = True
        self.others = chance.choice([0, 0, 0, 1])
        self.fails = world.now < CALM_AT and chance.random() < world.weather.failing
        stubborn = world.weather.stubborn
        patience: list[float | None] = [0.0, 0.1] if stubborn else [0.0, 0.1, 1.0, None]
        self.obeys_s = (
            None if stubborn == host.name else chance.choice(patience)
        )  # how soon it ends on SIGTERM; None: ignores it
        self.last_status = chance.choice([0, 1, -signal.SIGTERM])  # how it ends when it was told to
        self._in_s(world.weather.work_s * chance.random(), self._finish)

    @property
    def lives(self) -> bool:
        return self.alive or self.others > 0

    def tell(self, number: int, group: bool) -> None:
        if number == signal.SIGKILL:
            self._in_s(DYING_S * self.host.world.chance.random(), self.kill)
            return
        if self.obeys_s is None:
            return
        if self.alive:
            self._in_s(self.obeys_s, self._obey)
        if group:
            self._in_s(self.obeys_s, self._others_end)

    def kill(self) -> None:
        self._others_end()
        self._end(-signal.SIGKILL)

    def _finish(self) -> None:
        if self.alive and not self.fails:
            self.host.world.truth.finished(self)
        self._end(1 if self.fails else 0)

    def _obey(self) -> None:
        self._end(self.last_status)

    def _others_end(self) -> None:
        self.others = 0
        self.host.bury()

    def _end(self, status: int) -> None:
        if self.alive:
            self.alive = False
            self.host.world.note(self.host.name, "worker ended", self.rank, status)
            self.host.bury()
            self.host.exited(self, status)

    def _in_s(self, delay_s: float, what: object) -> None:
        """Happens after a while of this host's running time: a frozen host's workers stand still."""
        self.host.world.at(self.host.world.now + delay_s, self.host.unless_frozen, what)


class Host:
    """A machine, its agent of the moment, and the workers that run on it."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.lives = 0
        self.life = ""
        self.node: Node | None = None
        self.workers: list[Worker] = []
        self.asleep_until = 0.0  # the agent does nothing until then
        self.frozen_until = 0.0  # nor do the workers
        self.heard_at = 0.0  # when the newest report that was answered was sent
        self.slept_at = self.excused_until = 0.0
        self._team: dict[int, Worker] = {}
        self._ended: list[tuple[Worker, int]] = []
        self._reported: NodeReport | None = None
        self._sent_at = -1.0
        self._alarm: float | None = None

    # -- what happens to it ---------------------------------------------------------------------------------

    def boot(self) -> None:
        """A new agent starts, in a new life."""
        if self.node is not None:
            return
        world = self.world
        self.lives += 1
        self.life = f"{self.name}#{self.lives}"
        self.heard_at = world.now
        self.asleep_until = self.frozen_until = 0.0
        self._team, self._ended, self._reported, self._alarm = {}, [], None, None
        applicant = Applicant(self.name, world.weather.slots[self.name])
        self.node = world.node_class(applicant, self.life, world.weather.node, world.now)
        world.note(self.name, "boots", self.life)
        world.at(world.now, self._heartbeat, self.life)
        self.turn()

    def crash(self) -> None:
        """The agent is gone at once; its guardian ends the workers a little later."""
        if self.node is None:
            return
        self.world.note(self.name, "crashes")
        if self.asleep:
            self.excused_until = self.world.now + ORPHANS_S
        self.node = None
        self.frozen_until = self.asleep_until = 0.0
        for worker in self.workers:
            self.world.at(self.world.now + ORPHANS_S * self.world.chance.random(), worker.kill)

    def sleep(self, for_s: float, workers_too: bool) -> None:
        if self.node is None or self.asleep:
            return
        self.world.note(self.name, "freezes" if workers_too else "agent pauses", for_s)
        if self.world.now > self.excused_until:  # else it had hardly woken: that is one sleep
            self.slept_at = self.world.now
        self.asleep_until = self.world.now + for_s
        if workers_too:
            self.frozen_until = self.asleep_until
        self.world.at(self.asleep_until, self._wake, self.life)

    def stop(self) -> None:
        self._later_if_asleep(self.life, self._stop)

    def see(self, life: str, view: JobView, sent_at: float) -> None:
        """An answer of the coordinator, or news from it."""
        self._later_if_asleep(life, self._see, view, sent_at)

    def exited(self, worker: Worker, status: int) -> None:
        if self.node is not None and worker.life == self.life:
            self._ended.append((worker, status))
            self._later_if_asleep(self.life, self.turn)

    def bury(self) -> None:
        self.workers = [one for one in self.workers if one.lives]

    def unless_frozen(self, what: object) -> None:
        if self.world.now < self.frozen_until:
            self.world.at(self.frozen_until, self.unless_frozen, what)
        else:
            what()  # type: ignore[operator]

    @property
    def asleep(self) -> bool:
        return self.world.now < self.asleep_until

    # -- the agent's loop -----------------------------------------------------------------------------------

    def turn(self) -> None:
        """What an agent does whenever something has happened."""
        world, node = self.world, self.node
        if node is None:
            return
        if self._ended:
            ended, self._ended = self._ended, []
            self._perform(node.ended(world.now, [(self._describe(*one), one[0].others > 0) for one in ended]))
        if self.node is node:
            self._perform(node.tick(world.now))
        if self.node is node:
            report = node.report(world.now)
            if not report.repeats(self._reported):
                self._send(report)
            self._set_alarm()

    def _stop(self) -> None:
        if self.node is not None:
            self.world.note(self.name, "is told to stop")
            self._perform(self.node.stop(self.world.now, signal.SIGTERM))
            self.turn()

    def _see(self, view: JobView, sent_at: float) -> None:
        if self.node is not None:
            self.heard_at = max(self.heard_at, sent_at)
            self._perform(self.node.see(self.world.now, view, sent_at))
            self.turn()

    def _heartbeat(self, life: str) -> None:
        """Says again what it said, without looking at what is due: that is for `wake_at`."""
        if self.life == life and self.node is not None:
            if not self.asleep:
                self._send(self.node.report(self.world.now))
            self.world.at(self.world.now + HEARTBEAT_S, self._heartbeat, life)

    def _send(self, report: NodeReport) -> None:
        self._reported = report
        self.world.send_up(self, report)

    def _set_alarm(self) -> None:
        assert self.node is not None
        due = self.node.wake_at()
        if due is not None:
            self.world.truth.not_overdue(self.name, due)
        if due is not None and due != self._alarm:
            self._alarm = due
            self.world.at(due, self._ring, self.life, due)

    def _ring(self, life: str, due: float) -> None:
        if self._alarm == due:
            self._alarm = None
            self._later_if_asleep(life, self.turn)

    def _wake(self, life: str) -> None:
        if self.life == life:
            self.world.note(self.name, "wakes")
            if self.asleep_until - self.slept_at > HARMLESS_S:
                self.excused_until = self.world.now + REACTION_S
            self._later_if_asleep(life, self.turn)

    def _later_if_asleep(self, life: str, what: object, *given: object) -> None:
        """A process that does not run finds everything waiting when it does, in order."""
        if self.life != life or self.node is None:
            return
        if self.asleep:
            self.world.at(self.asleep_until, self._later_if_asleep, life, what, *given)
        else:
            what(*given)  # type: ignore[operator]

    # -- commands -------------------------------------------------------------------------------------------

    def _perform(self, commands: list[Command]) -> None:
        for command in commands:
            self.world.note(self.name, command)
            match command:
                case StartWorkers():
                    self.world.truth.starts(self, command)
                    self._team = {rank: Worker(self, command, rank) for rank in range(command.part.seat.slots)}
                    self.workers += self._team.values()
                case TellWorker(local_rank, number, group):
                    self._team[local_rank].tell(number, group)
                case LookAtGroup(local_rank):
                    assert self.node is not None
                    others = self._team[local_rank].others > 0
                    self._perform(self.node.looked(self.world.now, local_rank, others))
                case Leave():
                    self._leave(command)
                case _:
                    never(command)

    def _leave(self, command: Leave) -> None:
        assert self.node is not None
        self.world.truth.leaves(self, command)
        self._send(self.node.report(self.world.now))
        self.node = None

    def _describe(self, worker: Worker, status: int) -> WorkerEnd:
        return WorkerEnd(worker.rank, worker.local_rank, 1000 + worker.rank, ExitStatus(status), self.world.now)
