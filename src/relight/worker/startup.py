"""Runs at the start of a worker's interpreter, before its script: makes a careless exit a clean one.

A script that uses gloo and ends without `destroy_process_group()` often aborts after its work is done ("terminate
called without an active exception"): C++ threads of the group are still running when the process is torn down. So
the last exit callback of a worker closes such a group, and says so. Whatever the script's own exit code is, it
stays. `--no-forgive-teardown` leaves all this out.
"""

from __future__ import annotations

import os
import sys

PATIENCE_S = 2.0


def prepare() -> None:
    """Registers the exit callback in the worker itself; its children inherit the variable but not the parent."""
    if os.environ.get("RELIGHT_TIDY_EXIT") == str(os.getppid()):
        import atexit

        atexit.register(_close_groups)  # registered first, so called last


def _close_groups() -> None:
    distributed = sys.modules.get("torch.distributed")
    if distributed is None:
        return
    try:
        if not distributed.is_available() or not distributed.is_initialized():
            return
        if "nccl" in str(distributed.get_backend_config()):
            return  # closing NCCL waits for the other ranks, and leaving it open aborts nothing
        _within(PATIENCE_S, distributed.destroy_process_group)
        _tell("left a process group open at exit, and relight closed it (destroy_process_group() would have)")
    except Exception:
        return  # an exit callback has nobody to complain to


def _within(limit_s: float, action: object) -> None:
    """Calls `action` in a thread that may be abandoned: a group that waits for dead peers must not hold the exit."""
    import threading

    thread = threading.Thread(target=action, daemon=True)  # type: ignore[arg-type]
    thread.start()
    thread.join(limit_s)


def _tell(what: str) -> None:
    from relight.worker.room import voice_from_environment

    voice = voice_from_environment()
    if voice is not None:
        voice.tell(closed=what)
        voice.close()


prepare()
