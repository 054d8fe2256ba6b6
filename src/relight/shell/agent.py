"""The agent: waits for something to happen, asks the machines, does what they say.

It owns nothing but the loop. Whatever it learns (a worker ended, a signal came, time passed) goes to `Node` as a
verb; whatever Node commands is carried out here; what Node would report goes over the link, and the answer back.
"""

from __future__ import annotations

import errno
import os
import signal
import time

from relight.core.documents import JobView, Phase, Standing, Verdict
from relight.core.job import Job, JobRules
from relight.core.launch import How
from relight.core.names import UsageError, never, signal_name
from relight.core.node import Command, Leave, LookAtGroup, Node, NodeRules, StartWorkers, TellWorker
from relight.core.page import Story
from relight.core.rollcall import RollCall
from relight.core.roster import Applicant
from relight.core.values import replace, value
from relight.shell.account import Account, hand_in
from relight.shell.clock import monotonic
from relight.shell.door import Door
from relight.shell.guardian import Guardian
from relight.shell.kernel import OomWatch
from relight.shell.link import LocalLink, LocalSeat
from relight.shell.logfiles import RunFolder
from relight.shell.loop import Loop
from relight.shell.orders import Orders
from relight.shell.outlets import Outlets
from relight.shell.ports import free_port
from relight.shell.processes import Processes, reap_strangers
from relight.shell.room import open_room
from relight.shell.signals import Signals
from relight.shell.storehost import StoreHost
from relight.shell.stuck import StuckWatch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from relight.core.failure import WorkerEnd
    from relight.core.launch import Launch
    from relight.core.names import ExitStatus
    from relight.core.opening import Refused, Terms
    from relight.core.room import Fact, Hello
    from relight.shell.outlets import Layout
    from relight.shell.processes import Commands
    from relight.shell.remote import RemoteLink

    Link = LocalLink | LocalSeat | RemoteLink

PARTING_S = 2.0


@value
class Surroundings:
    """What the agent needs to know of the place it runs in. Read once, at the door."""

    environ: Mapping[str, str]
    host: str
    python: str
    temporary: str = "/tmp"
    release: str = ""  # of relight
    reaps: bool = False  # this is the first process of a container, and whoever ends there as an orphan is ours to bury


@value
class Outcome:
    """How a run ended, as a program sees it."""

    verdict: Verdict
    reason: str
    story: Story
    stop_signal: int | None = None


class Agent:
    """One node of one job, from its first worker to its last."""

    def __init__(
        self,
        launch: Launch,
        place: Surroundings,
        commands: Commands | None = None,
        layout: Callable[[dict[int, dict[str, str]]], Layout] | None = None,
    ) -> None:
        self._launch = launch
        self._commands = commands  # what workers run instead of the launch's own command
        self._layout = layout  # where output and error files go instead of the run's own folder
        self._place = place
        self._loop = Loop()
        self._outlets = Outlets(launch.output, place.host, self._loop)
        self._oom = OomWatch()
        self._mark = os.urandom(8).hex()
        self._ended: list[tuple[int, int, ExitStatus, float]] = []
        self._account = Account(-1, ())  # of no round yet
        self._stuck = StuckWatch(launch.stuck_timeout_s)
        self._refusals: set[tuple[str, str]] = set()
        self._roll_call: RollCall | None = None
        self._leave: Leave | None = None
        self._view: JobView | None = None
        self._offered: int | None = None  # after which round a port for the workers' own store was last found
        self._store: StoreHost | None = None
        self._door: Door | None = None  # in place of the store's, where worker rank 0 hosts that
        if launch.store.shared:
            try:
                self._store = StoreHost(
                    self._loop, launch.store_binds, launch.store.port, tell=self._refused, warn=self._say
                )
            except BaseException:
                self._outlets.release()
                self._loop.close()
                raise
        applicant = Applicant(
            node=place.host,
            slots=launch.nproc_per_node,
            role=launch.role,
            store_address=launch.store.address,
            store_port=self._store.port if self._store else 0,
            hint=launch.meeting.hint if launch.meeting else None,
        )
        asks_groups = launch.how is How.PROGRAM and commands is None
        rules = NodeRules(launch.shutdown_timeout_s, asks_groups=asks_groups)
        self._node = Node(applicant, self._mark, rules, monotonic())
        self._name = place.host  # what this node is called in its job
        self._link: Link

    def run(self) -> Outcome:
        """Runs the job. However this ends, no worker is left alive."""
        as_first = (signal.SIGCHLD,) if self._place.reaps else ()
        handled = (*self._launch.signals, signal.SIGTSTP, *as_first)
        # Before anything is made that would be left behind: from here on a signal is an ordinary end of the job.
        try:
            self._signals = Signals(self._loop, handled, self._signalled)
            try:
                return self._guarded()
            finally:
                self._signals.close()
        finally:
            self._outlets.release()
            for listening in (self._store, self._door):
                if listening:
                    listening.close()
            self._loop.close()

    def _guarded(self) -> Outcome:
        """Has a guardian before there is anything that it would have to clear away."""
        self._guardian = Guardian(self._mark, self._loop, self._say)
        try:
            launch, temporary = self._launch, self._place.temporary
            self._folder = RunFolder(launch.output, launch.run_id, temporary, self._guardian.tidy)
            try:
                return self._work()
            finally:
                self._folder.tidy()
        finally:
            self._guardian.dismiss()

    def _work(self) -> Outcome:
        launch, place = self._launch, self._place
        self._processes = Processes(self._loop, self._guardian, self._note_exit)
        self._orders = Orders(
            launch, place.environ, place.python, self._folder, self._outlets, self._commands, self._layout
        )
        self._room = open_room(self._loop, self._folder, self._heard)
        self._guardian.remove(self._room.path)
        try:
            self._link = self._meet()
            try:
                return self._follow_to_the_end()
            finally:
                self._link.close()
        finally:
            self._processes.close()
            self._room.close()

    def _follow_to_the_end(self) -> Outcome:
        self._talk()
        while self._leave is None:
            self._loop.wait(self._wake_at())
            self._turn()
        outcome = self._outcome(self._leave)
        self._take_leave()
        self._tell_last()
        while not self._outlets.closed:
            self._loop.wait()
        return outcome

    # -- the others -----------------------------------------------------------------------------------------

    def _meet(self) -> Link:
        """The link to whoever decides: in this process alone, or somewhere on the network."""
        launch, meeting = self._launch, self._launch.meeting
        rules = JobRules(launch.min_nodes, launch.max_nodes, launch.budget)
        if meeting is None:
            return LocalLink(Job(rules, monotonic()), self._follow)
        from relight.shell.meet import Ears, Here, meet

        rules = replace(
            rules,
            lease_s=meeting.lease_s,
            settle_s=meeting.settle_s,
            join_timeout_s=meeting.join_timeout_s,
            last_call_s=meeting.last_call_s,
            fails_below_min=meeting.fails_below_min,
        )
        if self._store is None:  # something has to answer at a port as long as this agent lives
            self._door = Door(
                self._loop,
                launch.store_binds,
                0,
                lambda visitor, _address: visitor.close(),
                make_room=lambda: False,
                tell=self._refused,
            )
        listening = self._store or self._door
        here = Here(self._place.host, self._mark, listening.port if listening else 0, self._place.release)
        ears = Ears(self._admitted, self._follow, self._cut_off, self._say)
        return meet(self._loop, launch, meeting, rules, here, ears, self._store)

    def _admitted(self, terms: Terms) -> None:
        self._name = terms.name
        self._node.joins(monotonic(), terms.name, terms.lease_s)

    def _cut_off(self, refused: Refused) -> None:
        """No coordinator is to be had. If one has refused us for good, that is a mistake of somebody's; else an end."""
        view = self._view or JobView(-1, Phase.GATHERING, 0, "")
        if self._view is None and refused.final:
            raise UsageError(refused.what, refused.remedy or "--rdzv-endpoint HOST:PORT of a node that runs relight")
        if view.phase is not Phase.ENDED:
            end = replace(view, serial=view.serial + 1, phase=Phase.ENDED, part=None, cause=None)
            self._follow(replace(end, verdict=Verdict.FAILED, reason=refused.what), monotonic())

    def _take_leave(self) -> None:
        """Waits, not for long, until the others know what they have to know of this node, or from it."""
        self._link.tell(self._node.report(monotonic()))
        until = monotonic() + PARTING_S
        while not self._link.settled and monotonic() < until:
            self._loop.wait(min(until, self._link.wake_at() or until))
            self._link.tick(monotonic())

    # -- the turn of the loop -------------------------------------------------------------------------------

    def _wake_at(self) -> float | None:
        parts = (self._node, self._link, self._outlets, self._stuck, self._store, self._roll_call)
        moments = [part.wake_at() for part in parts if part is not None]
        return min((at for at in moments if at is not None), default=None)

    def _turn(self) -> None:
        self._outlets.tick(monotonic())
        if self._ended:
            self._room.catch_up()
            ended, self._ended = self._ended, []
            ends = [(self._describe(*one), self._processes.others(one[0])) for one in ended]
            self._perform(self._node.ended(monotonic(), ends))
        if self._place.reaps:
            reap_strangers({*self._processes.pids.values(), self._guardian.pid})
        self._perform(self._node.tick(monotonic()))
        if self._store:
            self._store.tick(monotonic())
            if self._roll_call and (missing := self._roll_call.call(monotonic(), self._store.store)):
                self._say(missing)
        if sentence := self._stuck.look(monotonic(), self._processes.pids):
            self._node.fail(sentence)
        self._link.tick(monotonic())
        self._talk()

    def _talk(self) -> None:
        """Reports whatever is new, and follows the answer, until nothing is new."""
        while self._leave is None:
            report = self._node.report(monotonic())
            if self._store is None and report.standing is Standing.READY and self._offered != report.round:
                self._offered = report.round
                self._node.offer(free_port(self._launch.store.address))
                report = self._node.report(monotonic())
            if not self._link.tell(report):
                return

    def _follow(self, view: JobView, sent_at: float) -> None:
        known = self._view
        if known is None or view.serial > known.serial:
            self._view = view
            if self._node.stop_signals:
                pass  # what the others do is not this node's affair any more
            elif view.phase is Phase.GATHERING and known is not None and view.round > 0:
                most = max(self._launch.budget.restarts, view.restarts)
                left = f"restart {view.restarts} of {most}" if view.cause else "no restart spent"
                self._say(f"{view.reason}; starting again, {left}")
            elif view.phase is Phase.RUNNING and view.part is None:
                self._say(f"round {view.round} runs without this node, which waits until it is needed")
        self._perform(self._node.see(monotonic(), view, sent_at))

    def _perform(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case StartWorkers():
                    self._start(command)
                case TellWorker(local_rank, number, group):
                    self._processes.tell(local_rank, number, group)
                case LookAtGroup(local_rank):
                    others = self._processes.others(local_rank)
                    self._perform(self._node.looked(monotonic(), local_rank, others))
                case Leave():
                    self._leave = command
                case _:
                    never(command)

    # -- commands -------------------------------------------------------------------------------------------

    def _start(self, command: StartWorkers) -> None:
        self._account = Account(command.round, command.part.places())
        if self._store:
            self._store.renew()
            self._roll_call = RollCall(command.part.world_size, monotonic())
        self._oom.remember()
        self._stuck.begin(monotonic())
        try:
            self._processes.start(self._orders.of(command, self._mark, self._room.path))
        except OSError as error:
            what = f"{error.strerror}: {error.filename}" if error.filename else error.strerror
            self._node.not_started(f"the workers could not be started: {what}{_advice(error)}")
        finally:
            self._outlets.started()

    # -- what happens ---------------------------------------------------------------------------------------

    def _note_exit(self, local_rank: int, pid: int, status: ExitStatus) -> None:
        end = (local_rank, pid, status, time.time())
        self._outlets.drain(local_rank, lambda: self._ended.append(end))

    def _describe(self, local_rank: int, pid: int, status: ExitStatus, at: float) -> WorkerEnd:
        error_file = self._orders.error_files.get(local_rank, "")
        return self._account.end_of(local_rank, pid, status, at, error_file, self._outlets.stderr_file(local_rank))

    def _signalled(self, number: int) -> None:
        if number == signal.SIGCHLD:
            return  # the turn reaps
        if number == signal.SIGTSTP:
            self._pause()
            return
        if self._leave is not None:  # the job is over, and only the console is still waited for
            self._outlets.give_up()
            return
        again = len(self._node.stop_signals)
        how = ("ending the workers", "hurrying", "killing the workers")[min(again, 2)]
        how = how if self._processes.pids else "leaving"
        self._say(f"received {signal_name(number)}: {how}")
        if again:
            self._outlets.give_up()
        self._perform(self._node.stop(monotonic(), number))

    def _pause(self) -> None:
        """Ctrl-Z: the workers have sessions of their own, so they are stopped and continued with us.

        No grace and no patience runs out meanwhile.
        """
        for local_rank in self._processes.pids:
            self._processes.tell(local_rank, signal.SIGSTOP, group=True)
        since = monotonic()
        self._signals.suspend()
        now = monotonic()
        for local_rank in self._processes.pids:
            self._processes.tell(local_rank, signal.SIGCONT, group=True)
        self._node.paused(now - since)
        self._stuck.begin(now)
        if self._roll_call:
            self._roll_call.paused(now - since)

    def _heard(self, who: Hello, fact: Fact) -> None:
        self._account.heard(who, fact)

    def _refused(self, address: str, why: str) -> None:
        """The workers' store turned somebody away. Said once: whoever knocks may knock a thousand times."""
        if (address, why) not in self._refusals and len(self._refusals) < 100:
            self._refusals.add((address, why))
            self._say(f"the workers' store closed a connection from {address}: {why}")

    def _say(self, sentence: str) -> None:
        self._outlets.say(f"relight: {sentence}")

    # -- the end --------------------------------------------------------------------------------------------

    def _tell_last(self) -> None:
        """Says what is left to say, and brings all output out."""
        for sentence in self._account.remarks():
            self._say(sentence)
        self._outlets.close()

    def _outcome(self, leave: Leave) -> Outcome:
        launch, view, round_ = self._launch, self._view, self._account.round
        story = Story(
            job=launch.run_id,
            name=launch.entrypoint,
            host=self._name,
            round=round_,
            restarts=view.restarts if view else 0,
            most_restarts=launch.budget.restarts,
            reason=leave.reason,
            cause=view.cause if view else None,
            ends=tuple(self._node.ends[local_rank] for local_rank in sorted(self._node.ends)),
            evidence=str(self._oom.since() or ""),
        )
        folder = ""
        if leave.verdict is Verdict.FAILED:
            folder = self._folder.round_folder(round_) if round_ >= 0 else self._folder.path
        report = os.path.join(folder, "report.json") if folder else ""
        story = hand_in(story, report, self._place.environ.get("TORCHELASTIC_ERROR_FILE", ""), self._say)
        stops = self._node.stop_signals
        return Outcome(leave.verdict, leave.reason, story, stops[0] if stops else None)


def _advice(error: OSError) -> str:
    return " (ulimit -n says how many files may be open)" if error.errno == errno.EMFILE else ""
