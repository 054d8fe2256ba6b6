"""Bytes of many workers in, prefixed whole lines out: what one console shows, decided without touching it.

The rules, in the order in which a reader meets them:

- Every line of a worker begins with that worker's prefix, and lines of two workers are never mixed.
- An unfinished line waits until nothing more came for 200 ms (or it has been growing for a second), then it is
  shown without an end. When the rest comes and the cursor still stands behind it, the rest simply follows. When
  somebody else wrote in between, a fresh line was begun for them, and the rest gets the prefix again, also on a
  fresh line. A line of more than 256 KiB is shown in parts, so that nobody has to remember it.
- A carriage return means: what follows replaces this line (a progress bar). Only states are shown, never every
  update. On a terminal the newest state stands in place behind its prefix, at most ten times a second; a bar
  that lost its place to another worker's output takes a fresh line at most once a second. In a pipe or file a
  state is a line of its own, at most one a second. The last state before the line ends is always shown, once.
- `\\r\\n` is an ordinary end of line and passes unchanged; cursor-up sequences (nested bars) are removed, for
  they would write over other workers' lines.
- When a worker's stream ends in mid-line, the console gets the missing end of line.

As long as no time passes, it makes no difference how the bytes were cut into chunks on their way here.
"""

from __future__ import annotations

QUIET_S = 0.2  # an unfinished line is shown when nothing followed for so long
PATIENCE_S = 1.0  # or when it keeps growing for so long without a pause
BAR_S = 0.1  # a progress bar in its own place on a terminal is renewed so often
BAR_LINE_S = 1.0  # a progress bar that costs a line each time, so often
LONGEST = 256 * 1024  # more than this of one unfinished line is not remembered

_ERASE = b"\x1b[K"
_CURSOR_UP = b"\x1b[A"


class Screen:
    """Where a console's cursor stands: at the start of a line, or behind the unfinished line of one worker."""

    __slots__ = ("columns", "owner", "terminal")

    def __init__(self, terminal: bool = False, columns: int = 0) -> None:
        self.terminal = terminal
        self.columns = columns  # 0: unknown, nothing is cut to fit
        self.owner: Lines | None = None

    def fresh(self) -> bytes:
        """What has to be written so that the next byte begins a line."""
        lead = b"" if self.owner is None else b"\n"
        self.owner = None
        return lead


class Lines:
    """One worker's stream on its way to one screen."""

    __slots__ = ("_bar", "_bar_at", "_heard_at", "_last", "_open", "_pending", "_since", "prefix", "screen")

    def __init__(self, prefix: bytes, screen: Screen) -> None:
        self.prefix = prefix
        self.screen = screen
        self._pending = bytearray()  # of the current line, what the screen has not been given (or a bar's state)
        self._open = False  # a first part of the current line was given to the screen
        self._bar = False  # the current line has replaced itself at least once
        self._last: bytes | None = None  # the state of a bar that was shown last
        self._bar_at = float("-inf")  # when that was
        self._since = self._heard_at = 0.0  # when the oldest, and the newest, byte not yet shown came

    def feed(self, data: bytes, now: float) -> tuple[bytes, ...]:
        """What the screen shows at once because of `data`: all lines that it finishes, as pieces to be written."""
        end = data.rfind(b"\n")
        if end < 0:
            return self._keep(data, now)
        if self._is_special() or (b"\r" in data and data.count(b"\r") != data.count(b"\r\n")):
            return self._feed_slowly(data, now)
        body = data[:end].replace(b"\n", b"\n" + self.prefix)
        first = self._lead() + self._pending
        self._begin_line()
        return (first, body, b"\n", *self._keep(data[end + 1 :], now))

    def wake_at(self) -> float | None:
        """When `show` will have something to show, if nothing more comes until then."""
        if not self._pending:
            return None
        if not self._bar and not self._pending.endswith(b"\r"):
            return min(self._heard_at + QUIET_S, self._since + PATIENCE_S)
        if _state(self._pending) == self._last:
            return None
        if self.screen.terminal and self.screen.owner in (None, self):
            return self._since + BAR_S
        return max(self._since + QUIET_S, self._bar_at + BAR_LINE_S)

    def show(self, now: float) -> bytes:
        """What the screen shows because time has passed: an unfinished line, or the newest state of a bar."""
        wake_at = self.wake_at()
        if wake_at is None or now < wake_at:
            return b""
        if not self._bar and not self._pending.endswith(b"\r"):
            return self._part()
        state = self._last = _state(self._pending)
        self._bar_at = now
        if not self.screen.terminal:
            return self.screen.fresh() + self.prefix + state + b"\n"
        return self._in_place(self._fitting(state))

    def end(self) -> bytes:
        """What the screen still has to show because nothing more will come."""
        if not self._pending and not self._open:
            return b""
        return self._finish(bytes(self._pending))

    def _keep(self, tail: bytes, now: float) -> tuple[bytes, ...]:
        """Remembers the beginning of a line, or more of it; what is too long to remember is shown."""
        if not tail:
            return ()
        if not self._pending or (self._last is not None and _state(self._pending) == self._last):
            self._since = now
        self._heard_at = now
        self._pending += tail
        self._forget_replaced()
        return (self._part(),) if len(self._pending) > LONGEST else ()

    def _forget_replaced(self) -> None:
        """Drops all states of a bar but the newest; a single return at the very end may still be half of `\\r\\n`."""
        if self._pending.find(b"\r", 0, len(self._pending) - 1) < 0:
            return
        self._bar = True
        visible = self._pending.rstrip(b"\r \t")
        del self._pending[: visible.rfind(b"\r") + 1]

    def _is_special(self) -> bool:
        """Whether the end of the current line needs more than to be written after what is pending."""
        broken_off = self._open and self.screen.owner is not self
        return self._bar or broken_off or self._pending.endswith(b"\r")

    def _feed_slowly(self, data: bytes, now: float) -> tuple[bytes, ...]:
        """Line by line, for a stream that holds carriage returns."""
        *lines, tail = (bytes(self._pending) + data).split(b"\n")
        shown = [self._finish(line) for line in lines]
        return (b"".join(shown), *self._keep(tail, now))

    def _finish(self, line: bytes) -> bytes:
        """The end of a line, of which `line` has not been shown yet."""
        if self._bar or b"\r" in line[:-1]:
            text = self._finish_bar(_state(line))
        elif self._open and self.screen.owner is not self and line in (b"", b"\r"):
            text = b""  # somebody else's output has ended it long ago
        else:
            text = self._lead() + line + b"\n"
        self._begin_line()
        return text

    def _finish_bar(self, state: bytes) -> bytes:
        screen = self.screen
        if (state == self._last and state == self._fitting(state)) or (self._open and not state):
            return screen.fresh() if screen.owner is self else b""
        if not screen.terminal:
            return screen.fresh() + self.prefix + state + b"\n"
        text = self._in_place(state) + b"\n"
        screen.owner = None
        return text

    def _in_place(self, state: bytes) -> bytes:
        """A bar's state on a terminal: over the one before where that is possible, else on a fresh line."""
        if self.screen.owner is self:
            return b"\r" + self.prefix + state + _ERASE
        text = self.screen.fresh() + self.prefix + state
        self.screen.owner = self
        return text

    def _fitting(self, state: bytes) -> bytes:
        """As much of a state as leaves it on one row: a bar that wraps cannot be written over."""
        room = self.screen.columns - len(self.prefix.decode(errors="replace")) - 1
        if not self.screen.columns or len(state) <= room or b"\x1b" in state:
            return state
        text = state.decode(errors="surrogateescape")
        return text[: max(0, room)].encode(errors="surrogateescape")

    def _part(self) -> bytes:
        """What is there of an unfinished line."""
        text = self._lead() + self._pending
        self._pending.clear()
        self._open = True
        self.screen.owner = self
        return text

    def _lead(self) -> bytes:
        """What comes before the rest of the current line."""
        if self._open and self.screen.owner is self:
            self.screen.owner = None
            return b""
        return self.screen.fresh() + self.prefix

    def _begin_line(self) -> None:
        self._pending.clear()
        self._open = self._bar = False
        self._last = None


class Picker:
    """Finds the lines of one worker that contain any of some needles.

    A line of more than 256 KiB counts as several. Of a progress bar the last state that contains a needle is taken.
    """

    __slots__ = ("_needles", "_prefix", "_rest")

    def __init__(self, prefix: bytes, needles: tuple[bytes, ...]) -> None:
        self._prefix = prefix
        self._needles = needles
        self._rest = bytearray()

    def feed(self, data: bytes) -> bytes:
        """The lines found among those that `data` finishes, with prefixes."""
        end = data.rfind(b"\n") + 1
        whole = b""
        if end:
            whole = bytes(self._rest) + data[:end]
            self._rest.clear()
        self._rest += data[end:]
        if len(self._rest) > LONGEST:
            whole += bytes(self._rest)
            self._rest.clear()
        return self._found(whole)

    def end(self) -> bytes:
        """What is left when nothing more comes."""
        rest = bytes(self._rest)
        self._rest.clear()
        return self._found(rest)

    def _found(self, text: bytes) -> bytes:
        if not self._hit(text):
            return b""
        lines = text.split(b"\n")
        if not lines[-1]:  # what follows the last newline is no line, though an empty needle would match it
            lines.pop()
        return b"".join([self._prefix + self._told(line) + b"\n" for line in lines if self._hit(line)])

    def _hit(self, text: bytes) -> bool:
        return any(needle in text for needle in self._needles)

    def _told(self, line: bytes) -> bytes:
        states = [state for state in line.split(b"\r") if self._hit(state)]
        return states[-1] if states else line


class Pace:
    """How long to let a stream of small writes gather before the next look at it.

    Nothing for rare lines, so that each is shown at once; up to two milliseconds in a steady stream, so that
    neither the writers (who would wake us with every line) nor we pay for each line; nothing when pipes fill up.
    """

    RARE_S = 0.001
    FIRST_S = 0.0005
    MOST_S = 0.002

    __slots__ = ("_pause_s", "_quick")

    def __init__(self) -> None:
        self._quick = 0
        self._pause_s = 0.0

    def after(self, waited_s: float, fullness: float) -> float:
        """The pause after a look that had to wait `waited_s` and found the fullest pipe `fullness` (0 to 1) full."""
        if waited_s >= self.RARE_S or fullness > 0.5:
            self._quick, self._pause_s = 0, 0.0
            return 0.0
        self._quick += 1
        if self._quick > 3 and fullness <= 0.25:
            self._pause_s = min(max(2 * self._pause_s, self.FIRST_S), self.MOST_S)
        return self._pause_s


def _state(line: bytes | bytearray) -> bytes:
    """What a line that replaced itself shows in the end, leaving out what only erases."""
    states = bytes(line).replace(_CURSOR_UP, b"").split(b"\r")
    return next((state for state in reversed(states) if state.strip()), b"")
