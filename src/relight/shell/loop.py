"""Descriptors and one timer: the only place that waits.

A callback translates what became ready into an event for a machine; it decides nothing and blocks on nothing.
Events come in the order in which the kernel saw them become ready, so "first" means first.
"""

from __future__ import annotations

import selectors

from relight.shell.clock import monotonic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


class Loop:
    """Waits for descriptors or for a moment, whichever comes first."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def watch(self, fd: int, on_ready: Callable[[], object], *, writable: bool = False) -> None:
        """Calls `on_ready` whenever `fd` can be read (or written). Watching again replaces the callback."""
        events = selectors.EVENT_WRITE if writable else selectors.EVENT_READ
        if fd in self._selector.get_map():
            self._selector.modify(fd, events, on_ready)
        else:
            self._selector.register(fd, events, on_ready)

    def unwatch(self, fd: int) -> None:
        if fd in self._selector.get_map():
            self._selector.unregister(fd)

    def wait(self, until: float | None = None) -> None:
        """Waits until something is ready or the moment `until` has come, then makes the callbacks."""
        timeout = None if until is None else max(0.0, until - monotonic())
        for key, _ in self._selector.select(timeout):
            if key.fd in self._selector.get_map():  # an earlier callback may have given it up
                key.data()

    def close(self) -> None:
        self._selector.close()
