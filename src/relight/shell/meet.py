"""How this node and the job's coordinator come together: it hosts the coordinator itself, or calls it."""

from __future__ import annotations

import os
import socket

from relight.core.job import Job
from relight.core.opening import Caller
from relight.core.values import value
from relight.shell.clock import monotonic
from relight.shell.coordinator import Coordinator
from relight.shell.door import NotHere, Taken
from relight.shell.patience import within
from relight.shell.remote import Endpoint, RemoteLink

NAMING_S = 5.0  # how long a name server may take

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from relight.core.documents import JobView
    from relight.core.job import JobRules
    from relight.core.launch import Launch, Meeting
    from relight.core.opening import Refused, Terms
    from relight.shell.link import LocalSeat
    from relight.shell.loop import Loop
    from relight.shell.storehost import StoreHost


@value
class Here:
    """What this node is to the others."""

    host: str
    life: str
    door: int  # where its agent listens, for the workers' store if for nothing else
    release: str = ""  # of relight


@value
class Ears:
    """Who hears what comes of it."""

    on_terms: Callable[[Terms], object]
    on_view: Callable[[JobView, float], object]
    on_lost: Callable[[Refused], object]
    say: Callable[[str], object]


def meet(
    loop: Loop,
    launch: Launch,
    meeting: Meeting,
    rules: JobRules,
    here: Here,
    ears: Ears,
    store: StoreHost | None = None,
) -> RemoteLink | LocalSeat:
    """The link to the coordinator: to our own if the meeting is on this machine and nobody else hosts it already.

    Where both are to answer at one port, `store` hands over whoever calls the coordinator.
    """
    caller = Caller(launch.run_id, here.release, here.host, here.life, here.door, tuple(_options(launch).items()))
    hosts = is_here(meeting.host) if meeting.hosts is None else meeting.hosts
    if hosts:
        coordinator = Coordinator(
            loop,
            Job(rules, monotonic()),
            name=launch.run_id,
            token=meeting.token.encode(),
            lease_s=meeting.lease_s,
            options=_options(launch),
            wanted=(launch.min_nodes, launch.max_nodes),
            say=ears.say,
        )
        try:
            if meeting.on_store and store is not None:
                store.other = coordinator.adopt
            else:
                coordinator.listen(meeting.host if is_loopback(meeting.host) else "", meeting.port)
        except (Taken, NotHere) as error:
            coordinator.close()
            if meeting.hosts:
                raise Taken(str(error), "--rdzv-endpoint HOST:PORT with a port that is free there") from None
        else:
            if not (meeting.token or is_loopback(meeting.host)):
                ears.say(
                    f"warning: whoever reaches port {meeting.port} of this machine can join this job "
                    "(RELIGHT_TOKEN or --token-file keeps strangers out)"
                )
            return coordinator.seat(caller, ears.on_terms, ears.on_view)
    return RemoteLink(
        loop,
        Endpoint(meeting.host, meeting.port),
        caller,
        meeting.token.encode(),
        patience_s=meeting.join_timeout_s,
        on_terms=ears.on_terms,
        on_view=ears.on_view,
        on_lost=ears.on_lost,
        say=ears.say,
    )


def is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


def is_here(host: str) -> bool:
    """Whether an endpoint's host is this machine: by its name, or because one of its addresses can be bound here."""
    own = os.uname().nodename
    if is_loopback(host) or host.lower() in (own.lower(), own.partition(".")[0].lower()):
        return True
    try:
        found = within(NAMING_S, host, lambda: socket.getaddrinfo(host, None, type=socket.SOCK_DGRAM))
    except (OSError, UnicodeError):  # a name server that does not know, or does not answer
        return False
    return any(_can_bind(family, str(where[0])) for family, _, _, _, where in found)


def _can_bind(family: int, address: str) -> bool:
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


def _options(launch: Launch) -> dict[str, str]:
    """What all nodes of a job have to agree on."""
    return {
        "--nnodes": f"{launch.min_nodes}:{launch.max_nodes}",
        "--max-restarts": str(launch.budget.restarts),
    }
