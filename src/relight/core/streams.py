"""Where each worker's output goes: the grammar of -r and -t, file names, and prefixes."""

from __future__ import annotations

import enum

from relight.core.names import UsageError, fill_in
from relight.core.values import value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from relight.core.launch import Output


class Streams(enum.IntFlag):
    """Which of a worker's two streams is meant: torchrun's 0, 1, 2, 3."""

    NONE = 0
    OUT = 1
    ERR = 2
    BOTH = 3


@value
class StreamChoice:
    """One answer for every local rank, or one for some and none for the rest."""

    everyone: Streams = Streams.NONE
    by_rank: tuple[tuple[int, Streams], ...] = ()

    def of(self, local_rank: int) -> Streams:
        return dict(self.by_rank).get(local_rank, self.everyone)


NOWHERE = StreamChoice()


def streams(text: str, flag: str = "--redirects") -> StreamChoice:
    """Reads `3` (for everyone) or `0:1,10:3` (for the ranks named, nothing for the rest)."""
    remedy = f"{flag} 3 for everyone, or {flag} 0:3,1:2 by local rank (1 stdout, 2 stderr, 3 both, 0 neither)"
    wrong = UsageError(f"{flag} {text!r} names no streams", remedy)
    try:
        if ":" not in text:
            return StreamChoice(_streams(text))
        chosen: dict[int, Streams] = {}
        for part in text.split(","):
            rank, _, mask = part.partition(":")
            if not (rank.isascii() and rank.isdigit()):
                raise ValueError(rank)
            chosen[int(rank)] = _streams(mask)
    except ValueError:  # int refuses what has thousands of digits
        raise wrong from None
    return StreamChoice(Streams.NONE, tuple(sorted(chosen.items())))


def _streams(mask: str) -> Streams:
    if mask not in ("0", "1", "2", "3"):
        raise ValueError(mask)
    return Streams(int(mask))


def prefix(template: str | None, *, role: str, local_rank: int, rank: int, hostname: str) -> str:
    """What stands before a line of one worker: `[default0]:`, or the user's own template."""
    if not template:
        return f"[{role}{local_rank}]:"
    host = hostname.partition(".")[0]
    return fill_in(template, role_name=role, local_rank=local_rank, rank=rank, hostname=host)


class Route(enum.Enum):
    """What becomes of one stream of one worker."""

    INHERIT = "inherit"  # the launcher's own stream, untouched
    HIDE = "hide"  # nowhere
    FILE = "file"
    TEE = "tee"  # a file, and the console with a prefix
    TEE_HIDDEN = "tee hidden"  # tee'd, but hidden by the filter: the file alone


def route(output: Output, local_rank: int, stream: Streams) -> Route:
    """Where `stream` (OUT or ERR) of a worker goes: tee implies a file; the filter hides from the console only."""
    shown = not output.local_ranks or local_rank in output.local_ranks
    if output.keeps_files:
        if stream in output.tee.of(local_rank):
            return Route.TEE if shown else Route.TEE_HIDDEN
        if stream in output.redirects.of(local_rank):
            return Route.FILE
    return Route.INHERIT if shown else Route.HIDE
