"""A worker that is a forked child of this very process, for functions that exist nowhere else.

Only notebooks need it. `multiprocessing` does the forking, because it knows what a forked interpreter has to
forget. To the rest of the shell it looks like a `subprocess.Popen` whose group is its own.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import sys

from relight.shell.signals import noted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE_S = 5.0  # how long a fresh child may take to be in a group of its own


class Forked:
    """A child with the environment and the streams of a worker, in a session of its own.

    It makes its call only once `protect` has been told of it: the mark in its environment is one that /proc does not
    show, so before that nobody would end it if the agent were killed.
    """

    def __init__(
        self,
        call: Callable[[], None],
        environment: dict[str, str],
        stdout: int | None,
        stderr: int | None,
        protect: Callable[[int], None],
    ) -> None:
        ours, theirs = socket.socketpair()
        # A signal to the child before it has let go of the agent's handlers would look like one to the agent.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())

        def body() -> None:
            _let_go_of_signals(mask)
            os.setsid()
            ours.close()
            with theirs:
                theirs.send(b".")
                begins = theirs.recv(1)
            if not begins:  # the agent is gone
                os._exit(1)
            _settle(environment, stdout, stderr)
            call()

        with ours, theirs:
            self._process = multiprocessing.get_context("fork").Process(target=body)
            try:
                self._process.start()
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            assert self._process.pid is not None
            self.pid = self._process.pid
            self._status: int | None = None
            theirs.close()
            ours.settimeout(PATIENCE_S)
            try:
                ours.recv(1)  # signals go to groups, so nobody may hear of this child before it has one
            except TimeoutError:
                pass
            protect(self.pid)
            try:
                ours.send(b".")
            except OSError:  # it has ended already
                pass

    def wait(self) -> int:
        if self._status is None:
            self._process.join()
            self._status = self._process.exitcode
            self._process.close()
        assert self._status is not None
        return self._status

    def send_signal(self, number: int) -> None:
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            pass


def _let_go_of_signals(mask: set[int | signal.Signals]) -> None:
    """Handles signals as a fresh interpreter does, and tells the agent of none."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if signal.getsignal(number) is noted:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _settle(environment: dict[str, str], stdout: int | None, stderr: int | None) -> None:
    """Takes on what a worker has in place of what the agent has."""
    os.environ.clear()
    os.environ.update(environment)
    if stdout is not None:
        os.dup2(stdout, 1)
        sys.stdout = os.fdopen(1, "w", 1, errors="backslashreplace", closefd=False)
    if stderr is not None:
        os.dup2(stderr, 2)
        sys.stderr = os.fdopen(2, "w", 1, errors="backslashreplace", closefd=False)
