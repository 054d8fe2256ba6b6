"""The cluster: one virtual clock, one coordinator, a network that loses, delays, repeats and reorders.

A seed decides everything, so a run replays byte for byte. Nothing here knows what is right: that is `promises.py`.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from typing import Any

from relight.core.documents import NodeReport, Phase
from relight.core.job import Decision, Job
from relight.core.node import Node
from relight.core.values import replace

from .machine import Host
from .promises import BrokenPromise, Truth
from .weather import CALM_AT, LEASE_S, Fault, Weather, ambush, draw

END_BY = CALM_AT + 60.0  # a job that has not ended by then is stuck
INSTANT = 1e-6  # no two events happen at the same time, as no two readings of a monotonic clock are equal


class World:
    """Runs one seed."""

    def __init__(
        self,
        seed: int,
        job_class: type[Job] = Job,
        node_class: type[Node] = Node,
        weather: Weather | None = None,
        nodes: int = 3,
    ) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.weather = weather or draw(self.chance, nodes)
        self.node_class = node_class
        self.now = 0.0
        self.log: list[tuple[object, ...]] = []
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0
        self._known: dict[str, NodeReport] = {}  # whom the coordinator can answer, and the newest report of each
        self._blocked: dict[tuple[str, str], float] = {}  # until when a direction is cut
        self._alarm: float | None = None
        self.truth = Truth(self)
        self.job = job_class(self.weather.job, 0.0)
        self._decision = self.job.decision
        self.hosts = {name: Host(self, name) for name in self.weather.slots}

    # -- time -----------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Runs to the end; raises BrokenPromise, or what went wrong with the seed that shows it."""
        try:
            self._run()
        except BrokenPromise as broken:
            raise BrokenPromise(f"seed {self.seed}: {broken}\n{self.transcript()}") from None
        except Exception as error:
            raise RuntimeError(f"seed {self.seed}: {error!r}\n{self.transcript()}") from error

    def at(self, moment: float, what: Callable[..., None], *given: Any) -> None:
        self._count += 1
        heapq.heappush(self._events, (moment, self._count, what, given))

    def note(self, *what: object) -> None:
        self.log.append((self.now, *what))

    def transcript(self) -> str:
        return "\n".join([repr(self.weather), *(_line(entry) for entry in self.log)])

    def _run(self) -> None:
        for name, moment in self.weather.boots.items():
            self.at(moment, self.hosts[name].boot)
        for fault in self.weather.faults:
            self.at(fault.at, self._befall, fault)
        self._settle()
        while self._events and not self._over():
            moment, _, what, given = heapq.heappop(self._events)
            self.now = max(moment, self.now + INSTANT)
            if self.now > END_BY:
                raise BrokenPromise(f"stuck: {self._decision.phase.value}, {self._decision.reason}")
            what(*given)
            self.truth.check()

    def _over(self) -> bool:
        """The job has ended, and nobody is left who does not know."""
        ended = self._decision.phase is Phase.ENDED and self.now > CALM_AT
        hosts = [host for name, host in self.hosts.items() if name != self.weather.deaf]
        return ended and all(host.node is None and not host.workers for host in hosts)

    # -- the network ----------------------------------------------------------------------------------------

    def send_up(self, host: Host, report: NodeReport) -> None:
        self._carry((host.name, "up"), self._hear, report)

    def _send_down(self, node: str) -> None:
        report = self._known[node]
        view = self.job.view_for(report.applicant)
        self._carry((node, "down"), self.hosts[node].see, report.life, view, report.sent_at)

    def _carry(self, way: tuple[str, str], deliver: Callable[..., None], *given: Any) -> None:
        chance, weather = self.chance, self.weather
        calm = self.now >= CALM_AT
        if way == (weather.deaf, "down"):
            return
        if not calm and (self._blocked.get(way, 0.0) > self.now or chance.random() < weather.loss):
            return
        for _ in range(1 if calm or chance.random() >= weather.twice else 2):
            late = not calm and chance.random() < weather.slow
            self.at(self.now + chance.uniform(0.001, weather.slow_s if late else 0.02), deliver, *given)

    # -- the coordinator ------------------------------------------------------------------------------------

    def _hear(self, report: NodeReport) -> None:
        self.note("job", "hears", report)
        with self.truth.hears(report):
            self.job.hear(self.now, report)
        self._known[report.node] = report
        if not self._settle():
            self._send_down(report.node)

    def _settle(self) -> bool:
        """Makes a new decision known to everybody; whether there was one."""
        news = self.job.decision != self._decision
        if news:
            self.truth.decides(self._decision, self.job.decision)
            self._decision = self.job.decision
            self.note("job", "decides", self._decision)
            for node in self._known:
                self._send_down(node)
            if self.now < CALM_AT - 2 * LEASE_S and self.chance.random() < self.weather.ambush:
                for fault in ambush(self.chance, self.weather, self.now):
                    self.at(fault.at, self._befall, fault)
        due = self.job.wake_at()
        if due is not None and due != self._alarm:
            self.truth.not_overdue("job", due)
            self._alarm = due
            self.at(due, self._ring, due)
        return news

    def _ring(self, due: float) -> None:
        if self._alarm == due:
            self._alarm = None
            self.job.tick(self.now)
            self._settle()

    # -- bad luck -------------------------------------------------------------------------------------------

    def _befall(self, fault: Fault) -> None:
        host = self.hosts[fault.node]
        until = self.now + fault.for_s
        match fault.kind:
            case "crash":
                host.crash()
            case "boot":
                host.boot()
            case "stop":
                host.stop()
            case "pause" | "freeze":
                host.sleep(fault.for_s, workers_too=fault.kind == "freeze")
            case "deaf" | "mute" | "cut":
                self.note(fault.node, fault.kind, fault.for_s)
                for way in {"deaf": ("down",), "mute": ("up",), "cut": ("up", "down")}[fault.kind]:
                    self._blocked[fault.node, way] = until
            case _:
                raise AssertionError(fault.kind)


def _line(entry: tuple[object, ...]) -> str:
    moment, who, *what = entry
    return f"{moment:10.6f} {who:4} " + " ".join(_word(one) for one in what)


def _word(one: object) -> str:
    match one:
        case NodeReport():
            return f"{one.life} {one.standing.value} round {one.round} seen {one.seen} sent {one.sent_at:.6f}"
        case Decision():
            seats = [f"{seat.life}:{seat.slots}" for seat in one.roster.seats] if one.roster else []
            return repr(replace(one, roster=None, cause=None)) + f" seats {seats}"
        case float():
            return f"{one:.6f}"
        case _:
            return str(one)
