"""The two documents between a node and the coordinator. Each is whole: the newest one is all there is to know."""

from __future__ import annotations

import enum

from relight.core.values import replace, value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from relight.core.failure import Cause
    from relight.core.roster import Applicant, Part


class Standing(enum.Enum):
    """What a node is, in one word."""

    READY = "ready"  # no worker of mine is alive, and I would start some
    WORKING = "working"  # workers of `round` are alive
    DONE = "done"  # every worker of `round` has finished well
    BROKEN = "broken"  # a worker of `round` has failed
    LEAVING = "leaving"  # I was told to go; workers may still be alive
    LEFT = "left"  # I was told to go, and no worker is alive


class Phase(enum.Enum):
    """What the job is, in one word."""

    GATHERING = "gathering"
    RUNNING = "running"
    ENDED = "ended"


class Verdict(enum.Enum):
    """How a job ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"


@value
class NodeReport:
    """Up: "this is what I am". `seen` names the newest view this node knows; without it no report counts as ready."""

    applicant: Applicant
    seen: int  # -1 before the first
    standing: Standing
    round: int  # what DONE, BROKEN and WORKING are about; -1 before the first
    sent_at: float  # the node's own clock; the coordinator only echoes it
    cause: Cause | None = None

    def repeats(self, told: NodeReport | None) -> bool:
        """Whether it says nothing new: it differs at most in when it was sent."""
        return told is not None and replace(self, sent_at=told.sent_at) == told

    @property
    def node(self) -> str:
        return self.applicant.node

    @property
    def life(self) -> str:
        return self.applicant.life


@value
class JobView:
    """Down: "this is what we do, and you in it". A larger serial is newer; the reason is a sentence for people."""

    serial: int
    phase: Phase
    round: int
    reason: str
    restarts: int = 0
    part: Part | None = None  # of the node that is told, in a round that seats it
    verdict: Verdict | None = None
    cause: Cause | None = None
