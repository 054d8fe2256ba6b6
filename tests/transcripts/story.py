"""Plays a story: real machines, joined without delay, on a clock that stands still between the lines.

    > 0 job min=2 max=3 restarts=1 lease=3      the rules; first line
    > 0 join n1 slots=2                         an agent starts, in a new life
    > 1 end n1 0 exit=1                         worker 0 of n1 ends; also signal=9, words="...", others=yes
    > 1 group n1 0 empty                        nothing is left of that worker's process group
    > 2 signal n1 SIGTERM                       the agent gets a signal
    > 3 cut n1 / mend n1                        no message gets through any more / again
    > 3 crash n1                                the agent is gone, and its workers
    > 3 broken n1 "no such file"                it can start no workers from now on
    > 9 wait                                    time passes

A line's number is its moment in seconds; on the way there everybody is woken when they asked to be.
"""

from __future__ import annotations

import shlex
import signal

from relight.core.documents import NodeReport, Phase
from relight.core.failure import Words, WorkerEnd
from relight.core.job import Decision, Job, JobRules
from relight.core.launch import Budget
from relight.core.names import ExitStatus, never, signal_name
from relight.core.node import Command, Leave, LookAtGroup, Node, NodeRules, StartWorkers, TellWorker
from relight.core.roster import Applicant

HEARTBEAT_S = 1.0


class Agent:
    """One node of a story."""

    def __init__(self, name: str, node: Node) -> None:
        self.name = name
        self.node = node
        self.reported: NodeReport | None = None
        self.shown = ""
        self.reachable = True
        self.gone = False
        self.trouble = ""
        self.ranks: dict[int, int] = {}
        self.groups: dict[int, bool] = {}  # by local rank: whether others of it are alive
        self.looks: dict[int, bool] = {}
        self.alive: set[int] = set()
        self.beat_at = 0.0


class Story:
    """Runs the lines of a transcript and collects what can be seen."""

    def __init__(self) -> None:
        self.now = 0.0
        self.out: list[str] = []
        self._job: Job | None = None
        self._decision: Decision | None = None
        self._node_rules = NodeRules()
        self._agents: dict[str, Agent] = {}
        self._lives: dict[str, int] = {}

    @property
    def job(self) -> Job:
        assert self._job is not None, "a story begins with its job"
        return self._job

    def play(self, line: str) -> None:
        """One line that happens, without its `>`."""
        _, verb, *rest = shlex.split(line)
        given = dict(word.split("=", 1) for word in rest if "=" in word)
        words = [word for word in rest if "=" not in word]
        match verb, words:
            case "job", []:
                self._begin(given)
            case "join", [name]:
                self._join(name, int(given.get("slots", "1")), given.get("role", "default"))
            case "end", [name, local_rank]:
                self._end(self._agents[name], int(local_rank), given)
            case "group", [name, local_rank, "empty"]:
                self._agents[name].groups[int(local_rank)] = False
            case "signal", [name, number]:
                agent = self._agents[name]
                self._perform(agent, agent.node.stop(self.now, signal.Signals[number]))
            case (("cut" | "mend"), [name]):
                self._agents[name].reachable = verb == "mend"
            case "crash", [name]:
                self._agents[name].gone = True
            case "broken", [name, sentence]:
                self._agents[name].trouble = sentence
            case "wait", []:
                pass
            case _:
                raise ValueError(f"no such line: {line}")
        self._talk()

    # -- time -----------------------------------------------------------------------------------------------

    def pass_until(self, until: float) -> None:
        """What happens by itself on the way to a line."""
        while (due := self._due()) <= until:
            self.now = max(self.now, due)
            for agent in self._here():
                self._perform(agent, agent.node.tick(self.now))
                if self.now >= agent.beat_at:
                    agent.reported, agent.beat_at = None, self.now + HEARTBEAT_S
            self.job.tick(self.now)
            self._talk()
        self.now = until

    def _due(self) -> float:
        if self._job is None:
            return float("inf")
        moments = [agent.node.wake_at() for agent in self._here()]
        moments += [agent.beat_at for agent in self._here() if self._node_rules.lease_s < float("inf")]
        return min((at for at in (*moments, self._job.wake_at()) if at is not None), default=float("inf"))

    def _here(self) -> list[Agent]:
        return [agent for agent in self._agents.values() if not agent.gone]

    # -- what happens ---------------------------------------------------------------------------------------

    def _begin(self, given: dict[str, str]) -> None:
        intensity, _, period = given.get("rate", "").partition("/")
        most = int(given.get("restarts", "0"))
        budget = Budget(most, int(intensity), float(period)) if intensity else Budget(most)
        lease_s = float(given.get("lease", "inf"))
        settle_s, join_s = float(given.get("settle", "0.5")), float(given.get("join", "600"))
        rules = JobRules(int(given.get("min", "1")), int(given.get("max", "1")), budget, lease_s, settle_s, join_s)
        self._node_rules = NodeRules(float(given.get("shutdown", "30")), lease_s)
        self._job = Job(rules, self.now)

    def _join(self, name: str, slots: int, role: str) -> None:
        self._lives[name] = self._lives.get(name, 0) + 1
        applicant = Applicant(name, slots, role)
        self._agents[name] = Agent(name, Node(applicant, f"{name}#{self._lives[name]}", self._node_rules, self.now))

    def _end(self, agent: Agent, local_rank: int, given: dict[str, str]) -> None:
        status = ExitStatus(-int(given["signal"]) if "signal" in given else int(given["exit"]))
        words = Words(given["words"]) if "words" in given else None
        agent.alive.discard(local_rank)
        agent.groups[local_rank] = others = given.get("others") == "yes"
        end = WorkerEnd(agent.ranks[local_rank], local_rank, 1000 + local_rank, status, self.now, words=words)
        self._perform(agent, agent.node.ended(self.now, [(end, others)]))

    # -- what follows ---------------------------------------------------------------------------------------

    def _talk(self) -> None:
        """Everybody says what is new and hears what is new, until nothing is."""
        again = True
        while again:
            again = self._announce()
            for agent in self._here():
                if agent.reachable and not agent.gone:
                    again = self._exchange(agent) or again

    def _exchange(self, agent: Agent) -> bool:
        report = agent.node.report(self.now)
        if report.repeats(agent.reported):
            return False
        agent.reported = report
        self._say_report(agent, report)
        self.job.hear(self.now, report)
        self._announce()
        self._see(agent, report)
        return True

    def _announce(self) -> bool:
        """Shows a new decision, and tells everybody."""
        view = self.job.decision
        if view == self._decision:
            return False
        self._decision = view
        verdict = f" {view.verdict.value}" if view.verdict else ""
        self._show(
            "job",
            f"{view.serial}: {view.phase.value}{verdict}, round {view.round}, restart {view.restarts}: {view.reason}",
        )
        if view.phase is Phase.RUNNING and view.roster:
            for node, part in view.roster.parts().items():
                ranks = ", ".join(str(place.rank) for place in part.places())
                self._show("job", f"  seat {part.seat.group_rank}: {node}, ranks {ranks} of {part.world_size}")
        for agent in self._here():
            if agent.reachable and agent.reported is not None:
                self._see(agent, agent.reported)
        return True

    def _see(self, agent: Agent, report: NodeReport) -> None:
        view = self.job.view_for(report.applicant)
        self._perform(agent, agent.node.see(self.now, view, report.sent_at))

    def _perform(self, agent: Agent, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case StartWorkers():
                    self._start(agent, command)
                case TellWorker(local_rank, number, group):
                    whom = f"the group of worker {local_rank}" if group else f"worker {local_rank}"
                    self._show(agent.name, f"tells {whom} {signal_name(number)}")
                case LookAtGroup(local_rank):
                    self._look(agent, local_rank)
                case Leave(verdict, reason):
                    self._show(agent.name, f"leaves, {verdict.value}: {reason}")
                    agent.gone = True
                    if agent.reachable:
                        self.job.hear(self.now, agent.node.report(self.now))
                case _:
                    never(command)

    def _start(self, agent: Agent, command: StartWorkers) -> None:
        agent.ranks = {place.local_rank: place.rank for place in command.part.places()}
        agent.alive = set(agent.ranks)
        agent.groups, agent.looks = {}, {}
        ranks = ", ".join(str(rank) for rank in agent.ranks.values())
        self._show(agent.name, f"starts round {command.round}, restart {command.restarts}: ranks {ranks}")
        if agent.trouble:
            agent.node.not_started(agent.trouble)

    def _look(self, agent: Agent, local_rank: int) -> None:
        """Shows what a look finds, unless it is what the last one found."""
        others = agent.groups.get(local_rank, False) or local_rank in agent.alive
        if agent.looks.get(local_rank) is not others:
            found = "somebody" if others else "nobody"
            self._show(agent.name, f"looks at the group of worker {local_rank}: {found}")
        agent.looks[local_rank] = others
        self._perform(agent, agent.node.looked(self.now, local_rank, others))

    def _say_report(self, agent: Agent, report: NodeReport) -> None:
        said = f"is {report.standing.value}, round {report.round}, has seen {report.seen}"
        if report.cause:
            said += f": {report.cause.sentence}"
        if said != agent.shown:
            self._show(agent.name, said)
        agent.shown = said

    def _show(self, who: str, what: str) -> None:
        self.out.append(f"{self.now:9.3f}  {who:4} {what}")


def replay(text: str) -> str:
    """The transcript as it would be written today."""
    story = Story()
    for line in text.splitlines():
        if line.startswith(">"):
            story.pass_until(float(line.split()[1]))
            if story.out and not story.out[-1].startswith(">"):
                story.out.append("")
            story.out.append(line)
            story.play(line[1:])
        elif line.startswith("#"):
            story.out.append(line)
    return "\n".join(story.out) + "\n"
