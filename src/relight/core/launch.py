"""Launch: what the user asked for, checked and frozen.

Made once, by `cli.plan` or by a program that calls `relight.run(Launch(...))`, and never changed afterwards.
Every field has the name of torchrun's option where there is one. What only the machine can answer (how many
accelerators, which address) is answered before a Launch is made.
"""

from __future__ import annotations

import enum
import signal

from relight.core.names import UsageError, signal_name, why_no_word
from relight.core.streams import NOWHERE, StreamChoice
from relight.core.values import value

C10D_PORT = 29400  # where nodes meet if nobody says
MOST_WORKERS = 10_000  # on one node; far above what anybody runs, far below what eats a machine


class How(enum.Enum):
    """What the entry point is."""

    SCRIPT = "script"  # python -u script.py
    MODULE = "module"  # python -u -m module
    PROGRAM = "program"  # the program itself, found as a shell would
    RUN_PATH = "run-path"  # the script as a function in a Python child, `__main__` by runpy


class ExitCodes(enum.Enum):
    """Which exit codes the launcher itself uses."""

    TORCHRUN = "torchrun"  # 0, 1, 2 and nothing else
    DETAILED = "detailed"  # see relight.core.verdict


@value
class Budget:
    """How many restarts: at most `restarts` in all, and at most `intensity` within any `period_s` seconds."""

    restarts: int = 0
    intensity: int | None = None
    period_s: float = 0.0

    def check(self) -> None:
        if self.restarts < 0:
            raise UsageError(f"--max-restarts {self.restarts} is below zero", "--max-restarts 0 for none")
        if self.intensity is not None and not (self.intensity >= 0 and self.period_s > 0):
            raise UsageError(
                f"--restart-rate {self.intensity}/{self.period_s:g}s is not a rate",
                "--restart-rate 5/600 for at most 5 restarts in 600 seconds",
            )


@value
class Store:
    """Where the workers' own store answers."""

    shared: bool = True  # the agent hosts it; False: worker rank 0 does, on a port the agent found free
    address: str = "127.0.0.1"  # MASTER_ADDR
    port: int = 0  # 0: any free one


@value
class Meeting:
    """How the nodes of a job find each other, and how patient they are."""

    host: str
    port: int
    hosts: bool | None = None  # whether this node's agent runs the coordinator; None: if `host` is this machine
    on_store: bool = False  # the coordinator and the workers' store answer at one port (static)
    token: str = ""  # what all nodes of the job know, and nobody else; empty: nothing is to be proved
    hint: int | None = None  # the place that this node is to have
    join_timeout_s: float = 600.0
    settle_s: float = 3.0  # the first round begins when nobody new has come for so long
    last_call_s: float = 30.0  # or so long after there were enough
    lease_s: float = 5.0  # how long a node may be silent
    fails_below_min: bool = False

    def __repr__(self) -> str:
        return f"Meeting({self.host!r}, {self.port})"  # never the token


@value
class Output:
    """Where the workers' output goes."""

    log_dir: str | None = None  # None: a temporary folder, gone at the end if nothing was written to it
    redirects: StreamChoice = NOWHERE
    tee: StreamChoice = NOWHERE
    local_ranks: tuple[int, ...] | None = None  # whose output reaches the console; None or empty: everybody's
    stdout_needles: tuple[str, ...] = ()
    stderr_needles: tuple[str, ...] = ()
    prefix_template: str | None = None  # None or empty: `[role0]:`
    plug_in: str | None = None  # an entry point of `torchrun.logs_specs` that says where output goes instead

    @property
    def keeps_files(self) -> bool:
        return self.log_dir != "/dev/null"


@value
class Launch:
    """One job as one node is asked to run it."""

    entrypoint: str
    args: tuple[str, ...] = ()
    how: How = How.SCRIPT
    nproc_per_node: int = 1
    min_nodes: int = 1
    max_nodes: int = 1
    role: str = "default"
    run_id: str = ""
    budget: Budget = Budget()
    store: Store = Store()
    output: Output = Output()
    shutdown_timeout_s: float = 30.0
    signals: tuple[int, ...] = (15, 2, 1, 3)
    virtual_local_rank: bool = False
    cpus: tuple[tuple[int, ...], ...] = ()  # for each local rank, the CPUs it is bound to; empty: not bound
    python: str = ""  # the workers' interpreter; empty: the one that runs relight
    threads: str | None = None  # OMP_NUM_THREADS for workers, None: as inherited
    passes_local_rank: bool = False  # torch.distributed.launch's --local-rank=N before the script's arguments
    exit_codes: ExitCodes = ExitCodes.TORCHRUN
    forgives_teardown: bool = True  # an abort after the main module has returned counts as finished
    stuck_timeout_s: float = 0.0  # a worker that stays uninterruptible (state D) for so long; 0: no limit
    meeting: Meeting | None = None  # None: a job of one node, which meets nobody

    def check(self) -> None:
        if not self.entrypoint:
            raise UsageError("no script was named", "relight [options] train.py [its arguments]")
        self._check_kinds()
        self._check_words()
        self._check_signals()
        if self.nproc_per_node > MOST_WORKERS:
            raise UsageError(
                f"--nproc-per-node {self.nproc_per_node} asks for more workers than one node can have",
                f"--nproc-per-node {MOST_WORKERS} or fewer",
            )
        if self.nproc_per_node < 1:
            raise UsageError(
                f"--nproc-per-node {self.nproc_per_node} asks for no worker at all",
                "--nproc-per-node 1 or more",
            )
        if not self.shutdown_timeout_s >= 0:
            raise UsageError(
                f"--shutdown-timeout {self.shutdown_timeout_s:g} is not zero or more",
                "--shutdown-timeout 30, in seconds",
            )
        if not 1 <= self.min_nodes <= self.max_nodes:
            raise UsageError(
                f"--nnodes {self.min_nodes}:{self.max_nodes} asks for at least {self.min_nodes} and "
                f"at most {self.max_nodes} nodes",
                "--nnodes {}:{}".format(*sorted((max(1, self.min_nodes), max(1, self.max_nodes)))),
            )
        if self.max_nodes > 1 and self.meeting is None:
            raise UsageError(
                f"--nnodes {self.max_nodes} asks for nodes that meet nowhere",
                "--rdzv-backend c10d --rdzv-endpoint HOST:29400 as well, the same on every node",
            )
        if self.cpus and len(self.cpus) != self.nproc_per_node:
            raise UsageError(
                f"{len(self.cpus)} CPU sets were given for {self.nproc_per_node} workers",
                "one set for each worker",
            )

    def _check_kinds(self) -> None:
        """Refuses what type checkers would, in words: a program finds out here, and not in the middle of a launch."""
        if type(self.nproc_per_node) is not int:
            raise UsageError(f"nproc_per_node={self.nproc_per_node!r} is no number", "nproc_per_node=4")
        if not isinstance(self.budget, Budget):
            raise UsageError(f"budget={self.budget!r} is no budget", "budget=relight.Budget(restarts=3)")
        for name, choice in (("redirects", self.output.redirects), ("tee", self.output.tee)):
            if not isinstance(choice, StreamChoice):
                raise UsageError(f"{name}={choice!r} is no choice of streams", f"{name}=relight.streams('3')")
        for cpus in self.cpus:
            if not isinstance(cpus, tuple) or not all(type(cpu) is int for cpu in cpus):
                raise UsageError(
                    f"cpus={self.cpus!r} are no sets of CPUs", "cpus=((0, 1), (2, 3)), one for each worker"
                )

    @property
    def store_binds(self) -> str:
        """Where the workers' store listens: nodes of other machines come from anywhere."""
        if self.meeting is None:
            return self.store.address
        return "127.0.0.1" if self.meeting.host in ("localhost", "127.0.0.1") else ""

    def _check_words(self) -> None:
        """Commands, variables and paths can hold any character but one."""
        if isinstance(self.args, str) or not all(isinstance(arg, str) for arg in self.args):
            raise UsageError(f"args={self.args!r} is no list of words", 'args=("--epochs", "10")')
        words = [
            ("entrypoint", self.entrypoint),
            ("role", self.role),
            ("run_id", self.run_id),
            ("threads", "" if self.threads is None else self.threads),
            ("store.address", self.store.address),
            ("python", str(self.python)),
            ("output.log_dir", str(self.output.log_dir)),
            *(("args", arg) for arg in self.args),
        ]
        for name, word in words:
            if not isinstance(word, str):
                raise UsageError(f"{name}={word!r} is no text", f"{name}={str(word)!r}")
            if why := why_no_word(word):
                raise UsageError(f"{name} holds {word!r}, and {why}", "the same without it")

    def _check_signals(self) -> None:
        for number in self.signals:
            if not isinstance(number, int):
                what, remedy = f"names {number}, which is no number of a signal", "signals=(signal.SIGTERM,)"
            elif why := why_not_handled(number):
                rest = tuple(int(other) for other in self.signals if other != number) or (15,)
                what, remedy = f"names {signal_name(number)}, {why}", f"signals={rest}"
            else:
                continue
            raise UsageError(f"signals={self.signals!r} {what}", remedy)


def why_not_handled(number: int) -> str:
    """Why a signal cannot be one that ends the job; nothing if it can."""
    if number in (signal.SIGKILL, signal.SIGSTOP) or number not in signal.valid_signals():
        return "which no program can handle"
    if number in (signal.SIGCHLD, signal.SIGTSTP):
        return "which tells relight something else: that a child has ended, or Ctrl-Z"
    return ""
