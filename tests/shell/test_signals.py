"""Signals as events in the loop, and everything as it was afterwards."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from relight.shell.loop import Loop
from relight.shell.signals import Signals


def turns(loop: Loop, seconds: float = 0.02) -> None:
    loop.wait(time.clock_gettime(time.CLOCK_BOOTTIME) + seconds)


def test_each_signal_is_told_in_its_order(loop: Loop) -> None:
    heard: list[int] = []
    signals = Signals(loop, (signal.SIGTERM, signal.SIGUSR1), heard.append)
    for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR1):
        os.kill(os.getpid(), number)
    turns(loop)
    assert heard == [signal.SIGUSR1, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR1]
    signals.close()


def test_only_what_was_asked_for_is_told(loop: Loop) -> None:
    """A program's own handlers go on to work, and write to the same descriptor."""
    heard: list[int] = []
    own: list[int] = []
    before = signal.signal(signal.SIGUSR2, lambda number, _: own.append(number))
    signals = Signals(loop, (signal.SIGUSR1,), heard.append)
    os.kill(os.getpid(), signal.SIGUSR2)
    os.kill(os.getpid(), signal.SIGUSR1)
    turns(loop)
    assert (heard, own) == ([signal.SIGUSR1], [signal.SIGUSR2])
    signals.close()
    signal.signal(signal.SIGUSR2, before)


def test_handlers_and_the_wake_up_descriptor_are_put_back(loop: Loop) -> None:
    readable, writable = os.pipe()
    os.set_blocking(writable, False)
    handlers = {number: signal.getsignal(number) for number in (1, 2, 3, 15, 20)}
    signal.set_wakeup_fd(writable)
    fds = len(os.listdir("/proc/self/fd"))
    signals = Signals(loop, handlers, lambda number: None)
    assert all(signal.getsignal(number) != handlers[number] for number in handlers)
    signals.close()
    signals.close()  # twice is once
    assert {number: signal.getsignal(number) for number in handlers} == handlers
    assert signal.set_wakeup_fd(-1) == writable
    assert len(os.listdir("/proc/self/fd")) == fds
    os.close(readable)
    os.close(writable)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTSTP])
def test_what_the_shell_had_ignored_stays_ignored(loop: Loop, number: int) -> None:
    before = signal.signal(number, signal.SIG_IGN)
    heard: list[int] = []
    signals = Signals(loop, (number, signal.SIGUSR1), heard.append)
    os.kill(os.getpid(), number)
    os.kill(os.getpid(), signal.SIGUSR1)
    turns(loop)
    assert heard == [signal.SIGUSR1]
    signals.close()
    assert signal.getsignal(number) == signal.SIG_IGN
    signal.signal(number, before)


def test_off_the_main_thread_nothing_is_touched(loop: Loop) -> None:
    handlers = {number: signal.getsignal(number) for number in range(1, 32)}
    fds = len(os.listdir("/proc/self/fd"))
    thread = threading.Thread(target=lambda: Signals(loop, (signal.SIGTERM,), print).close())
    thread.start()
    thread.join()
    assert {number: signal.getsignal(number) for number in range(1, 32)} == handlers
    assert len(os.listdir("/proc/self/fd")) == fds
    assert signal.set_wakeup_fd(-1) == -1


def test_a_thousand_of_them_do_not_block(loop: Loop) -> None:
    """The descriptor's pipe holds 64 KiB; what does not fit is a signal that came while 65,536 others wait."""
    heard: list[int] = []
    signals = Signals(loop, (signal.SIGUSR1,), heard.append)
    for _ in range(1000):
        os.kill(os.getpid(), signal.SIGUSR1)
    turns(loop)
    assert len(heard) == 1000
    signals.close()


def test_a_signal_named_twice_is_put_back_all_the_same(loop: Loop) -> None:
    before = signal.getsignal(signal.SIGTERM)
    Signals(loop, (signal.SIGTERM, signal.SIGTERM), lambda number: None).close()
    assert signal.getsignal(signal.SIGTERM) == before


def test_the_wake_up_descriptor_is_put_back_where_no_signal_was_asked_for(loop: Loop) -> None:
    Signals(loop, (), lambda number: None).close()
    assert signal.set_wakeup_fd(-1) == -1
