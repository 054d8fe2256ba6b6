"""Where workers' output and relight's own lines come out: the console, log files, or both through the pump.

Without --tee no byte of a worker passes through relight: it inherits the launcher's streams or writes its own file.
The pump, a thread, exists only while something is tee'd.
"""

from __future__ import annotations

import os

from relight.core.names import never
from relight.core.streams import Route, Streams, prefix, route
from relight.shell.console import Console
from relight.shell.logfiles import open_log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from relight.core.launch import Output
    from relight.core.roster import Place
    from relight.shell.tee import Pump, Source

NAMES = {Streams.OUT: "stdout", Streams.ERR: "stderr"}
DRAIN_S = 0.2  # how long what a dead worker wrote may take to arrive in its log


class Outlets:
    """One launcher's two consoles, and the files of its workers."""

    def __init__(self, output: Output, host: str) -> None:
        self._output = output
        self._host = host
        self._out, self._err = Console(1), Console(2)
        self._pump: Pump | None = None
        self._folder = ""
        self._given: list[int] = []  # descriptors that the workers of a round inherit; closed once they have them
        self._sources: dict[int, list[Source]] = {}
        self._stderr_files: dict[int, str] = {}

    def say(self, text: str) -> None:
        """A line of relight's own, on stderr. Never waits for the console."""
        line = f"{text}\n".encode(errors="backslashreplace")
        if self._pump is not None:
            self._pump.say(line)
        else:
            self._err.say(line)

    def begin(self, round_folder: str) -> None:
        """A new round: the streams of its workers are made next."""
        self._folder = round_folder
        self._sources = {}
        self._stderr_files = {}

    def streams(self, place: Place, folder: str) -> tuple[int | None, int | None]:
        """Descriptors for a worker's stdout and stderr; None: as inherited."""
        made = [self._stream(place, folder, stream) for stream in NAMES]
        return made[0], made[1]

    def started(self) -> None:
        """The workers have their descriptors (or will never have them)."""
        for fd in self._given:
            os.close(fd)
        self._given = []

    def drained(self, local_rank: int) -> str:
        """Waits a moment until all that an ended worker wrote is in its files. Returns its stderr file, if any."""
        sources = self._sources.pop(local_rank, [])
        if sources and self._pump is not None:
            self._pump.finish(sources, DRAIN_S)
        return self._stderr_files.get(local_rank, "")

    def give_up(self) -> None:
        """Someone is in a hurry: do not wait for a console that does not read."""
        if self._pump is not None:
            self._pump.give_up()

    def close(self) -> None:
        """Brings everything out and ends the pump."""
        if self._pump is not None:
            self._pump.close()
            self._pump = None

    def _stream(self, place: Place, folder: str, stream: Streams) -> int | None:
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

            self._pump = Pump(self._out, self._err)
        output = self._output
        needles = output.stdout_needles if stream is Streams.OUT else output.stderr_needles
        label = prefix(
            output.prefix_template,
            role=place.role,
            local_rank=place.local_rank,
            rank=place.rank,
            hostname=self._host,
        )
        readable, writable = os.pipe()
        source = self._pump.add(
            readable,
            path,
            label.encode(errors="backslashreplace"),
            to_stdout=stream is Streams.OUT,
            console=shown,
            needles=tuple(needle.encode() for needle in needles),
            filtered=os.path.join(self._folder, f"filtered_{NAMES[stream]}.log") if needles else None,
        )
        self._sources.setdefault(place.local_rank, []).append(source)
        return writable

    def _give(self, fd: int) -> int:
        self._given.append(fd)
        return fd
