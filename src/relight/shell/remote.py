"""The link to a coordinator in another process: calls it, introduces itself, reports, hears views; and calls again.

What this node is goes up whole whenever it changes, and as a heartbeat "still so" in between. A connection that is lost
is made again at once and then with growing pauses; what that means for the workers is the lease's affair, not ours.
"""

from __future__ import annotations

import errno
import os
import socket

from relight.core.frames import Frames, frame
from relight.core.names import Nonsense
from relight.core.opening import Call, Refused
from relight.core.values import replace, value
from relight.core.wire import read_view, write_report
from relight.shell.clock import monotonic
from relight.shell.patience import within
from relight.shell.stream import Stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from relight.core.documents import JobView, NodeReport
    from relight.core.frames import Fields
    from relight.core.opening import Caller, Terms
    from relight.shell.loop import Loop

OPENING_S = 10.0  # how long the other side may take to let us in
PAUSES_S = (0.0, 0.05, 0.1, 0.2, 0.5, 1.0)  # before each try to connect; the last one repeats
BEATS = 10  # reports in a lease
NAMING_S = 1.0  # how long a name server may take
TRIES_A_NAME = 8  # before a name is asked for again
SAID_AT_S = (2.0, 30.0)  # after how long a line says that nobody answers, and again


@value
class Endpoint:
    """Where the coordinator answers."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class RemoteLink:
    """`on_terms` hears on which terms we were let in, `on_view` the newest view and the moment it answers; `say` gets
    lines for the user. `on_lost` hears, once, why no coordinator was found within `patience_s`, and what to do."""

    def __init__(
        self,
        loop: Loop,
        endpoint: Endpoint,
        caller: Caller,
        token: bytes,
        *,
        patience_s: float,
        on_terms: Callable[[Terms], object],
        on_view: Callable[[JobView, float], object],
        on_lost: Callable[[Refused], object],
        say: Callable[[str], object],
    ) -> None:
        self._loop = loop
        self._endpoint = endpoint
        self._caller = caller
        self._token = token
        self._patience_s = patience_s
        self._on_terms = on_terms
        self._on_view = on_view
        self._on_lost = on_lost
        self._say = say
        self._stream: Stream | None = None
        self._knocking: socket.socket | None = None
        self._call: Call | None = None
        self._frames = Frames()
        self._terms: Terms | None = None  # the newest ones
        self._by = ""  # which start of a coordinator decides
        self._view: JobView | None = None
        self._report: NodeReport | None = None  # the newest, whether it was sent or not
        self._sent = False  # on this connection
        self._beat_at = 0.0
        self._tries = 0
        self._missed_since: float | None = monotonic()  # since when there has been no coordinator
        self._again_at: float | None = monotonic()
        self._until: float | None = None  # when whoever does not let us in is given up
        self._said = 0
        self._answered_at = 0.0  # up to when what we said was heard
        self._places: list[tuple[int, Any]] = []  # where the endpoint's host was found
        self._trouble = Refused("nothing answered yet")

    # -- what this node says --------------------------------------------------------------------------------

    def tell(self, report: NodeReport) -> bool:
        """Says what this node is. False if it has said just that already; then at most a heartbeat goes out."""
        news = not report.repeats(self._report)
        if news:
            self._report, self._sent = report, False
        self._speak(report.sent_at)
        return news

    def _speak(self, now: float) -> None:
        """Sends the report, if it has not been, or else that it still holds, if that is due."""
        if self._stream is None or self._call is not None or self._report is None:
            return
        if not self._sent:
            self._report = replace(self._report, sent_at=now)
            self._sent = True
            self._stream.send(frame({"report": write_report(self._report)}))
        elif now >= self._beat_at:
            self._stream.send(frame({"still": now}))
        else:
            return
        if self._terms is not None:
            self._beat_at = now + self._terms.lease_s / BEATS

    # -- time -----------------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        if self._until is not None and now >= self._until:
            waited_for = os.strerror(errno.ETIMEDOUT) if self._stream is None else "it did not let us in"
            self._part(Refused(waited_for, final=False))
        if self._missed_since is not None:
            missed_s = now - self._missed_since
            if missed_s >= self._patience_s:
                self._give_up(self._trouble)
                return
            if missed_s >= SAID_AT_S[min(self._said, 1)] * max(1, self._said):
                self._said += 1
                self._say(f"waiting for the coordinator at {self._endpoint}: {self._trouble}")
        if self._again_at is not None and now >= self._again_at:
            self._again_at = None
            self._knock()
        self._speak(now)

    def wake_at(self) -> float | None:
        moments = [at for at in (self._until, self._again_at) if at is not None]
        if self._missed_since is not None:
            moments.append(self._missed_since + self._patience_s)
            moments.append(self._missed_since + SAID_AT_S[min(self._said, 1)] * max(1, self._said))
        if self._stream is not None and self._call is None and self._report is not None:
            moments.append(self._beat_at)
        return min(moments, default=None)

    @property
    def settled(self) -> bool:
        """Whether the newest report was heard, or cannot be heard any more."""
        return self._stream is None or self._report is None or self._answered_at >= self._report.sent_at

    def close(self) -> None:
        self._again_at = self._until = self._missed_since = None
        if self._knocking is not None:
            self._loop.unwatch(self._knocking.fileno())
            self._knocking.close()
            self._knocking = None
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    # -- connecting -----------------------------------------------------------------------------------------

    def _knock(self) -> None:
        self._tries += 1
        self._until = monotonic() + OPENING_S
        try:
            family, where = self._place()
        except (OSError, UnicodeError) as error:  # a name server that does not know, or does not answer
            why = error.strerror if isinstance(error, OSError) else "it is no name"
            self._part(Refused(f"the name {self._endpoint.host!r} stands for no address ({why})", final=False))
            return
        try:
            knocking = socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:
            self._part(Refused(os.strerror(error.errno or 0), final=False))
            return
        knocking.setblocking(False)
        knocking.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        failed = knocking.connect_ex(where)
        if failed not in (0, errno.EINPROGRESS):
            knocking.close()
            self._part(Refused(os.strerror(failed), final=False))
            return
        self._knocking = knocking
        self._loop.watch(knocking.fileno(), self._answered, writable=True)

    def _place(self) -> tuple[int, Any]:
        """One address of the endpoint's host. A name is asked for now and then only, and never for long."""
        if not self._places or self._tries % TRIES_A_NAME == 0:
            host, port = self._endpoint.host, self._endpoint.port
            found = within(NAMING_S, host, lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
            self._places = [(family, where) for family, _, _, _, where in found]
        return self._places[self._tries % len(self._places)]

    def _answered(self) -> None:
        knocking = self._knocking
        assert knocking is not None
        self._knocking = None
        self._loop.unwatch(knocking.fileno())
        error = knocking.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            knocking.close()
            self._part(Refused(os.strerror(error), final=False))
            return
        self._call = Call(self._caller, self._token, os.urandom(16).hex())
        self._frames = Frames()
        self._sent = False
        self._stream = Stream(self._loop, knocking, self._heard, self._ended)
        self._stream.send(self._call.begin())

    def _ended(self) -> None:
        """The other side closed the connection, or it broke."""
        self._stream = None
        self._part(self._call.ended() if self._call is not None else Refused("the connection was lost", final=False))

    def _part(self, trouble: Refused) -> None:
        """There is no connection, for this reason; another one is tried for, unless that is no use."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None
        if self._knocking is not None:
            self._loop.unwatch(self._knocking.fileno())
            self._knocking.close()
            self._knocking = None
        self._call = self._until = None
        self._trouble = trouble
        now = monotonic()
        if self._missed_since is None:
            self._missed_since, self._said, self._tries = now, 0, 0
        if trouble.final:
            self._give_up(trouble)
        else:
            self._again_at = now + PAUSES_S[min(self._tries, len(PAUSES_S) - 1)]

    def _give_up(self, trouble: Refused) -> None:
        self.close()
        waited = "" if trouble.final else f", for {self._patience_s:g} s"
        what = f"the coordinator at {self._endpoint}: {trouble.what}{waited}"
        self._on_lost(Refused(what, trouble.remedy, final=trouble.final))

    # -- what comes in --------------------------------------------------------------------------------------

    def _heard(self, chunk: bytes) -> None:
        try:
            if self._call is not None:
                self._introduce(self._call, chunk)
            else:
                for said in self._frames.received(chunk):
                    self._understand(said)
        except Refused as refused:
            self._part(refused)
        except Nonsense as nonsense:
            self._part(Refused(f"it sent {nonsense}", final=False))

    def _introduce(self, call: Call, chunk: bytes) -> None:
        answer, terms = call.received(chunk)
        if self._stream is not None:
            self._stream.send(answer)
        if terms is None:
            return
        self._call = self._until = None
        if terms != self._terms:  # to be let in once more is no answer: the lease does not begin anew
            self._terms = terms
            self._on_terms(terms)
        self._speak(monotonic())

    def _understand(self, said: Fields) -> None:
        if "say" in said:
            self._say(said.text("say"))
            return
        at = said.number("at")
        view = said.within("view")
        if view is not None:
            self._hear_view(read_view(view), said.text("by", 100))
        self._answered_at = max(self._answered_at, at)
        if self._missed_since is not None and self._terms is not None:
            self._missed_since = None
            self._patience_s = 2 * self._terms.lease_s  # by then the workers have ended themselves
        if self._view is not None:
            self._on_view(self._view, at)

    def _hear_view(self, view: JobView, by: str) -> None:
        if self._by and by != self._by:  # whose rounds begin at 0 again, while the workers are in one of the old ones
            raise Refused(
                "its agent was started anew, and the rounds that it had decided are over",
                "start this node's agent anew as well",
            )
        self._by, self._view = by, view
