"""The launcher's exit code.

`torchrun` knows 0 (every worker finished), 1 (anything else) and 2 (a mistake on the command line). With
`--exit-codes=detailed` a scheduler learns more: a failed worker's own code, 128 + N where signal N killed the worker
or stopped the launcher, and 70 where no worker's failure explains the end.
"""

from __future__ import annotations

from relight.core.documents import Verdict
from relight.core.launch import ExitCodes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from relight.core.failure import Cause

OK, FAILED, USAGE, BROKEN = 0, 1, 2, 70


def exit_code(codes: ExitCodes, verdict: Verdict, cause: Cause | None, stop_signal: int | None) -> int:
    if verdict is Verdict.SUCCEEDED:
        return OK
    if codes is ExitCodes.TORCHRUN:
        return FAILED
    if verdict is Verdict.STOPPED:
        return FAILED if stop_signal is None else 128 + stop_signal
    if cause is None or cause.end is None:
        return BROKEN
    number = cause.end.status.number
    return 128 - number if number < 0 else number
