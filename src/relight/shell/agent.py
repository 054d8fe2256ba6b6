"""The agent: waits for something to happen, asks the machines, does what they say.

It owns nothing but the loop. Whatever it learns (a worker ended, a signal came, time passed) goes to `Node` as a
verb; whatever Node commands is carried out here; what Node would report goes over the link, and the answer back.
"""

from __future__ import annotations

import errno
import os
import signal
import time

from relight.core.documents import Phase, Standing, Verdict
from relight.core.environment import Round, worker_command, worker_environment
from relight.core.failure import CRASHES, WorkerEnd
from relight.core.job import Job, JobRules
from relight.core.names import UsageError, never
from relight.core.node import Command, Leave, LookAtGroup, Node, NodeRules, StartWorkers, TellWorker
from relight.core.page import Story, as_json
from relight.core.rollcall import AFTER_S, absentees
from relight.core.room import Closed, Returned, Step
from relight.core.roster import Applicant
from relight.core.values import replace, value
from relight.shell.clock import monotonic
from relight.shell.errorfiles import pass_on, words_in, write_whole
from relight.shell.guardian import MARK, Guardian
from relight.shell.kernel import OomWatch
from relight.shell.link import LocalLink
from relight.shell.logfiles import RunFolder, last_lines
from relight.shell.loop import Loop
from relight.shell.outlets import Outlets
from relight.shell.ports import free_port
from relight.shell.processes import Order, Processes
from relight.shell.room import Room
from relight.shell.signals import Signals
from relight.shell.storehost import StoreHost
from relight.shell.stuck import StuckWatch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from relight.core.documents import JobView, NodeReport
    from relight.core.launch import Launch
    from relight.core.names import ExitStatus
    from relight.core.room import Fact, Hello
    from relight.core.roster import Place
    from relight.shell.outlets import Layout
    from relight.shell.processes import Commands

MOST_REMARKS = 8  # of different kinds, by the workers' start-up shims


@value
class Surroundings:
    """What the agent needs to know of the place it runs in. Read once, at the door."""

    environ: Mapping[str, str]
    host: str
    python: str
    temporary: str = "/tmp"


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
        self._error_files: dict[int, str] = {}
        self._place = place
        self._loop = Loop()
        self._outlets = Outlets(launch.output, place.host, self._loop)
        self._say = self._outlets.say
        self._oom = OomWatch()
        self._mark = os.urandom(8).hex()
        self._ended: list[tuple[int, int, ExitStatus, float]] = []
        self._places: dict[int, Place] = {}
        self._steps: dict[int, int] = {}
        self._remarks: dict[str, set[int]] = {}  # what to say at the end, once, and of which local ranks
        self._returned: set[int] = set()
        self._stuck = StuckWatch(launch.stuck_timeout_s)
        self._refusals: set[tuple[str, str]] = set()
        self._began_at = 0.0
        self._roll_calls: tuple[float, ...] = ()  # when to ask who is missing in the workers' store
        self._leave: Leave | None = None
        self._view: JobView | None = None
        self._reported: NodeReport | None = None
        self._round: Round | None = None
        self._store: StoreHost | None = None
        if launch.store.shared:
            try:
                self._store = StoreHost(self._loop, launch.store.address, launch.store.port, tell=self._refused)
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
        )
        now = monotonic()
        rules = JobRules(launch.min_nodes, launch.max_nodes, launch.budget)
        self._link = LocalLink(Job(rules, now))
        self._node = Node(applicant, self._mark, NodeRules(launch.shutdown_timeout_s), now)

    def run(self) -> Outcome:
        """Runs the job. However this ends, no worker is left alive."""
        as_first = (signal.SIGCHLD,) if os.getpid() == 1 else ()
        handled = (*self._launch.signals, signal.SIGTSTP, *as_first)
        # Before anything is made that would be left behind: from here on a signal is an ordinary end of the job.
        try:
            self._signals = Signals(self._loop, handled, self._signalled)
            try:
                self._folder = RunFolder(self._launch.output, self._launch.run_id, self._place.temporary)
                return self._work()
            finally:
                self._signals.close()
        finally:
            self._outlets.release()
            if self._store:
                self._store.close()
            self._loop.close()

    def _work(self) -> Outcome:
        self._guardian = Guardian(self._mark, self._loop)
        self._processes = Processes(self._loop, self._guardian, self._note_exit)
        self._room = self._open_room()
        self._guardian.remove(self._room.path)
        for folder in self._folder.private:
            self._guardian.tidy(folder)
        try:
            self._talk()
            while self._leave is None:
                self._loop.wait(self._wake_at())
                self._turn()
            outcome = self._outcome(self._leave)
            self._tell_last()
            while not self._outlets.closed:
                self._loop.wait()
            return outcome
        finally:
            self._processes.close()
            self._room.close()
            self._guardian.dismiss()
            self._folder.tidy()

    def _open_room(self) -> Room:
        """The workers' socket in the run's folder, or in a temporary one where that file system has no sockets."""
        try:
            return Room(self._loop, self._folder.socket_path(), self._heard)
        except OSError:
            path = self._folder.other_socket_path()
        try:
            return Room(self._loop, path, self._heard)
        except OSError as error:
            raise UsageError(
                f"the workers' socket cannot be made at {path}: {error.strerror}",
                "TMPDIR=<a folder that can be written to> relight ...",
            ) from None

    # -- the turn of the loop -------------------------------------------------------------------------------

    def _wake_at(self) -> float | None:
        moments = [part.wake_at() for part in (self._node, self._link, self._outlets, self._stuck)]
        return min((at for at in (*moments, *self._roll_calls) if at is not None), default=None)

    def _turn(self) -> None:
        self._outlets.tick(monotonic())
        if self._ended:
            self._room.catch_up()
            ended, self._ended = self._ended, []
            ends = [(self._describe(*one), self._processes.others(one[0])) for one in ended]
            self._perform(self._node.ended(monotonic(), ends))
        if os.getpid() == 1:
            self._reap_strangers()
        self._perform(self._node.tick(monotonic()))
        self._call_the_roll(monotonic())
        if sentence := self._stuck.look(monotonic(), self._processes.pids):
            self._node.fail(sentence)
        self._follow(self._link.tick(monotonic()), monotonic())
        self._talk()

    def _talk(self) -> None:
        """Reports whatever is new, and follows the answer, until nothing is new."""
        while self._leave is None:
            now = monotonic()
            report = self._node.report(now)
            if self._reported is not None and replace(report, sent_at=self._reported.sent_at) == self._reported:
                return
            if self._store is None and report.standing is Standing.READY:
                self._node.offer(free_port(self._launch.store.address))
                report = self._node.report(now)
            self._reported = report
            self._follow(self._link.exchange(now, report), now)

    def _follow(self, view: JobView, sent_at: float) -> None:
        if self._view is None or view.serial > self._view.serial:
            self._view = view
            if view.phase is Phase.GATHERING and view.round > 0:
                left = (
                    f"restart {view.restarts} of {self._launch.budget.restarts}" if view.cause else "no restart spent"
                )
                self._say(f"relight: {view.reason}; starting again, {left}")
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
        round_ = self._round = Round(command.round, command.restarts, command.roster)
        self._places = {place.local_rank: place for place in command.places}
        self._steps, self._remarks, self._returned = {}, {}, set()
        if self._store:
            self._store.renew()
            self._began_at = monotonic()
            self._roll_calls = tuple(self._began_at + after_s for after_s in AFTER_S)
        self._oom.remember()
        self._stuck.begin(monotonic())
        try:
            self._folder.make(command.round, len(command.places))
            worlds = {place.local_rank: self._world(round_, place) for place in command.places}
            layout = self._layout(worlds) if self._layout else None
            # A layout of somebody else's names error files of its own.
            self._error_files = {rank: world.get("TORCHELASTIC_ERROR_FILE", "") for rank, world in worlds.items()}
            self._outlets.begin(self._folder.round_folder(command.round), layout)
            self._processes.start([self._order(round_, place, worlds[place.local_rank]) for place in command.places])
        except OSError as error:
            what = f"{error.strerror}: {error.filename}" if error.filename else error.strerror
            self._node.not_started(f"the workers could not be started: {what}{_advice(error)}")
        finally:
            self._outlets.started()

    def _world(self, round_: Round, place: Place) -> dict[str, str]:
        """What one worker finds in os.environ."""
        launch = self._launch
        folder = self._folder.worker_folder(round_.number, place.local_rank)
        environment = worker_environment(self._place.environ, launch, round_, place, _error_file(folder))
        environment[MARK] = self._mark
        environment["RELIGHT_LOCAL_RANK"] = str(place.local_rank)
        environment["RELIGHT_ROUND"] = str(round_.number)
        environment["RELIGHT_SOCKET"] = self._room.path
        if launch.forgives_teardown:
            environment["RELIGHT_TIDY_EXIT"] = str(os.getpid())
        return environment

    def _order(self, round_: Round, place: Place, environment: dict[str, str]) -> Order:
        launch, commands = self._launch, self._commands
        stdout, stderr = self._outlets.streams(place, self._folder.worker_folder(round_.number, place.local_rank))
        program = () if commands else worker_command(launch, place, launch.python or self._place.python)
        return Order(
            local_rank=place.local_rank,
            command=commands.of(round_.number, place.local_rank) if commands else program,
            environment=environment,
            stdout=stdout,
            stderr=stderr,
            cpus=launch.cpus[place.local_rank] if launch.cpus else (),
            keeps=commands.keeps if commands else (),
        )

    # -- what happens ---------------------------------------------------------------------------------------

    def _note_exit(self, local_rank: int, pid: int, status: ExitStatus) -> None:
        end = (local_rank, pid, status, time.time())
        self._outlets.drain(local_rank, lambda: self._ended.append(end))

    def _describe(self, local_rank: int, pid: int, status: ExitStatus, at: float) -> WorkerEnd:
        """A worker's end with everything it left behind to say about it."""
        if local_rank in self._returned and status.signal in CRASHES:
            what = f"{status} after its script had returned, and counts as finished"
            self._remarks.setdefault(what, set()).add(local_rank)
        assert self._round is not None
        stderr_file = self._outlets.stderr_file(local_rank)
        error_file = self._error_files.get(local_rank, "")
        return WorkerEnd(
            rank=self._places[local_rank].rank,
            local_rank=local_rank,
            pid=pid,
            status=status,
            at=at,
            words=None if status.ok else words_in(error_file),
            error_file=error_file,
            step=self._steps.get(local_rank),
            returned=local_rank in self._returned,
            stderr_file=stderr_file,
            tail=() if status.ok else last_lines(stderr_file),
        )

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
        self._say(f"relight: received {signal.Signals(number).name}: {how}")
        if again:
            self._outlets.give_up()
        self._perform(self._node.stop(monotonic(), number))

    def _pause(self) -> None:
        """Ctrl-Z: the workers have sessions of their own, so they are stopped and continued with us."""
        for local_rank in self._processes.pids:
            self._processes.tell(local_rank, signal.SIGSTOP, group=True)
        self._signals.suspend()
        for local_rank in self._processes.pids:
            self._processes.tell(local_rank, signal.SIGCONT, group=True)

    def _heard(self, who: Hello, fact: Fact) -> None:
        if self._round is None or who.round != self._round.number or who.local_rank not in self._places:
            return
        if isinstance(fact, Step):
            self._steps[who.local_rank] = fact.step
        elif isinstance(fact, Returned):
            self._returned.add(who.local_rank)
        elif isinstance(fact, Closed) and (fact.what in self._remarks or len(self._remarks) < MOST_REMARKS):
            self._remarks.setdefault(fact.what, set()).add(who.local_rank)

    def _refused(self, address: str, why: str) -> None:
        """The workers' store turned somebody away. Said once: whoever knocks may knock a thousand times."""
        if (address, why) not in self._refusals and len(self._refusals) < 100:
            self._refusals.add((address, why))
            self._say(f"relight: the workers' store closed a connection from {address}: {why}")

    def _call_the_roll(self, now: float) -> None:
        """Names the ranks for which the others wait in `init_process_group`."""
        if self._store is None or self._round is None or not self._roll_calls or now < self._roll_calls[0]:
            return
        self._roll_calls = self._roll_calls[1:]
        world_size = self._round.roster.world_size
        store = self._store.store
        if sentence := absentees(world_size, store.arrived(world_size), store.counted, now - self._began_at):
            self._say(f"relight: {sentence}")

    def _reap_strangers(self) -> None:
        """As the first process of a container: ended orphans that nobody else waits for."""
        mine = {*self._processes.pids.values(), self._guardian.pid}
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None or ended.si_pid in mine:
                return
            os.waitpid(ended.si_pid, os.WNOHANG)

    # -- the end --------------------------------------------------------------------------------------------

    def _tell_last(self) -> None:
        """Says what is left to say, and brings all output out."""
        for what, local_ranks in self._remarks.items():
            self._say(f"relight: local rank {', '.join(map(str, sorted(local_ranks)))} {what}")
        self._outlets.close()

    def _outcome(self, leave: Leave) -> Outcome:
        launch, view, round_ = self._launch, self._view, self._round
        number = round_.number if round_ else 0
        folder = self._folder.round_folder(number)
        report = os.path.join(folder, "report.json") if folder and leave.verdict is Verdict.FAILED else ""
        story = Story(
            job=launch.run_id,
            name=launch.entrypoint,
            host=self._place.host,
            round=number,
            restarts=view.restarts if view else 0,
            most_restarts=launch.budget.restarts,
            reason=leave.reason,
            cause=view.cause if view else None,
            ends=tuple(self._node.ends[local_rank] for local_rank in sorted(self._node.ends)),
            evidence=str(self._oom.since() or ""),
            report=report,
        )
        if report:
            try:
                write_whole(report, as_json(story))
            except OSError as error:
                self._say(f"relight: {report} could not be written: {error.strerror}")
                story = replace(story, report="")
        parent = self._place.environ.get("TORCHELASTIC_ERROR_FILE")
        first = story.first_cause
        if parent and first and first.end and (trouble := pass_on(first.end, parent)):
            self._say(f"relight: {trouble}")
        stops = self._node.stop_signals
        return Outcome(leave.verdict, leave.reason, story, stops[0] if stops else None)


def _advice(error: OSError) -> str:
    return " (ulimit -n says how many files may be open)" if error.errno == errno.EMFILE else ""


def _error_file(folder: str) -> str:
    return os.path.join(folder, "error.json") if folder else ""
