"""How one worker is brought to its end: ask, wait, kill, give up; then the same for what it leaves behind.

The worker's own process is asked alone, so that a trainer saving its last snapshot still has its data loaders.
Once it has ended, whatever remains of its process group is asked in turn, within the same grace. A program of which
nothing is known may be a shell around the trainer, and a shell passes nothing on: there the whole group is asked at
once. Every wait is bounded, each worker has its own clock, and failure, restart, signal and Ctrl-C all take this path.
"""

from __future__ import annotations

import enum
import signal

from relight.core.names import never
from relight.core.values import value

LOOKS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05)  # between looks at a process group; the last one repeats
KILL_WAIT_S = 5.0  # how long a SIGKILL may take before the worker counts as stuck


class Stage(enum.Enum):
    """How far a worker's end has come."""

    WORKING = "working"  # alive, not asked to end
    ASKED = "asked"  # alive, asked to end
    KILLED = "killed"  # alive as far as we know, SIGKILL sent to its group
    REMAINS = "remains"  # ended; others of its process group are alive, not asked
    REMAINS_ASKED = "remains asked"
    REMAINS_KILLED = "remains killed"
    GONE = "gone"  # nothing is left, or nothing that more waiting would end
    STUCK = "stuck"  # SIGKILL did not end it: uninterruptible in the kernel


@value
class Tell:
    """Send a signal to the worker, or to its whole process group."""

    signal: int
    group: bool = False


@value
class Look:
    """See whether anything of the worker's process group is alive."""


Step = Tell | Look


class Ladder:
    """The way down for one worker, or for its `whole` group. Verbs take the time and return the steps to take now."""

    def __init__(self, whole: bool = False) -> None:
        self.stage = Stage.WORKING
        self._whole = whole
        self._signal: int = signal.SIGTERM
        self._deadline: float | None = None
        self._look_at: float | None = None
        self._looks = 0

    @property
    def gone(self) -> bool:
        """Whether nothing is left to wait for."""
        return self.stage in (Stage.GONE, Stage.STUCK)

    @property
    def asked(self) -> bool:
        """Whether relight has told the worker itself to end."""
        return self.stage in (Stage.ASKED, Stage.KILLED)

    def ask(self, now: float, number: int, grace_s: float) -> list[Step]:
        """Begins the way down. Asking again may bring a stronger signal and an earlier end, never a later one."""
        match self.stage:
            case Stage.WORKING:
                self.stage = Stage.ASKED
            case Stage.REMAINS:
                self.stage = Stage.REMAINS_ASKED
            case Stage.ASKED | Stage.REMAINS_ASKED:
                if number == self._signal:
                    self._hasten(now + grace_s)
                    return self.tick(now)
            case Stage.KILLED | Stage.REMAINS_KILLED | Stage.GONE | Stage.STUCK:
                return []
            case _:
                never(self.stage)
        self._signal = number
        self._hasten(now + grace_s)
        if self.stage is Stage.ASKED:
            return [Tell(number, group=self._whole), *self.tick(now)]
        return [Tell(number, group=True), *self._watch(), *self.tick(now)]

    def kill(self, now: float) -> list[Step]:
        """Ends everything at once."""
        match self.stage:
            case Stage.WORKING | Stage.ASKED:
                self.stage = Stage.KILLED
                self._deadline = now + KILL_WAIT_S
                return [Tell(signal.SIGKILL, group=True)]
            case Stage.REMAINS | Stage.REMAINS_ASKED:
                self.stage = Stage.REMAINS_KILLED
                self._deadline = now + KILL_WAIT_S
                return [Tell(signal.SIGKILL, group=True), *self._watch()]
            case Stage.KILLED | Stage.REMAINS_KILLED | Stage.GONE | Stage.STUCK:
                return []
            case _:
                never(self.stage)

    def ended(self, now: float, others: bool) -> list[Step]:
        """The worker itself has ended; `others` of its process group may be alive."""
        if not others:
            self._finish(Stage.GONE)
            return []
        match self.stage:
            case Stage.WORKING:
                self.stage = Stage.REMAINS
                return []
            case Stage.ASKED:
                self.stage = Stage.REMAINS_ASKED
                return [*([] if self._whole else [Tell(self._signal, group=True)]), *self._watch()]
            case Stage.KILLED:
                self.stage = Stage.REMAINS_KILLED
                return [Tell(signal.SIGKILL, group=True), *self._watch()]
            case Stage.REMAINS | Stage.REMAINS_ASKED | Stage.REMAINS_KILLED | Stage.GONE | Stage.STUCK:
                return []
            case _:
                never(self.stage)

    def looked(self, now: float, others: bool) -> list[Step]:
        """The answer to a Look."""
        if self.stage not in (Stage.REMAINS_ASKED, Stage.REMAINS_KILLED):
            return []
        if not others:
            self._finish(Stage.GONE)
            return []
        self._look_at = now + LOOKS_S[min(self._looks, len(LOOKS_S) - 1)]
        self._looks += 1
        return self.tick(now)

    def tick(self, now: float) -> list[Step]:
        """Whatever is due."""
        if self._deadline is not None and now >= self._deadline:
            if self.stage in (Stage.ASKED, Stage.REMAINS_ASKED):
                return self.kill(now)
            self._finish(Stage.STUCK if self.stage is Stage.KILLED else Stage.GONE)
            return []
        if self._look_at is not None and now >= self._look_at:
            self._look_at = None
            return [Look()]
        return []

    def paused(self, for_s: float) -> None:
        """The worker was stopped for so long, and whoever waits for it too: that is not taken from its time."""
        if self._deadline is not None:
            self._deadline += for_s

    def wake_at(self) -> float | None:
        moments = [at for at in (self._deadline, self._look_at) if at is not None]
        return min(moments, default=None)

    def _hasten(self, deadline: float) -> None:
        self._deadline = deadline if self._deadline is None else min(self._deadline, deadline)

    def _watch(self) -> list[Step]:
        self._looks = 0
        self._look_at = None
        return [Look()]

    def _finish(self, stage: Stage) -> None:
        self.stage = stage
        self._deadline = self._look_at = None
