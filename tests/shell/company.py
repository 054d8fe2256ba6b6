"""Agents without workers around a real coordinator, on one loop that the test turns."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable

from relight.core.documents import JobView, NodeReport, Phase, Standing
from relight.core.frames import Fields, Frames
from relight.core.job import Job, JobRules
from relight.core.launch import Budget
from relight.core.opening import Call, Caller, Doorway, Refused, Terms
from relight.core.roster import Applicant
from relight.shell.clock import monotonic
from relight.shell.coordinator import Coordinator
from relight.shell.link import LocalSeat
from relight.shell.loop import Loop
from relight.shell.meet import Ears, Here
from relight.shell.remote import Endpoint, RemoteLink

Link = RemoteLink | LocalSeat

DEADLINE_S = 10.0
NAME = "llama"
OPTIONS = {"--nnodes": "2:2", "--max-restarts": "3"}


class Company:
    """Everybody there is, and the only one who turns the loop."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.said: list[str] = []  # by the coordinator
        self.turns = 0
        self.parts: list[Agent | Coordinator] = []
        self.ends: list[Callable[[], object]] = []

    def host(self, nodes: int, *, token: bytes = b"", lease_s: float = 60.0, port: int = 0) -> Coordinator:
        """A coordinator for so many nodes, with a door on loopback."""
        rules = JobRules(nodes, nodes, Budget(3), lease_s=lease_s, settle_s=0.02, batch_s=0.02)
        coordinator = Coordinator(
            self.loop,
            Job(rules, monotonic()),
            name=NAME,
            token=token,
            lease_s=lease_s,
            options=OPTIONS,
            wanted=(nodes, nodes),
            say=self.said.append,
        )
        coordinator.listen("127.0.0.1", port)
        self.parts.append(coordinator)
        self.ends.append(coordinator.close)
        return coordinator

    def agent(self, where: Coordinator | int, life: str, host: str = "box", **more: object) -> Agent:
        """One that calls."""
        agent = Agent(self, where if isinstance(where, int) else port_of(where), life, host, **more)  # type: ignore[arg-type]
        self.parts.append(agent)
        self.ends.append(agent.close)
        return agent

    def dial(self, coordinator: Coordinator) -> socket.socket:
        client = socket.create_connection(("127.0.0.1", port_of(coordinator)), timeout=DEADLINE_S)
        client.setblocking(False)
        self.ends.append(client.close)
        return client

    def turn(self) -> None:
        now = monotonic()
        due = [at for part in self.parts for at in (part.wake_at(),) if at is not None]
        self.loop.wait(min([now + 0.02, *due]))
        self.turns += 1
        for part in self.parts:
            part.tick(monotonic())

    def until(self, true: Callable[[], object], what: str) -> None:
        end = time.monotonic() + DEADLINE_S
        while not true():
            assert time.monotonic() < end, f"waited {DEADLINE_S:g} s for {what}; it was said: {self.said}"
            self.turn()

    def turn_for(self, for_s: float) -> None:
        """Turns for a while in which nothing is to happen."""
        end = time.monotonic() + for_s
        while time.monotonic() < end:
            self.turn()

    def close(self) -> None:
        for end in self.ends:
            end()


class Agent:
    """Follows its views like an agent whose workers start and end at once."""

    def __init__(
        self,
        company: Company,
        port: int,
        life: str,
        host: str,
        *,
        token: bytes = b"",
        has_door: bool = True,
        door: int = 0,
        patience_s: float = DEADLINE_S,
        options: dict[str, str] = OPTIONS,
        job: str = NAME,
        seat: Coordinator | None = None,
        meets: Callable[[Here, Ears], Link] | None = None,
        address: str = "127.0.0.1",
    ) -> None:
        self.life = life
        self.door = socket.create_server(("127.0.0.1", 0)) if has_door and not door else None
        self.views: list[JobView] = []
        self.terms: list[Terms] = []
        self.lost: list[Refused] = []
        self.said: list[str] = []
        self.answered_at = 0.0
        self.standing: Standing | None = None  # None: as the view asks
        self.silent = False  # neither ticks nor tells
        self.tells = True
        port_of_door = self.door.getsockname()[1] if self.door else door
        self.applicant = Applicant("?", 2, store_address="", store_port=port_of_door, life=life)
        caller = Caller(job, "1.0", host, life, port_of_door, tuple(options.items()))
        self.link: Link
        if meets is not None:
            here = Here(host, life, port_of_door)
            self.link = meets(here, Ears(self.terms.append, self._follow, self.lost.append, self.said.append))
        elif seat is not None:
            self.link = seat.seat(caller, self.terms.append, self._follow)
        else:
            self.link = RemoteLink(
                company.loop,
                Endpoint(address, port),
                caller,
                token,
                patience_s=patience_s,
                on_terms=self.terms.append,
                on_view=self._follow,
                on_lost=self.lost.append,
                say=self.said.append,
            )

    @property
    def name(self) -> str:
        return self.terms[-1].name if self.terms else ""

    @property
    def view(self) -> JobView | None:
        return self.views[-1] if self.views else None

    @property
    def runs(self) -> bool:
        return self.view is not None and self.view.phase is Phase.RUNNING and self.view.part is not None

    @property
    def ended(self) -> bool:
        return self.view is not None and self.view.phase is Phase.ENDED

    @property
    def reason(self) -> str:
        return self.view.reason if self.view else ""

    def report(self) -> NodeReport:
        view = self.view
        standing = self.standing or (Standing.WORKING if self.runs else Standing.READY)
        seen, round_ = (view.serial, view.round) if view else (-1, -1)
        return NodeReport(self.applicant, seen, standing, round_, monotonic())

    def tick(self, now: float) -> None:
        if not self.silent:
            self.link.tick(now)
            if self.tells:
                self.link.tell(self.report())

    def wake_at(self) -> float | None:
        return None if self.silent else self.link.wake_at()

    def drop(self) -> None:
        """Loses its connection; nothing else happens to it."""
        assert isinstance(self.link, RemoteLink) and self.link._stream is not None
        stream = self.link._stream
        assert stream._connection is not None
        stream._connection.shutdown(socket.SHUT_RDWR)

    def says(self, something: bytes) -> None:
        """Sends what its link would never send."""
        assert isinstance(self.link, RemoteLink) and self.link._stream is not None
        self.link._stream.send(something)

    def vanish(self) -> None:
        """Its process is no more."""
        self.silent = True
        self.link.close()
        if self.door is not None:
            self.door.close()

    def close(self) -> None:
        self.link.close()
        if self.door is not None:
            self.door.close()

    def _follow(self, view: JobView, at: float) -> None:
        self.answered_at = at
        if self.view is None or view.serial > self.view.serial:
            self.views.append(view)


class Keeper:
    """Answers calls as a coordinator does, and does just what the test says."""

    def __init__(self, company: Company, lease_s: float = 60.0) -> None:
        self.company = company
        self.lease_s = lease_s
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.setblocking(False)
        self.port: int = self.listener.getsockname()[1]
        self.connection: socket.socket | None = None
        self.calls = 0
        company.ends += [self.listener.close, self.drop]

    def accept(self) -> None:
        """Waits for a call, and says nothing."""
        self.company.until(self.came, "a call")

    def let_in(self, name: str = "box") -> None:
        """Waits for a call and lets it in."""
        self.accept()
        doorway = Doorway(NAME, b"", os.urandom(8).hex())
        while True:
            answer, caller = doorway.received(self.listen())
            self.send(answer)
            if caller is not None:
                self.send(doorway.let_in(Terms(name, self.lease_s)))
                self._frames = Frames()
                return

    def hears(self) -> Fields:
        """The next frames; the last one of them."""
        found: list[Fields] = []
        while not found:
            found = self._frames.received(self.listen())
        return found[-1]

    def send(self, data: bytes) -> None:
        assert self.connection is not None
        self.connection.sendall(data)

    def listen(self) -> bytes:
        heard: list[bytes] = []

        def heard_something() -> bool:
            assert self.connection is not None
            try:
                heard.append(self.connection.recv(1 << 16))
            except BlockingIOError:
                return False
            return True

        self.company.until(heard_something, "the caller to say something")
        return heard[0]

    def drop(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def came(self) -> bool:
        """Whether somebody calls; the call before it is over."""
        try:
            connection, _ = self.listener.accept()
        except BlockingIOError:
            return False
        self.drop()
        connection.setblocking(False)
        self.connection = connection
        self.calls += 1
        return True


def port_of(coordinator: Coordinator) -> int:
    assert coordinator._door is not None
    return coordinator._door.port


def hear(company: Company, client: socket.socket) -> bytes:
    """Everything up to the end of the connection."""
    heard = bytearray()

    def ended() -> bool:
        try:
            while piece := client.recv(1 << 16):
                heard.extend(piece)
        except BlockingIOError:
            return False
        except ConnectionError:
            pass
        return True

    company.until(ended, f"the connection to end, {bytes(heard)!r} has come")
    return bytes(heard)


def introduce(company: Company, client: socket.socket, caller: Caller, begun: int = 0) -> Terms:
    """A caller by hand, that has said so many bytes already."""
    call = Call(caller, b"", os.urandom(8).hex())
    found: list[Terms] = []
    client.sendall(call.begin()[begun:])

    def let_in() -> bool:
        try:
            answer, terms = call.received(client.recv(1 << 16))
        except BlockingIOError:
            return False
        client.sendall(answer)
        found.extend([terms] if terms else [])
        return bool(found)

    company.until(let_in, f"{caller.life} to be let in")
    return found[0]
