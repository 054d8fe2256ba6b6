"""How agents come together: who hosts, who calls, and what is said about it. No name server is asked."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

import pytest

from relight.core.job import JobRules
from relight.core.launch import Launch, Meeting
from relight.shell.door import Taken
from relight.shell.link import LocalSeat
from relight.shell.meet import Ears, Here, is_here, is_loopback, meet
from relight.shell.remote import RemoteLink
from relight.shell.storehost import StoreHost
from tests.shell.company import NAME, Agent, Company, Keeper, Link

RULES = JobRules(2, 2, lease_s=60.0)
WARNING = (
    "warning: whoever reaches port {} of this machine can join this job "
    "(RELIGHT_TOKEN or --token-file keeps strangers out)"
)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def meets(
    company: Company, meeting: Meeting, store: StoreHost | None = None, most: int = 2
) -> Callable[[Here, Ears], Link]:
    launch = Launch("train.py", min_nodes=2, max_nodes=most, run_id=NAME, meeting=meeting)
    return lambda here, ears: meet(company.loop, launch, meeting, RULES, here, ears, store)


def found(*addresses: str) -> Callable[..., list[object]]:
    """What a name server says."""
    return lambda *_, **__: [(socket.AF_INET, 2, 17, "", (address, 0)) for address in addresses]


def no_lookup(*_: object, **__: object) -> list[object]:
    raise AssertionError("asked a name server")


def unknown(*_: object, **__: object) -> list[object]:
    raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")


# -- who hosts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_the_first_at_an_endpoint_of_this_machine_hosts_and_the_next_one_calls_it(company: Company, host: str) -> None:
    meeting = Meeting(host, free_port(), token="secret")
    one = company.agent(0, "a", meets=meets(company, meeting))
    two = company.agent(0, "b", meets=meets(company, meeting))
    assert isinstance(one.link, LocalSeat)
    assert isinstance(two.link, RemoteLink)
    company.until(lambda: one.runs and two.runs, "both to run")
    assert (one.name, two.name) == ("box", "box#2")
    assert one.said + two.said == []


def test_who_is_to_host_hosts_or_says_why_not(company: Company) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(Taken, match=f"port {port} on 127.0.0.1 is taken by another program") as caught:
            company.agent(0, "a", has_door=False, meets=meets(company, Meeting("127.0.0.1", port, hosts=True)))
    assert "--rdzv-endpoint" in caught.value.remedy
    assert len(company.loop._selector.get_map()) == 0
    one = company.agent(0, "a", meets=meets(company, Meeting("127.0.0.1", port, hosts=True)))
    assert isinstance(one.link, LocalSeat)


def test_who_is_not_to_host_calls_even_its_own_machine(company: Company) -> None:
    port = free_port()
    one = company.agent(0, "a", meets=meets(company, Meeting("127.0.0.1", port, hosts=False)))
    assert isinstance(one.link, RemoteLink)
    with socket.create_server(("127.0.0.1", port)):
        pass  # nobody listens there


def test_an_endpoint_of_another_machine_is_called(company: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    one = company.agent(0, "a", meets=meets(company, Meeting("node7", 29400, join_timeout_s=0.05)))
    assert isinstance(one.link, RemoteLink)
    company.until(lambda: one.lost, "its patience to end")
    assert "the name 'node7' stands for no address (Name or service not known)" in str(one.lost[0])


def test_a_port_that_something_else_has_is_called_and_named(company: Company) -> None:
    keeper = Keeper(company)
    one = company.agent(0, "a", meets=meets(company, Meeting("127.0.0.1", keeper.port)))
    keeper.accept()
    keeper.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    company.until(lambda: one.lost, "the sentence")
    assert str(one.lost[0]) == f"the coordinator at 127.0.0.1:{keeper.port}: it speaks HTTP"


def test_the_coordinator_and_the_store_may_answer_at_one_port(company: Company) -> None:
    store = StoreHost(company.loop, "127.0.0.1")
    company.ends.append(store.close)
    meeting = Meeting("127.0.0.1", store.port, hosts=True, on_store=True)
    one = company.agent(0, "a", meets=meets(company, meeting, store))
    two = company.agent(0, "b", meets=meets(company, Meeting("127.0.0.1", store.port, hosts=False)))
    company.until(lambda: one.runs and two.runs, "both to run")
    assert isinstance(one.link, LocalSeat)


def test_other_options_are_seen_by_the_host(company: Company) -> None:
    meeting = Meeting("127.0.0.1", free_port())
    one = company.agent(0, "a", meets=meets(company, meeting))
    two = company.agent(0, "b", meets=meets(company, meeting, most=4))
    company.until(lambda: one.runs and two.runs, "both to run")
    assert one.said == ["box#2 was started with other options than this job: --nnodes 2:4 (here 2:2)"]


# -- who may come ------------------------------------------------------------------------------------------------------


def host_at(company: Company, monkeypatch: pytest.MonkeyPatch, **how: str) -> Agent:
    """An agent that hosts where other machines reach it."""
    meeting = Meeting(os.uname().nodename, free_port(), **how)  # type: ignore[arg-type]
    with monkeypatch.context() as patched:
        patched.setattr(socket, "getaddrinfo", no_lookup)
        return company.agent(0, "a", meets=meets(company, meeting))


def test_an_open_endpoint_without_a_token_is_warned_of(company: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    one = host_at(company, monkeypatch)
    assert isinstance(one.link, LocalSeat)
    port = one.link._coordinator._door.port if one.link._coordinator._door else 0
    assert one.said == [WARNING.format(port)]
    with socket.create_connection(("127.0.0.2", port)):
        pass  # it answers at every address


def test_with_a_token_or_on_loopback_there_is_nothing_to_warn_of(
    company: Company, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = host_at(company, monkeypatch, token="secret")
    two = company.agent(0, "b", meets=meets(company, Meeting("127.0.0.1", free_port())))
    assert isinstance(one.link, LocalSeat) and isinstance(two.link, LocalSeat)
    assert one.said + two.said == []
    door = two.link._coordinator._door
    assert door is not None
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", door.port))


# -- where that is -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.1.2.3", True), ("localhost", True), ("::1", True), ("10.0.0.1", False), ("n1", False)],
)
def test_loopback_is_known_by_its_look(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1", "Node7.cluster.example", "NODE7"])
def test_this_machine_is_known_without_asking(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "node7.cluster.example", "", "", "")))
    monkeypatch.setattr(socket, "getaddrinfo", no_lookup)
    assert is_here(host)


@pytest.mark.parametrize(
    ("lookup", "here"),
    [
        (found("192.0.2.1", "127.0.0.5"), True),  # any address that is ours
        (found("192.0.2.1"), False),
        (found(), False),
        (unknown, False),
    ],
)
def test_any_other_name_is_here_if_one_of_its_addresses_is(
    lookup: Callable[..., list[object]], here: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    assert is_here("some-name") is here


def test_what_is_no_name_at_all_is_not_here() -> None:
    assert not is_here("a" * 70)
