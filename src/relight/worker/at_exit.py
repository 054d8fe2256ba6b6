"""The last thing that runs in a worker's Python: makes a careless exit a clean one.

One line in `relight_worker.pth` registers `last_callback` at the start of a worker's interpreter, before anything
else, so that it is called last; it is imported only then, and only where torch was. That line looks at the parent:
a worker's children inherit the variable but not the parent.

A script that uses gloo and ends without `destroy_process_group()` often aborts after its work is done ("terminate
called without an active exception"): C++ threads of the group are still running when the process is torn down. So
the callback closes such a group, and says so. Whatever the script's own exit code is, it stays. Then it tells the
agent if the script had returned, so that a crash from here on is no failure. `--no-forgive-teardown` leaves all this
out.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE_S = 2.0


def last_callback() -> None:
    facts: dict[str, object] = {}
    for act in (_close_groups, _note_return, _tell):
        try:
            act(facts)
        except Exception:
            continue  # an exit callback has nobody to complain to, and the next one does not need this one


def _close_groups(facts: dict[str, object]) -> None:
    """Closes what `init_process_group` opened, if anything, and notes that it did."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return
    if "nccl" in str(distributed.get_backend_config()):
        return  # closing NCCL waits for the other ranks, and leaving it open aborts nothing
    _within(PATIENCE_S, distributed.destroy_process_group)
    facts["closed"] = "left a process group open at exit, and relight closed it"


def _note_return(facts: dict[str, object]) -> None:
    """Notes if the script ran to its end: neither an exception nor SystemExit, whose code nobody tells us.

    CPython takes `__file__` out of `__main__` when a script has run, but a SystemExit ends the process before it
    gets there. A module (`python -m`) keeps its `__file__` either way, so nothing is claimed of it.
    """
    main = sys.modules.get("__main__")
    if main is not None and "__file__" not in vars(main) and not hasattr(sys, "last_value"):
        facts["returned"] = True


def _within(limit_s: float, action: Callable[[], object]) -> None:
    """Calls `action` in a thread that may be abandoned: a group that waits for dead peers must not hold the exit."""
    import threading

    thread = threading.Thread(target=action, daemon=True)
    try:
        thread.start()
    except RuntimeError:  # some releases of Python 3.12 start no thread any more at this point
        import faulthandler

        faulthandler.dump_traceback_later(limit_s, exit=True)
        action()
        faulthandler.cancel_dump_traceback_later()
    else:
        thread.join(limit_s)


def _tell(facts: dict[str, object]) -> None:
    from relight.worker.room import voice_from_environment

    voice = voice_from_environment() if facts else None
    if voice is not None:
        for name, fact in facts.items():
            voice.tell(**{name: fact})
        voice.close()
