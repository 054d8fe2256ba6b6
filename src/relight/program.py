"""`relight.run(Launch(...))`: a whole job from a program, a notebook or a thread."""

from __future__ import annotations

import os
import sys

from relight.core.documents import Verdict
from relight.core.environment import check_inherited
from relight.core.names import JobFailed, JobStopped
from relight.core.page import for_people

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from relight.core.launch import Launch
    from relight.shell.agent import Outcome
    from relight.shell.outlets import Layout
    from relight.shell.processes import Commands


def run(launch: Launch, environ: Mapping[str, str] | None = None) -> Outcome:
    """Runs the job to its end.

    Raises JobFailed, with the failure page as its text, if it does not succeed, and JobStopped if a signal ended it.
    Both carry the outcome.
    """
    if environ is not None:
        check_inherited(environ)
    outcome = carry_out(launch, os.environ if environ is None else environ)
    if outcome.verdict is Verdict.SUCCEEDED:
        return outcome
    stopped = outcome.verdict is Verdict.STOPPED
    error = JobStopped(f"relight: {outcome.reason}") if stopped else JobFailed(for_people(outcome.story))
    error.outcome = outcome
    raise error


def carry_out(
    launch: Launch,
    environ: Mapping[str, str],
    commands: Commands | None = None,
    layout: Callable[[dict[int, dict[str, str]]], Layout] | None = None,
    *,
    alone: bool = False,
) -> Outcome:
    """Runs the job to its end, good or bad. `commands` are what its workers run, `layout` is where they write.

    `alone`: nothing but this job goes on in this process, so every child that it has is the job's or an orphan.
    """
    from relight import __version__
    from relight.core.values import replace
    from relight.shell.agent import Agent, Surroundings
    from relight.shell.logfiles import temporary_folder

    if not launch.run_id:
        launch = replace(launch, run_id=random_run_id())
    place = Surroundings(
        environ=dict(environ),
        host=os.uname().nodename,
        python=sys.executable,
        temporary=temporary_folder(environ),
        release=__version__,
        reaps=alone and os.getpid() == 1,
    )
    if launch.output.plug_in and layout is None:
        from relight.shell.log_plug_ins import plugged_layout

        layout = plugged_layout(launch.output)
    return Agent(launch, place, commands, layout).run()


def random_run_id() -> str:
    """A name for a job whose user gave it none: a random UUID (version 4). The uuid module costs more than it does."""
    random = bytearray(os.urandom(16))
    random[6] = random[6] & 0x0F | 0x40
    random[8] = random[8] & 0x3F | 0x80
    digits = random.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def random_number() -> str:
    """A name for a job whose user gave it an empty one: torchrun's form for that."""
    return str(int.from_bytes(os.urandom(16)))
