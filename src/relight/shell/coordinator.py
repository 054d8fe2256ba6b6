"""The listening side: many agents, one Job. Lets them in, hears their reports, tells each its view.

Every agent is sent its own part of a round and nothing of the others', once for each decision. A lost connection is a
suspicion: the agent may come back under the same name; what answers at its port tells whether it can. Silence is a
matter of the lease, which `Job` keeps.
"""

from __future__ import annotations

import errno
import os
import socket

from relight.core.documents import Phase, Standing
from relight.core.frames import Frames, frame
from relight.core.names import Nonsense
from relight.core.node import NEVER
from relight.core.opening import MAGIC, Caller, Doorway, Refused, Terms, differences, refusal
from relight.core.values import replace
from relight.core.wire import read_report, write_view
from relight.shell.clock import monotonic
from relight.shell.door import Door
from relight.shell.link import LocalSeat
from relight.shell.probe import Probe
from relight.shell.stream import Stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from relight.core.documents import JobView, NodeReport
    from relight.core.frames import Fields
    from relight.core.job import Job
    from relight.shell.loop import Loop

OPENING_S = 10.0  # how long somebody may take to introduce itself
PROBES_S = (0.005, 0.02, 0.1, 0.25, 0.5)  # between looks at the port of an agent whose connection was lost
DOUBT_S = 0.2  # how long a failure waits for the proof that another node had died before
SLEPT_S = 1.0  # after a turn that is later than this, one more look at what has come in
NEWS_S = (3.0, 10.0, 30.0, 60.0)  # between lines about who is waited for
MOST_REMARKS = 100  # about who knocks and who differs; whoever knocks may knock a thousand times
LOOPBACK = ("127.", "::1")


class Coordinator:
    """Serves every agent of a job, the one in this process included (`seat`)."""

    def __init__(
        self,
        loop: Loop,
        job: Job,
        *,
        name: str,
        token: bytes,
        lease_s: float,
        options: dict[str, str],
        wanted: tuple[int, int],
        say: Callable[[str], object],
    ) -> None:
        self.loop = loop
        self._job = job
        self._name = name
        self._token = token
        self._lease_s = lease_s
        self._options = options
        self._wanted = wanted
        self._say = say
        self._strangers: dict[_Visitor, float] = {}  # who has not introduced itself yet, and until when it may
        self._members: dict[str, Member] = {}  # by the name that each has in this job
        self._suspects: dict[str, _Suspect] = {}
        self._told = -1  # the newest decision that everybody was told
        self._life = os.urandom(8).hex()  # a coordinator that was started anew knows nothing of the rounds before
        self._remarks: set[str] = set()  # what was said, once
        self._outward = ""  # the address by which others reach this machine
        self._news_at = monotonic() + NEWS_S[0]
        self._news = 0
        self._awake_at = monotonic()
        self._held: dict[Member, NodeReport] = {}  # failures that may be a dying node's work, by who reported them
        self._door: Door | None = None

    # -- who comes ------------------------------------------------------------------------------------------

    def adopt(self, connection: socket.socket, address: str, first: bytes = b"") -> None:
        """Takes a connection that does not block, and of which `first` has been read already."""
        visitor = _Visitor(self, connection, address, Doorway(self._name, self._token, os.urandom(16).hex()))
        self._strangers[visitor] = monotonic() + OPENING_S
        if first:
            visitor.spoke(first)

    def make_room(self) -> bool:
        """Sends somebody away who has not introduced itself; False if there is nobody."""
        visitor = next(iter(self._strangers), None)
        if visitor is not None:
            visitor.close()
        return visitor is not None

    def turned_away(self, address: str, why: str) -> None:
        self._remark(f"the coordinator turned {address} away: {why}")

    def _remark(self, sentence: str) -> None:
        """Says something once."""
        if sentence not in self._remarks and len(self._remarks) < MOST_REMARKS:
            self._remarks.add(sentence)
            self._say(sentence)

    def listen(self, host: str, port: int) -> None:
        """Opens a door of its own. Raises Taken, NotHere or UsageError."""
        self._door = Door(self.loop, host, port, self.adopt, make_room=self.make_room, tell=self.turned_away)

    def seat(
        self, caller: Caller, on_terms: Callable[[Terms], object], on_view: Callable[[JobView, float], object]
    ) -> LocalSeat:
        """A place for the agent in this very process."""
        member = self._let_in(caller, "127.0.0.1", None)
        member.on_view = on_view
        on_terms(Terms(member.name, NEVER))  # it hears its coordinator as long as it runs at all
        return LocalSeat(self, member)

    def _let_in(self, caller: Caller, address: str, stream: Stream | None) -> Member:
        """Gives a caller its name. One that was here before, in this life, keeps the one it had."""
        host = caller.host or "node"
        before = next((one for one in self._members.values() if one.life == caller.life), None)
        if before is None:
            tries = (host if turn == 1 else f"{host}#{turn}" for turn in range(1, 1 << 20))
            name = next(each for each in tries if self._is_free(each))
            before = self._members.get(name)
        else:
            name = before.name
        self._acquit(name)
        if before is not None:
            before.close()
        member = self._members[name] = Member(name, caller, address, stream)
        if unlike := differences(self._options, caller.options):
            self._remark(f"{name} was started with other options than this job: {', '.join(unlike)}")
        return member

    def _is_free(self, name: str) -> bool:
        holder = self._members.get(name)
        return holder is None or not (holder.here or self._job.has(name))

    # -- what they say --------------------------------------------------------------------------------------

    def welcome(self, visitor: _Visitor, caller: Caller) -> None:
        """Somebody has introduced itself."""
        del self._strangers[visitor]
        if not visitor.address.startswith(LOOPBACK) and not self._outward:
            self._outward = visitor.reached
            self._readdress()
        member = self._let_in(caller, visitor.address, visitor.stream)
        visitor.member = member
        visitor.stream.send(visitor.doorway.let_in(Terms(member.name, self._lease_s)))
        if member.door and member.here:
            member.probe = Probe(self.loop, member.address, member.door, member.answered)

    def hear(self, member: Member, report: NodeReport) -> None:
        """A report from whoever this member is."""
        applicant = report.applicant
        address = applicant.store_address or self._address_of(member)
        member.report = report = replace(
            report, applicant=replace(applicant, node=member.name, life=member.life, store_address=address)
        )
        if report.standing is Standing.BROKEN and self._in_doubt():
            self._held[member] = report
            return
        self._job.hear(report.sent_at if member.stream is None else monotonic(), report)
        heard_of = member.seen
        self._settle()
        if member.seen < self._told:
            self._tell(member)
        elif member.stream is not None and member.seen == heard_of:  # nothing is new but that it was heard
            member.stream.send(frame({"at": report.sent_at}))

    def _in_doubt(self) -> bool:
        """Whether it is about to be known if an agent has died: workers that fail meanwhile fail for its sake."""
        return any(suspect.fresh for suspect in self._suspects.values())

    def parted(self, visitor: _Visitor) -> None:
        """A connection is gone. Who had been let in may come back."""
        self._strangers.pop(visitor, None)
        member = visitor.member
        if member is not None and member.stream is visitor.stream:
            member.here = False
            if self._job.has(member.name):
                self._suspects[member.name] = _Suspect(self, member)

    def died(self, member: Member) -> None:
        """Nobody listens any more where this member's agent did, on a machine that answers."""
        self._acquit(member.name)
        self._job.died(monotonic(), member.name, "has died")
        self._settle()

    def _acquit(self, name: str) -> None:
        """It has come back, or its time is over: nothing is left to find out."""
        suspect = self._suspects.pop(name, None)
        if suspect is not None:
            suspect.close()

    def _address_of(self, member: Member) -> str:
        """Where others find a member: where it comes from; one on this machine is where this machine is."""
        if not member.address.startswith(LOOPBACK):
            return member.address
        return self._outward or member.address

    def _readdress(self) -> None:
        """Now it is known how others reach this machine: whoever is on it is told of anew."""
        for member in self._members.values():
            report = member.report
            derived = report is not None and report.applicant.store_address == member.address
            if report is not None and derived and member.address.startswith(LOOPBACK):
                member.report = replace(report, applicant=replace(report.applicant, store_address=self._outward))
                self._job.hear(monotonic(), member.report)

    # -- what they are told ---------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Makes a new decision known to everybody who can hear."""
        while self._job.decision.serial > self._told:
            self._told = self._job.decision.serial
            for member in list(self._members.values()):
                if member.here and member.report is not None:
                    self._tell(member)

    def _tell(self, member: Member) -> None:
        assert member.report is not None
        view = self._job.view_for(member.report.applicant)
        member.seen = view.serial
        if member.stream is not None:
            member.stream.send(frame({"view": write_view(view), "at": member.report.sent_at, "by": self._life}))
        elif member.on_view is not None:
            member.on_view(view, member.report.sent_at)

    # -- time -----------------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        for visitor in [each for each, until in self._strangers.items() if now >= until]:
            visitor.close()
        if self._door is not None:
            self._door.tick(now)
        self._watch(now)
        self._settle()
        for name, suspect in list(self._suspects.items()):
            if self._job.has(name):
                suspect.tick(now)
            else:
                self._acquit(name)
        if self._held and not self._in_doubt():
            held, self._held = self._held, {}
            for member, report in held.items():
                if self._members[member.name] is member:  # else somebody else has its name by now
                    self.hear(member, report)
        if now >= self._news_at:
            self._tell_news(now)

    def _watch(self, now: float) -> None:
        """Time passes for the job. What came in while this process stood still is heard before anybody is silent."""
        slept_s, self._awake_at = now - self._awake_at, now
        if slept_s < SLEPT_S:
            self._job.tick(now)

    def wake_at(self) -> float | None:
        moments = [suspect.again_at for suspect in self._suspects.values()]
        if self._strangers:  # in the order in which they came
            moments.append(next(iter(self._strangers.values())))
        for part in (self._job, self._door):
            if part is not None and (due := part.wake_at()) is not None:
                moments.append(due)
        if self._job.decision.phase is Phase.GATHERING:
            moments.append(self._news_at)
        return min(moments, default=None)

    def close(self) -> None:
        if self._door is not None:
            self._door.close()
        for visitor in list(self._strangers):
            visitor.close()
        for suspect in self._suspects.values():
            suspect.close()
        for member in self._members.values():
            member.close()

    @property
    def settled(self) -> bool:
        """Whether everybody who is connected, or may come back, has seen the newest decision."""
        return all(
            one.report.seen >= self._told if one.report is not None else not self._job.has(one.name)
            for one in self._members.values()
            if one.stream is not None and (one.here or one.name in self._suspects)
        )

    def go(self, host: Member) -> None:
        """The agent in this process was told to leave. Without it nobody decides: the job is over, and all are told."""
        if any(self._job.has(name) for name, member in self._members.items() if member is not host):
            self._job.stop(f"{host.name} was told to leave, and it hosts the coordinator")

    def _tell_news(self, now: float) -> None:
        """While nodes are waited for, a line says who is here."""
        if self._job.decision.phase is not Phase.GATHERING:
            self._news, self._news_at = 0, now + NEWS_S[0]
            return
        self._news = min(self._news + 1, len(NEWS_S) - 1)
        self._news_at = now + NEWS_S[self._news]
        here = sorted(member.name for member in self._members.values() if self._job.has(member.name))
        least, most = self._wanted
        size = str(least) if least == most else f"{least} to {most}"
        names = ", ".join(here[:16]) + (f" and {len(here) - 16} more" if len(here) > 16 else "")
        sentence = f"waiting for nodes: {len(here)} of {size} {'is' if len(here) == 1 else 'are'} here ({names})"
        self._say(sentence)
        for member in self._members.values():
            if member.stream is not None and member.report is not None:  # and so knows the terms, and listens
                member.stream.send(frame({"say": sentence}))


class Member:
    """An agent that was let in."""

    def __init__(self, name: str, caller: Caller, address: str, stream: Stream | None) -> None:
        self.name = name
        self.life = caller.life
        self.door = caller.door
        self.address = address
        self.stream = stream
        self.here = True
        self.provable = False  # whether its door is where it comes from: there may be a tunnel or a wall in between
        self.probe: Probe | None = None
        self.report: NodeReport | None = None
        self.seen = -1
        self.on_view: Callable[[JobView, float], object] | None = None

    def answered(self, error: int) -> None:
        """Its door was tried while it lived."""
        self.provable = error == 0

    def close(self) -> None:
        for part in (self.stream, self.probe):
            if part is not None:
                part.close()


class _Visitor:
    """One connection: first a stranger, then a member's."""

    def __init__(self, coordinator: Coordinator, connection: socket.socket, address: str, doorway: Doorway) -> None:
        self._coordinator = coordinator
        self.address = address
        self.reached = str(connection.getsockname()[0])  # which of this machine's addresses it found
        self.doorway = doorway
        self.member: Member | None = None
        self._greeted = False
        self._frames = Frames()
        self.stream = Stream(coordinator.loop, connection, self.spoke, self._ended)

    def spoke(self, chunk: bytes) -> None:
        try:
            if self.member is None:
                answer, caller = self.doorway.received(chunk)
                self._greet(answer)
                if caller is not None and self.stream.open:
                    self._coordinator.welcome(self, caller)
                return
            for said in self._frames.received(chunk):
                self._understand(said)
        except Refused as refused:
            self._greet(b"" if self._greeted else MAGIC)  # so that another version of relight knows what refuses it
            self.stream.send(refusal(refused))
            self._throw_out(refused.what)
        except Nonsense as nonsense:
            self._throw_out(f"it sent {nonsense}")

    def _greet(self, answer: bytes) -> None:
        self._greeted = self._greeted or bool(answer)
        self.stream.send(answer)

    def _understand(self, said: Fields) -> None:
        member = self.member
        assert member is not None
        report = said.within("report")
        if report is not None:
            self._coordinator.hear(member, read_report(report))
        elif member.report is not None:
            self._coordinator.hear(member, replace(member.report, sent_at=said.number("still")))

    def close(self) -> None:
        if self.stream.open:
            self.stream.close()
            self._ended()

    def _throw_out(self, why: str) -> None:
        who = self.member.name if self.member else self.address
        self._coordinator.turned_away(who, why)
        self.close()

    def _ended(self) -> None:
        self._coordinator.parted(self)


class _Suspect:
    """A member whose connection was lost. Its door tells if its agent is dead; nothing else but time does."""

    def __init__(self, coordinator: Coordinator, member: Member) -> None:
        self._coordinator = coordinator
        self._member = member
        self._looks = 0
        self._probe: Probe | None = None
        self._since = monotonic()
        self.again_at = self._since + PROBES_S[0]

    @property
    def fresh(self) -> bool:
        return self._member.provable and monotonic() < self._since + DOUBT_S

    def tick(self, now: float) -> None:
        if now < self.again_at:
            return
        self._looks = min(self._looks + 1, len(PROBES_S) - 1)
        self.again_at = now + PROBES_S[self._looks]
        if self._probe is not None:
            self._probe.close()
        if self._member.door and self._member.provable:
            self._probe = Probe(self._coordinator.loop, self._member.address, self._member.door, self._answered)

    def close(self) -> None:
        if self._probe is not None:
            self._probe.close()

    def _answered(self, error: int) -> None:
        if error == errno.ECONNREFUSED:
            self._coordinator.died(self._member)
