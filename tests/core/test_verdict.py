"""Exit codes: torchrun's three, or one that tells a scheduler more."""

from __future__ import annotations

import pytest

from relight.core.documents import Verdict
from relight.core.failure import Cause, WorkerEnd
from relight.core.launch import ExitCodes
from relight.core.names import ExitStatus
from relight.core.verdict import BROKEN, FAILED, OK, USAGE, exit_code

TORCHRUN, DETAILED = ExitCodes.TORCHRUN, ExitCodes.DETAILED
GOOD, BAD, STOPPED = Verdict.SUCCEEDED, Verdict.FAILED, Verdict.STOPPED


def ended(number: int) -> Cause:
    return Cause("n1", "so it was", WorkerEnd(0, 0, 100, ExitStatus(number), 0.0))


NO_WORKER = Cause("n1", "the workers could not be started")


@pytest.mark.parametrize(
    ("codes", "verdict", "cause", "stop_signal", "code"),
    [
        (TORCHRUN, GOOD, None, None, 0),
        (TORCHRUN, BAD, ended(7), None, 1),
        (TORCHRUN, BAD, ended(-9), None, 1),
        (TORCHRUN, BAD, None, None, 1),
        (TORCHRUN, STOPPED, None, 15, 1),
        (DETAILED, GOOD, None, None, 0),
        (DETAILED, GOOD, ended(7), 15, 0),
        (DETAILED, BAD, ended(7), None, 7),
        (DETAILED, BAD, ended(255), None, 255),
        (DETAILED, BAD, ended(-9), None, 137),
        (DETAILED, BAD, ended(-6), None, 134),
        (DETAILED, BAD, NO_WORKER, None, 70),
        (DETAILED, BAD, None, None, 70),
        (DETAILED, STOPPED, None, 15, 143),
        (DETAILED, STOPPED, ended(7), 2, 130),
        (DETAILED, STOPPED, None, None, 1),
    ],
)
def test_exit_codes(
    codes: ExitCodes, verdict: Verdict, cause: Cause | None, stop_signal: int | None, code: int
) -> None:
    assert exit_code(codes, verdict, cause, stop_signal) == code


def test_a_mistake_on_the_command_line_has_its_own_code() -> None:
    assert (OK, FAILED, USAGE, BROKEN) == (0, 1, 2, 70)
