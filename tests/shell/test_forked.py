"""A worker that is a fork of this process, as the agent has it."""

from __future__ import annotations

import os
import signal

from relight.shell.forked import Forked
from relight.shell.signals import noted


def test_a_signal_to_a_child_is_none_to_its_agent() -> None:
    """The child inherits the descriptor that wakes the agent for a signal, and lets go of it before it has a group."""
    readable, writable = os.pipe()
    os.set_blocking(readable, False)
    os.set_blocking(writable, False)
    before = signal.signal(signal.SIGTERM, noted)
    wakeup = signal.set_wakeup_fd(writable)
    try:
        child = Forked(lambda: None, {}, None, None, lambda pid: os.killpg(pid, signal.SIGTERM))
        assert child.wait() == -signal.SIGTERM
        with open(readable, "rb", closefd=False) as heard:
            assert signal.SIGTERM not in (heard.read() or b"")
        assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()
    finally:
        signal.set_wakeup_fd(wakeup)
        signal.signal(signal.SIGTERM, before)
        os.close(readable)
        os.close(writable)
