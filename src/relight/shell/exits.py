"""A descriptor that becomes readable when a child ends: pidfd, or a thread per child where there is none.

Either way nothing polls, nothing reaps a child that is not ours, and the main thread is not needed (a program may
run relight from a notebook's thread, where no SIGCHLD handler can be installed).
"""

from __future__ import annotations

import os


def exit_descriptor(pid: int) -> int:
    """A descriptor that is readable once `pid`, a child of this process, has ended. The caller closes it."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):  # not Linux, a kernel before 5.3, or a sandbox that refuses the call
        return _waiting_thread(pid)


def _waiting_thread(pid: int) -> int:
    """The same by a thread that waits for the child without reaping it, and then closes its end of a pipe."""
    import threading

    readable, writable = os.pipe()

    def wait() -> None:
        try:
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        except ChildProcessError:
            pass  # already reaped: it has ended
        finally:
            os.close(writable)

    threading.Thread(target=wait, name=f"exit of {pid}", daemon=True).start()
    return readable
