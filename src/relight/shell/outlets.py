"""Where workers' output and relight's own lines come out: the console, log files, or both through the pump.

Without --tee no byte of a worker passes through relight: it inherits the launcher's streams or writes its own file.
The pump, a thread, exists only while something is tee'd.
"""

from __future__ import annotations

import os

from relight.core.names import never, visible
from relight.core.streams import Route, Streams, prefix, route
from relight.core.values import value
from relight.shell.clock import monotonic
from relight.shell.console import open_consoles
from relight.shell.logfiles import open_log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from relight.core.launch import Output
    from relight.core.roster import Place
    from relight.shell.loop import Loop
    from relight.shell.source import Source
    from relight.shell.tee import Pump

NAMES = {Streams.OUT: "stdout", Streams.ERR: "stderr"}
DRAIN_S = 0.2  # how long an ended worker's pipe may be held open by a child of its
WRITTEN_S = 1.0  # how long its log file may take what was in there; then its end counts all the same


@value
class Layout:
    """Where the output of one round goes, where a plug-in says so: by local rank and stream, and what is filtered."""

    routes: dict[tuple[int, Streams], tuple[Route, str]]
    filtered: dict[Streams, str]


class _Draining:
    """An ended worker whose last words are still on their way to its files."""

    __slots__ = ("patience_ends_at", "sources", "then")

    def __init__(self, sources: list[Source], then: Callable[[], None], patience_ends_at: float) -> None:
        self.sources = set(sources)
        self.then = then
        self.patience_ends_at = patience_ends_at


class Outlets:
    """One launcher's two consoles, and the files of its workers."""

    def __init__(self, output: Output, host: str, loop: Loop) -> None:
        self._output = output
        self._host = host
        self._loop = loop
        self._out, self._err = open_consoles()
        self._pump: Pump | None = None
        self._folder = ""
        self._layout: Layout | None = None
        self._given: list[int] = []  # descriptors that the workers of a round inherit; closed once they have them
        self._sources: dict[int, list[Source]] = {}
        self._finished: set[Source] = set()  # streams of this round that came to their end
        self._draining: list[_Draining] = []
        self._stderr_files: dict[int, str] = {}
        self.closed = True  # nothing is on its way to a console

    def say(self, text: str) -> None:
        """A line of relight's own, on stderr. Never waits for the console."""
        line = f"{visible(text)}\n".encode(errors="backslashreplace")
        if self._pump is not None:
            self._pump.say(line)
            return
        self._err.say(line)
        if self._err.wants_writing:
            self.closed = False
            self._loop.watch(self._err.fileno(), self._flush, writable=True)

    def begin(self, round_folder: str, layout: Layout | None = None) -> None:
        """A new round: the streams of its workers are made next."""
        self._folder = round_folder
        self._layout = layout
        self._sources = {}
        self._finished = set()
        self._stderr_files = {}
        if self._pump is not None:
            self._pump.next_round()

    def streams(self, place: Place, folder: str) -> tuple[int | None, int | None]:
        """Descriptors for a worker's stdout and stderr; None: as inherited."""
        made = [self._stream(place, folder, stream) for stream in NAMES]
        return made[0], made[1]

    def started(self) -> None:
        """The workers have their descriptors (or will never have them)."""
        for fd in self._given:
            os.close(fd)
        self._given = []

    def stderr_file(self, local_rank: int) -> str:
        """Where a worker's stderr is kept in this round; empty if it is not."""
        return self._stderr_files.get(local_rank, "")

    def drain(self, local_rank: int, then: Callable[[], None]) -> None:
        """Calls `then` once all that an ended worker wrote is in its files, at once if nothing is tee'd."""
        sources = self._sources.pop(local_rank, [])
        if not sources or self._pump is None:
            then()
            return
        self._pump.finish(sources, DRAIN_S)
        self._draining.append(_Draining(sources, then, monotonic() + DRAIN_S + WRITTEN_S))
        self._go_on()

    def tick(self, now: float) -> None:
        """Stops waiting for files that do not take what was written."""
        for one in self._draining:
            if now >= one.patience_ends_at:
                self._finished |= one.sources
        self._go_on()

    def wake_at(self) -> float | None:
        return min((one.patience_ends_at for one in self._draining), default=None)

    def give_up(self) -> None:
        """Someone is in a hurry: do not wait for a console that does not read."""
        self.closed = True
        if self._pump is not None:
            self._pump.give_up()

    def close(self) -> None:
        """Begins to bring everything out; `closed` tells when it is."""
        if self._pump is not None:
            self.closed = False
            self._pump.close(DRAIN_S)

    def release(self) -> None:
        """Lets go of the consoles."""
        if self._pump is not None:
            self._loop.unwatch(self._pump.fileno())
            if not self._pump.over:  # the agent broke: what is on its way comes out as far as it can at once
                self._pump.close(0)
                self._pump.give_up()
            if not self._pump.join(WRITTEN_S):
                return  # a file system hangs; the thread is a daemon and ends with the process
        elif self._err.wants_writing:
            self._loop.unwatch(self._err.fileno())
        self._pump = None
        self._out.close()
        self._err.close()

    def _flush(self) -> None:
        self._err.flush()
        if not self._err.wants_writing:
            self._loop.unwatch(self._err.fileno())
            self.closed = True

    def _carried(self) -> None:
        """The pump has something to tell: streams that were finished, or that all is over."""
        assert self._pump is not None
        self._finished.update(self._pump.finished())
        self._go_on()
        if self._pump.over:
            self.closed = True

    def _go_on(self) -> None:
        ready = [one for one in self._draining if one.sources <= self._finished]
        self._draining = [one for one in self._draining if one not in ready]
        for one in ready:
            one.then()

    def _stream(self, place: Place, folder: str, stream: Streams) -> int | None:
        if self._layout is not None:
            chosen, path = self._layout.routes.get((place.local_rank, stream), (Route.INHERIT, ""))
        else:
            path = os.path.join(folder, f"{NAMES[stream]}.log")
            chosen = route(self._output, place.local_rank, stream)
        if stream is Streams.ERR and chosen in (Route.FILE, Route.TEE, Route.TEE_HIDDEN):
            self._stderr_files[place.local_rank] = path
        match chosen:
            case Route.INHERIT:
                return None
            case Route.HIDE:
                return self._give(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC))
            case Route.FILE:
                return self._give(open_log(path))
            case Route.TEE | Route.TEE_HIDDEN:
                return self._give(self._tee(place, path, stream, shown=chosen is Route.TEE))
            case _:
                never(chosen)

    def _tee(self, place: Place, path: str, stream: Streams, *, shown: bool) -> int:
        if self._pump is None:
            from relight.shell.tee import Pump

            if self._err.wants_writing:  # what was said before is the pump's to bring out, as the consoles are now
                self._loop.unwatch(self._err.fileno())
            self._pump = Pump(self._out, self._err)
            self._loop.watch(self._pump.fileno(), self._carried)
        output = self._output
        needles = output.stdout_needles if stream is Streams.OUT else output.stderr_needles
        label = prefix(
            output.prefix_template,
            role=place.role,
            local_rank=place.local_rank,
            rank=place.rank,
            hostname=self._host,
        )
        filtered = os.path.join(self._folder, f"filtered_{NAMES[stream]}.log")
        if self._layout is not None:
            filtered = self._layout.filtered.get(stream, "")
        readable, writable = os.pipe()
        source = self._pump.add(
            readable,
            path,
            label.encode(errors="backslashreplace"),
            to_stdout=stream is Streams.OUT,
            console=shown,
            needles=tuple(os.fsencode(needle) for needle in needles),
            filtered=filtered if needles and filtered else None,
        )
        self._sources.setdefault(place.local_rank, []).append(source)
        return writable

    def _give(self, fd: int) -> int:
        self._given.append(fd)
        return fd
