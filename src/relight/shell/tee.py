"""The pump: one thread that carries what workers say to their log files and to the console.

Each worker's stream is a pipe whose read end is given to `Pump.add`. Its bytes go unchanged to a log file; as
prefixed whole lines (see `relight.core.lines`) they go to a console; lines that hold a needle go to a file of
their own. The supervision in the main thread never waits for any of it, and the pump never waits for a console:
when a console lags, its text is not kept in memory but read back from the log files once there is room.

The main thread calls `add`, `say`, `finish`, `close`, `give_up`, which only leave an order behind, and learns by
`fileno()` and `finished()` which streams have been carried to their end. Consoles belong to the pump's thread
until `join` has returned True.
"""

from __future__ import annotations

import math
import os
import select
import signal
import threading
import time
from collections import deque

from relight.core.lines import Pace, Picker
from relight.core.names import Broken
from relight.shell.bell import Bell
from relight.shell.clock import monotonic
from relight.shell.console import MOST
from relight.shell.rawlog import RawLog
from relight.shell.source import Source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from relight.shell.console import Console

READ = 256 * 1024  # bytes of one stream at a time: more leaves the processor's cache
_HEADROOM = 4 << 20
CATCH_UP = 4  # reads from log files between two looks at the workers


class Pump:
    """Carries streams until it is closed. See the module."""

    def __init__(self, out: Console, err: Console) -> None:
        self._consoles = (out,) if out is err else (out, err)
        self._out, self._err = out, err
        self._orders: deque[Callable[[], None]] = deque()
        self._orders_came, self._something_ended = Bell(), Bell()
        self._done: deque[Source] = deque()
        self._poll = select.poll()
        self._poll.register(self._orders_came, select.POLLIN)
        self._sources: dict[int, Source] = {}
        self._behind: dict[Console, deque[Source]] = {console: deque() for console in self._consoles}
        self._messages: dict[Console, deque[_Message]] = {console: deque() for console in self._consoles}
        self._timed: set[Source] = set()  # those whose console text may change because time passes
        self._filters: dict[str, RawLog] = {}
        self._troubled: set[RawLog] = set()
        self._watched: set[Console] = set()
        self._buffer = memoryview(bytearray(READ))
        self._now = monotonic()
        self._closing = self._given_up = False
        self._failure: BaseException | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="relight pump", daemon=True)
        self._thread.start()

    # What the main thread calls.

    def add(
        self,
        fd: int,
        log_path: str | None,
        prefix: bytes,
        to_stdout: bool,
        *,
        console: bool = True,
        needles: tuple[bytes, ...] = (),
        filtered: str | None = None,
    ) -> Source:
        """Carries what comes out of `fd`, which belongs to the pump from now on.

        Without `console` it goes to the file only, also not to `filtered`, to which otherwise every line with
        one of the needles is appended, whole and prefixed, from all sources that name it.
        """
        source = Source(fd, prefix, (self._out if to_stdout else self._err) if console else None)
        self._order(lambda: self._begin(source, log_path, needles, filtered if console else None))
        return source

    def say(self, text: bytes, *, to_stdout: bool = False) -> None:
        """Shows whole lines of our own, after everything the workers had said before."""
        console = self._out if to_stdout else self._err
        self._order(lambda: self._take_message(console, text))

    def next_round(self) -> None:
        """Lets go of the files that only streams of the round before were picked for."""
        self._order(self._close_filters)

    def finish(self, sources: Iterable[Source], within_s: float = 0.2) -> None:
        """Reads to the end what ended workers have written; then `fileno()` is readable and `finished()` names them.

        A child that still holds the other end of a pipe is heard for `within_s` more, then its pipe is closed.
        """
        chosen = tuple(sources)
        self._order(lambda: self._finish(chosen, within_s))

    def fileno(self) -> int:
        """Readable when a stream was finished, when all is over, or when the pump broke."""
        return self._something_ended.fileno()

    def finished(self) -> list[Source]:
        """The streams finished since the last call. Raises what broke the pump, if something did."""
        self._something_ended.hush()
        if self._failure is not None:
            raise Broken(f"the log pump broke: {self._failure!r}") from self._failure
        return [self._done.popleft() for _ in range(len(self._done))]

    @property
    def over(self) -> bool:
        """Whether the end that `close` began has come."""
        return self._over.is_set()

    def close(self, within_s: float = 0.2) -> None:
        """Begins the end: every stream is finished, everything shown; a console that reads slowly is waited for."""
        self._order(lambda: self._close(within_s))

    def give_up(self) -> None:
        """A console that does not read is not waited for any longer, one line (if it fits) says what it missed."""
        self._given_up = True
        self._order(lambda: None)

    def join(self, within_s: float | None = None) -> bool:
        """Waits for the end that `close` began. Only after True may others use the consoles again."""
        if not self._over.wait(within_s):
            return False
        self._thread.join()
        self._orders_came.close()
        self._something_ended.close()
        return True

    def _order(self, order: Callable[[], None]) -> None:
        self._orders.append(order)
        self._orders_came.ring()

    # What happens in the pump's thread.

    def _run(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # signals are for the main thread
        # glibc hands memory back to the kernel, and fetches it again page by page, once more than twice the
        # largest block freed so far is free: without this one, each chunk costs twice as much (300 pages)
        bytes(_HEADROOM)
        try:
            self._carry()
        except BaseException as failure:
            self._failure = failure
        finally:
            for source in tuple(self._sources.values()):  # nobody may wait for a reader that is gone
                os.close(source.fd)
            for log in self._filters.values():
                log.close()
            self._over.set()
            self._something_ended.ring()

    def _carry(self) -> None:
        pace = Pace()
        pause_s = 0.0
        while not self._closing or not self._all_is_done():
            if pause_s:
                time.sleep(pause_s)
            began = monotonic()
            # what workers wrote before an order was given is visible to this poll, and read before the order is obeyed
            orders = len(self._orders)
            ready = self._poll.poll(0 if orders else self._timeout_ms(began))
            self._now = monotonic()
            fullest = 0.0
            for fd, _ in ready:
                if fd in self._sources:
                    source = self._sources[fd]
                    size = self._drain(source) if orders else self._read(source)
                    fullest = max(fullest, size / min(source.capacity, READ))
                elif fd == self._orders_came.fileno():
                    self._orders_came.hush()
            for _ in range(orders):
                self._orders.popleft()()
            self._show_what_waited()
            for console in self._consoles:
                self._serve(console)
            for source in [s for s in self._sources.values() if s.end_by is not None and s.end_by <= self._now]:
                self._drain(source)
                self._end(source)
            # a console that lags takes a little at a time: a pause would be the bottleneck
            pause_s = 0.0 if self._watched else pace.after(self._now - began, fullest)

    def _timeout_ms(self, now: float) -> int | None:
        if any(self._behind[console] and not console.wants_writing for console in self._consoles):
            return 0
        moments = [source.end_by for source in self._sources.values() if source.end_by is not None]
        moments += [at for source in self._timed if (at := source.wake_at()) is not None]
        if self._closing and any(not console.wants_writing and not console.settled for console in self._consoles):
            moments.append(now + 0.01)  # a carrier thread is on its way
        return None if not moments else max(0, math.ceil((min(moments) - now) * 1000))

    def _all_is_done(self) -> bool:
        if self._sources or self._orders:
            return False
        if self._given_up:
            self._abandon()
            return True
        return all(c.settled and not self._behind[c] and not self._messages[c] for c in self._consoles)

    def _begin(self, source: Source, path: str | None, needles: tuple[bytes, ...], filtered: str | None) -> None:
        source.prepare(len(self._sources))
        if path is not None:
            source.log = self._opened(path)
        if needles and filtered is not None:
            if filtered not in self._filters:
                self._filters[filtered] = self._opened(filtered)
            source.picker, source.filtered = Picker(source.prefix, needles), self._filters[filtered]
        self._sources[source.fd] = source
        self._poll.register(source.fd, select.POLLIN)
        self._drain(source)  # the next order may come after what was said already

    def _opened(self, path: str) -> RawLog:
        log = RawLog(path)
        self._notice(log)
        return log

    def _read(self, source: Source) -> int:
        """One read, at most `READ` bytes. 0: nothing is there, or the stream ended and is closed now."""
        try:
            size = os.readv(source.fd, (self._buffer,))
        except BlockingIOError:
            return 0
        if not size:
            self._end(source)
            return 0
        self._take(source, bytes(self._buffer[:size]))
        return size

    def _take(self, source: Source, data: bytes) -> None:
        """New bytes of a stream: to the file first, then to the console unless that lags."""
        kept = 0
        if source.log is not None:
            kept = source.log.append(data, self._now)
            self._notice(source.log)
        self._pick(source, source.picker.feed(data) if source.picker is not None else b"")
        console, lines = source.console, source.lines
        if console is None or lines is None or console.gone:
            return
        if not source.behind and not console.full:
            console.write(*lines.feed(data, self._now))
            source.seen = source.log.size if source.log is not None else 0
            if lines.wake_at() is not None:
                self._timed.add(source)
            return
        source.unseen += len(data) - kept
        if not source.behind:
            source.behind = True
            self._behind[console].append(source)

    def _pick(self, source: Source, text: bytes) -> None:
        if text and source.filtered is not None:
            source.filtered.append(text, self._now)
            self._notice(source.filtered)

    def _close_filters(self) -> None:
        wanted = {source.filtered for source in self._sources.values()}
        for path, log in list(self._filters.items()):
            if log not in wanted:
                del self._filters[path]
                log.close()

    def _show_what_waited(self) -> None:
        """Unfinished lines after some quiet, and the newest states of progress bars."""
        for source in [s for s in self._timed if s.may_show]:
            console, lines = source.console, source.lines
            assert console is not None and lines is not None
            wake_at = lines.wake_at()
            if wake_at is None:
                self._timed.discard(source)
            elif wake_at <= self._now:
                console.look()
                console.write(lines.show(self._now))

    def _serve(self, console: Console) -> None:
        """Writes what waits for this console, then as much of what it missed as it takes."""
        console.flush()
        waiting = self._behind[console]
        for _ in range(CATCH_UP):
            if not waiting or console.wants_writing:
                break
            self._catch_up(console, waiting.popleft())
        messages = self._messages[console]
        while messages and all(not source.behind or source.seen >= goal for source, goal in messages[0].after):
            console.say(messages.popleft().text)
        if console.wants_writing and console not in self._watched:
            self._watched.add(console)
            self._poll.register(console.fileno(), select.POLLOUT)
        elif not console.wants_writing and console in self._watched:
            self._watched.discard(console)
            self._poll.unregister(console.fileno())

    def _catch_up(self, console: Console, source: Source) -> None:
        """Shows more of what a console missed of one source, from the file, until nothing is left there."""
        lines, log = source.lines, source.log
        assert lines is not None
        data = log.read(source.seen, READ) if log is not None and not console.gone else b""
        if data:
            source.seen += len(data)
            console.write(*lines.feed(data, self._now))
            self._behind[console].append(source)
            self._timed.add(source)
            return
        source.behind = False
        if log is not None:  # less than was written can be read: somebody has cut the file
            source.unseen += log.size - source.seen
            source.seen = log.size
        if source.unseen:
            console.write(lines.end())
            console.say(
                b"relight: %d bytes of %b are lost here: this console did not read, and they are in no file"
                % (source.unseen, source.prefix)
            )
            source.unseen = 0
        if source.finished:
            source.let_go()

    def _take_message(self, console: Console, text: bytes) -> None:
        messages = self._messages[console]
        after = [(source, source.log.size if source.log is not None else 0) for source in self._behind[console]]
        if not after and not messages:
            console.say(text)
        elif sum(len(message.text) for message in messages) + len(text) <= MOST:
            messages.append(_Message(text, after))
        else:
            console.missed += len(text)

    def _notice(self, log: RawLog) -> None:
        """One line when the first file cannot be written, one when all can be again."""
        if log.trouble is not None and log not in self._troubled:
            self._troubled.add(log)
            if len(self._troubled) == 1:
                text = f"relight: warning: cannot write {log.path}: {log.trouble}; this output is missing from there\n"
                self._take_message(self._err, text.encode(errors="surrogateescape"))
        elif log.trouble is None and log in self._troubled:
            self._troubled.discard(log)
            if not self._troubled:
                text = f"relight: {log.path} can be written again; a line in it says what is missing\n"
                self._take_message(self._err, text.encode(errors="surrogateescape"))

    def _finish(self, sources: Iterable[Source], within_s: float) -> None:
        for source in sources:
            self._drain(source)
            if not source.finished:
                end_by = self._now + within_s
                source.end_by = end_by if source.end_by is None else min(source.end_by, end_by)

    def _drain(self, source: Source) -> int:
        """Reads what is in the pipe now, and not what a child that lives on may add without end."""
        total = 0
        while total < source.capacity and not source.finished:
            size = self._read(source)
            if not size:
                break
            total += size
        return total

    def _end(self, source: Source) -> None:
        if source.finished:
            return
        self._poll.unregister(source.fd)
        del self._sources[source.fd]
        os.close(source.fd)
        self._pick(source, source.picker.end() if source.picker is not None else b"")
        source.finished = True
        if not source.behind:
            source.let_go()
        self._done.append(source)
        self._something_ended.ring()

    def _close(self, within_s: float) -> None:
        self._closing = True
        self._finish(tuple(self._sources.values()), within_s)

    def _abandon(self) -> None:
        """Leaves consoles that do not read; each gets a last line and relight's own messages, if they fit."""
        for console in self._consoles:
            waiting, messages = self._behind[console], self._messages[console]
            missed = sum(source.missed for source in waiting)
            missed += console.abandon() if console.wants_writing else 0
            if missed:
                console.say(
                    b"relight: this console did not read %d bytes; what workers said is in their log files" % missed
                )
            for message in messages:
                console.say(message.text)
            for source in waiting:
                if source.log is not None:
                    source.log.close()
            waiting.clear()
            messages.clear()


class _Message:
    """One of our own lines that waits until the console has caught up with what was said before it."""

    def __init__(self, text: bytes, after: list[tuple[Source, int]]) -> None:
        self.text = text
        self.after = after
