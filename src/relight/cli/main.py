"""The command `relight`: words in, a job, an exit code out."""

from __future__ import annotations

import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from relight.shell.agent import Outcome


def main(argv: Sequence[str] | None = None, *, legacy: bool = False) -> int:
    """Runs one launcher; returns its exit code. `legacy`: the form of torch.distributed.launch."""
    from relight.cli.options import parse
    from relight.cli.plan import plan
    from relight.cli.printing import complain
    from relight.core.names import Broken, UsageError
    from relight.core.verdict import FAILED, USAGE, exit_code
    from relight.program import carry_out
    from relight.shell.machine import Machine

    if argv is None:  # the command itself: until it handles signals, Ctrl-C ends it without a traceback
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    environ = dict(os.environ)
    name = "python -m relight.launch" if legacy else "relight"
    try:
        chosen = parse(sys.argv[1:] if argv is None else list(argv), environ, name, legacy=legacy)
        launch = plan(chosen, environ, Machine(environ))
        outcome = carry_out(launch, environ, alone=argv is None)
    except UsageError as error:
        complain(error)
        return USAGE
    except OSError as error:  # no descriptor, process or memory to be had for relight itself
        where = f" ({error.filename})" if error.filename else ""
        complain(
            Broken(f"the system refuses what relight needs: {error.strerror}{where}", "ulimit -a shows the limits")
        )
        return FAILED
    tell(outcome)
    return exit_code(launch.exit_codes, outcome.verdict, outcome.story.first_cause, outcome.stop_signal)


def tell(outcome: Outcome) -> None:
    """The failure page, and below it the block that torchrun would have printed."""
    from relight.core.documents import Verdict

    if outcome.verdict is not Verdict.FAILED:
        return
    import time

    from relight.cli.printing import write
    from relight.core.page import for_grep, for_people

    story = outcome.story
    first = story.first_cause
    ends = [*story.ends, *([first.end] if first and first.end else [])]
    clock = {end.rank: time.strftime("%Y-%m-%d_%H:%M:%S", time.localtime(end.failed_at)) for end in ends}
    page = for_people(story)
    block = for_grep(story, clock)
    write(f"{page}\n{block}\n" if block else f"{page}\n")
