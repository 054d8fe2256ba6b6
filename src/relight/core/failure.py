"""What a failure is, which one came first, and the sentence that says so."""

from __future__ import annotations

import signal

from relight.core.names import ExitStatus, legible, signal_name
from relight.core.values import value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

WORDS_LIMIT = 1 << 20  # an error file larger than this is not read


@value
class Words:
    """A worker's own account of its failure, from its error file."""

    message: str
    callstack: str = ""
    raised_at: float | None = None  # wall clock, as precise as its writer was


@value
class WorkerEnd:
    """How one worker of a round ended."""

    rank: int
    local_rank: int
    pid: int
    status: ExitStatus
    at: float  # wall clock of the moment its end was seen
    asked: bool = False  # relight had told it to end
    words: Words | None = None
    error_file: str = ""
    stderr_file: str = ""
    tail: tuple[str, ...] = ()  # the last lines of its stderr, where that was captured
    step: int | None = None  # the last step of its training that it told of
    returned: bool = False  # its script had run to its end before

    @property
    def ok(self) -> bool:
        return self.status.ok or self.forgiven

    @property
    def forgiven(self) -> bool:
        """Whether it aborted only in the teardown of its interpreter, after its script had returned."""
        return self.returned and self.status.signal == signal.SIGABRT

    @property
    def own_failure(self) -> bool:
        """Whether it failed by itself: it says so, or it ended badly before relight told it to end."""
        ended_by_us = self.asked and self.status.signal is not None and self.words is None
        return not self.ok and not ended_by_us

    @property
    def failed_at(self) -> float:
        """When it failed: what it says itself, if that is earlier than its end."""
        raised = self.words.raised_at if self.words else None
        return self.at if raised is None else min(raised, self.at)


@value
class Cause:
    """The failure that a decision rests on, and where it happened."""

    node: str
    sentence: str
    end: WorkerEnd | None = None


def first_of(ends: Iterable[WorkerEnd]) -> WorkerEnd | None:
    """The failure that came before the others."""
    return min((end for end in ends if end.own_failure), key=lambda end: end.failed_at, default=None)


def earliest(cause: Cause | None, node: str, ends: Iterable[WorkerEnd]) -> Cause | None:
    """The failure to show: one of this node's that came before the decided cause but took longer to be seen.

    A worker that raises may need seconds to unload torch, while its peers notice within milliseconds and are gone.
    Nothing of another node is compared: its clock is another one.
    """
    first = first_of(ends)
    if cause is None or cause.end is None or cause.node != node or first is None:
        return cause
    return cause_of(node, first) if first.failed_at < cause.end.failed_at else cause


def cause_of(node: str, end: WorkerEnd) -> Cause:
    return Cause(node, f"rank {end.rank} on {node} (local rank {end.local_rank}) {end.status}{_said(end)}", end)


def _said(end: WorkerEnd) -> str:
    summary = summary_of(end)
    return f": {summary}" if summary else ""


def summary_of(end: WorkerEnd) -> str:
    """The one line that says most: the worker's own words, or what its stderr ended with."""
    message = end.words.message.strip() if end.words else ""
    return shorten(message.splitlines()[0].rstrip() if message else _last_words(end.tail, end.status.signal is None))


def _last_words(tail: Iterable[str], guess: bool) -> str:
    """The line that ends the last traceback. Where there is none, and it ended by itself and not by a signal that
    came from anywhere, we `guess`: the last unindented line that reads `this: that`."""
    raised = said = ""
    in_frames = False
    for whole in tail:
        line = _without_rank(whole)
        if line[:1].isspace():
            in_frames = in_frames or line.lstrip().startswith('File "')
            continue
        if (in_frames and _names_exception(line)) or line.startswith("Fatal Python error: "):
            raised = line
        elif ": " in line:
            said = line
        in_frames = False
    return raised or (said if guess else "")


def _without_rank(line: str) -> str:
    """A line without the `[rank0]: ` that torch puts before every line of an uncaught exception."""
    head, bracket, rest = line.partition("]: ")
    return rest if bracket and head.startswith("[rank") and head[5:].isdigit() else line


def _names_exception(line: str) -> bool:
    """Whether a line is `package.Error: text` or `KeyboardInterrupt`."""
    name, colon, _ = line.partition(": ")
    parts = name.removesuffix(":").split(".")
    return all(part.isidentifier() for part in parts) and (bool(colon) or parts[-1][0].isupper())


def shorten(line: str, width: int = 200) -> str:
    return line if len(line) <= width else line[: width - 3] + "..."


def read_words(raw: bytes) -> Words | None:
    """Reads an error file in torchrun's format. A torn, strange or huge one gives what can be had, or None."""
    if len(raw) > WORDS_LIMIT:
        return None
    import json

    try:
        return _words_of(json.loads(raw))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _words_of(document: Any) -> Words | None:
    message = document["message"]
    if isinstance(message, str):
        return Words(legible(message), raised_at=_moment(document.get("timestamp")))
    if not isinstance(message, dict):
        return None
    extra = message.get("extraInfo")
    extra = extra if isinstance(extra, dict) else {}
    said, callstack = message.get("message"), extra.get("py_callstack")
    return Words(
        "" if said is None else legible(str(said)),
        legible(callstack) if isinstance(callstack, str) else "",
        _moment(extra.get("timestamp_ns"), 1e-9) or _moment(extra.get("timestamp")),
    )


def write_words(words: Words) -> dict[str, Any]:
    """The document of an error file, in torchrun's format."""
    raised_at = words.raised_at or 0.0
    return {
        "message": {
            "message": words.message,
            "extraInfo": {
                "py_callstack": words.callstack,
                "timestamp": str(int(raised_at)),
                "timestamp_ns": str(int(raised_at * 1e9)),
            },
        },
    }


def _moment(raw: object, scale: float = 1.0) -> float | None:
    """A wall clock time of this century; what is none (an uptime, milliseconds, a zero) would only mislead."""
    try:
        moment = float(raw) * scale  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return moment if 1e9 < moment < 1e10 else None


def death_of(end: WorkerEnd) -> str:
    """`killed by SIGKILL`, `exit code 1`: how it ended, as a heading."""
    if end.status.signal is not None:
        return f"killed by {signal_name(end.status.signal)}"
    return f"exit code {end.status.number}"
