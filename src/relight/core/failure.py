"""What a failure is, which one came first, and the sentence that says so."""

from __future__ import annotations

import json

from relight.core.names import ExitStatus, signal_name
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
    forgiven: str = ""  # why a bad status counts as finished

    @property
    def ok(self) -> bool:
        return self.status.ok or bool(self.forgiven)

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


def cause_of(node: str, end: WorkerEnd) -> Cause:
    return Cause(node, f"rank {end.rank} on {node} (local rank {end.local_rank}) {end.status}{_said(end)}", end)


def _said(end: WorkerEnd) -> str:
    summary = summary_of(end)
    return f": {summary}" if summary else ""


def summary_of(end: WorkerEnd) -> str:
    """The one line that says most: the worker's own words, or the last line of its traceback."""
    if end.words and end.words.message:
        return _shorten(end.words.message.strip().splitlines()[0]) if end.words.message.strip() else ""
    for line in reversed(end.tail):
        if line and not line[0].isspace() and ": " in line:
            return _shorten(line)
    return ""


def _shorten(line: str, width: int = 200) -> str:
    return line if len(line) <= width else line[: width - 3] + "..."


def read_words(raw: bytes) -> Words | None:
    """Reads an error file in torchrun's format. A torn, strange or huge one gives what can be had, or None."""
    if len(raw) > WORDS_LIMIT:
        return None
    try:
        document = json.loads(raw)
        message = document["message"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if isinstance(message, str):
        return Words(message, raised_at=_number(document.get("timestamp")))
    if not isinstance(message, dict):
        return None
    extra = message.get("extraInfo")
    extra = extra if isinstance(extra, dict) else {}
    callstack = extra.get("py_callstack")
    return Words(
        str(message.get("message", "")),
        callstack if isinstance(callstack, str) else "",
        _number(extra.get("timestamp_ns"), 1e-9) or _number(extra.get("timestamp")),
    )


def write_words(words: Words, exit_code: int | None = None) -> dict[str, Any]:
    """The document of an error file, in torchrun's format."""
    raised_at = words.raised_at or 0.0
    message: dict[str, Any] = {
        "message": words.message,
        "extraInfo": {
            "py_callstack": words.callstack,
            "timestamp": str(int(raised_at)),
            "timestamp_ns": str(int(raised_at * 1e9)),
        },
    }
    if exit_code is not None:
        message["errorCode"] = exit_code
    return {"message": message}


def _number(raw: object, scale: float = 1.0) -> float | None:
    try:
        number = float(raw) * scale  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return number if 0 < number < 1e11 else None


def death_of(end: WorkerEnd) -> str:
    """`killed by SIGKILL`, `exit code 1`: how it ended, as a heading."""
    if end.status.signal is not None:
        return f"killed by {signal_name(end.status.signal)}"
    return f"exit code {end.status.number}"
