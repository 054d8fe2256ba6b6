"""What takes too long is given up; what comes in time is as if it had been called."""

from __future__ import annotations

import errno
import os
import threading

import pytest

from relight.shell.patience import within


def test_what_is_returned_and_raised_in_time_comes_through() -> None:
    assert within(10, "a", lambda: 7) == 7
    with pytest.raises(FileNotFoundError, match="nowhere"):
        within(10, "a", lambda: os.stat("/nowhere"))


def test_what_takes_too_long_is_an_error_about_its_path() -> None:
    end = threading.Event()
    try:
        with pytest.raises(OSError) as caught:
            within(0.01, "/logs", end.wait)
        assert (caught.value.errno, caught.value.filename) == (errno.ETIMEDOUT, "/logs")
    finally:
        end.set()


def test_where_no_thread_is_to_be_had_the_caller_waits_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert within(0.01, "a", lambda: 7) == 7
    with pytest.raises(FileNotFoundError):
        within(0.01, "a", lambda: os.stat("/nowhere"))
