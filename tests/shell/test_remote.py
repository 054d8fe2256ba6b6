"""An agent's link to a coordinator elsewhere: real ones, ones by hand, and whatever else may stand at a port."""

from __future__ import annotations

import errno
import os
import socket
import struct

import pytest

from relight.core.documents import JobView, Phase, Standing
from relight.core.frames import frame
from relight.core.opening import MAGIC, Refused, refusal
from relight.core.wire import write_view
from relight.shell import remote as remotes
from relight.shell.clock import monotonic
from relight.shell.remote import Endpoint, RemoteLink
from tests.shell.company import Agent, Company, Keeper

GATHERING = JobView(0, Phase.GATHERING, 0, "waiting for nodes")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def answer(at: float, view: JobView | None = None, by: str = "c1") -> bytes:
    return frame({"at": at} if view is None else {"at": at, "view": write_view(view), "by": by})


def link_of(agent: Agent) -> RemoteLink:
    assert isinstance(agent.link, RemoteLink)
    return agent.link


# -- finding it ------------------------------------------------------------------------------------------------------


def test_it_waits_for_a_coordinator_that_is_not_there_yet(company: Company) -> None:
    port = free_port()
    agent = company.agent(port, "a")
    company.until(lambda: link_of(agent)._tries == 3, "three tries")
    assert str(link_of(agent)._trouble) == "Connection refused"
    company.host(1, port=port)
    company.until(lambda: agent.runs, "the round")
    assert (agent.said, agent.lost) == ([], [])


def test_an_endpoint_is_written_as_it_is_typed() -> None:
    assert [str(Endpoint(host, 29400)) for host in ("n1", "::1")] == ["n1:29400", "[::1]:29400"]


def test_patience_runs_out_and_what_was_in_the_way_is_said(company: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remotes, "SAID_AT_S", (0.05, 0.08))
    port = free_port()
    agent = company.agent(port, "a", patience_s=0.2)
    company.until(lambda: agent.lost, "the end of its patience")
    assert str(agent.lost[0]) == f"the coordinator at 127.0.0.1:{port}: Connection refused, for 0.2 s"
    assert set(agent.said) == {f"waiting for the coordinator at 127.0.0.1:{port}: Connection refused"}
    assert len(agent.said) <= 3
    company.turn_for(0.05)
    assert len(agent.lost) == 1
    assert agent.link.wake_at() is None, "who has given up sleeps"
    assert agent.link.settled


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "Name or service not known"),
        (TimeoutError(errno.ETIMEDOUT, "Connection timed out"), "Connection timed out"),
        (UnicodeError("label too long"), "it is no name"),
    ],
)
def test_a_name_that_stands_for_no_address_is_asked_for_again_until_patience_runs_out(
    company: Company, monkeypatch: pytest.MonkeyPatch, error: Exception, why: str
) -> None:
    asked: list[object] = []

    def lookup(*words: object, **_: object) -> list[object]:
        asked.append(words[0])
        raise error

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    agent = company.agent(29400, "a", address="node7", patience_s=0.12)
    company.until(lambda: agent.lost, "the end of its patience")
    what = f"the coordinator at node7:29400: the name 'node7' stands for no address ({why}), for 0.12 s"
    assert str(agent.lost[0]) == what
    assert len(asked) > 1


def test_a_slow_name_server_holds_nobody_up_for_long(company: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    release = os.pipe()
    monkeypatch.setattr(remotes, "NAMING_S", 0.02)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: os.read(release[0], 1))
    agent = company.agent(29400, "a", address="node7", patience_s=0.1)
    company.until(lambda: agent.lost, "the end of its patience")
    assert "(Connection timed out)" in str(agent.lost[0])
    for fd in reversed(release):
        os.close(fd)


def test_every_address_of_a_name_is_tried_and_the_name_is_asked_for_now_and_then(
    company: Company, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator = company.host(1)
    port = coordinator._door.port if coordinator._door else 0
    asked: list[object] = []

    def lookup(*words: object, **_: object) -> list[object]:
        asked.append(words[0])
        return [(socket.AF_INET, 1, 6, "", (f"127.0.0.{last}", port)) for last in (2, 3, 1)]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    agent = company.agent(port, "a", address="node7")
    company.until(lambda: agent.runs, "the one address at which somebody answers")
    assert asked == ["node7"]


def test_an_address_that_cannot_be_reached_at_all_is_only_one_try(company: Company) -> None:
    agent = company.agent(29400, "a", address="255.255.255.255", patience_s=0.1)
    company.until(lambda: agent.lost, "the end of its patience")
    assert str(agent.lost[0]).startswith("the coordinator at 255.255.255.255:29400: ")


def test_without_a_descriptor_it_tries_again(company: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator = company.host(1)

    def no_socket(*_: object) -> socket.socket:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patched:
        patched.setattr(socket, "socket", no_socket)
        agent = company.agent(coordinator, "a", has_door=False)
        company.until(lambda: link_of(agent)._tries, "its first try")
        assert str(link_of(agent)._trouble) == "Too many open files"
    company.until(lambda: agent.runs, "the round")


# -- what may answer there ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "it speaks HTTP"),
        (b"\x16\x03\x03\x00\x02\x02\x28", "it speaks TLS, and this side does not"),
        (b"\0" + struct.pack("<I", 7), "it speaks torch's TCPStore protocol: a torchrun agent"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "it is not relight: its first bytes are b'SSH-2.0-OpenSSH_"),
        (b"relight/7\n", "it speaks version 7 of relight's protocol, and this is version 1"),
        (refusal(Refused("no")), "it speaks torch's"),
        (MAGIC + refusal(Refused("the job is full", "--nnodes 3")), "the job is full"),
    ],
)
def test_whatever_else_answers_there_is_named_and_not_called_again(company: Company, said: bytes, why: str) -> None:
    keeper = Keeper(company)
    agent = company.agent(keeper.port, "a")
    keeper.accept()
    keeper.send(said)
    company.until(lambda: agent.lost, "the sentence")
    assert str(agent.lost[0]).startswith(f"the coordinator at 127.0.0.1:{keeper.port}: {why}")
    company.turn_for(0.1)
    assert (len(agent.lost), keeper.calls) == (1, 1)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"", "it closed the connection without a word"),
        (MAGIC, "it closed the connection while we introduced ourselves"),
        (MAGIC + struct.pack(">I", 2) + b"[]", "it sent something that is no JSON object"),
        (MAGIC + refusal(Refused("not yet", final=False)), "not yet"),
    ],
)
def test_what_may_pass_is_tried_again_until_patience_runs_out(company: Company, said: bytes, why: str) -> None:
    keeper = Keeper(company)
    agent = company.agent(keeper.port, "a", patience_s=0.25)
    for _ in range(2):
        keeper.accept()
        keeper.send(said)
        keeper.drop()
    company.until(lambda: why in str(link_of(agent)._trouble), "the second answer")
    company.until(lambda: agent.lost, "the end of its patience")
    assert len(agent.lost) == 1


def test_a_passing_refusal_does_not_keep_it_out(company: Company) -> None:
    keeper = Keeper(company)
    agent = company.agent(keeper.port, "a")
    keeper.accept()
    keeper.send(MAGIC + refusal(Refused("not yet", final=False)))
    keeper.let_in()
    company.until(lambda: agent.terms, "it to be let in")
    assert agent.lost == []


def test_who_answers_and_says_nothing_is_given_up(company: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remotes, "OPENING_S", 0.05)
    keeper = Keeper(company)
    agent = company.agent(keeper.port, "a")
    keeper.accept()
    company.until(lambda: keeper.calls == 1 and link_of(agent)._tries == 2, "the next try")
    assert str(link_of(agent)._trouble) == "it did not let us in"


def test_a_connection_that_is_never_made_is_given_up(company: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remotes, "OPENING_S", 0.05)
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        with socket.create_connection(full.getsockname()):  # the queue is full now: whoever comes hears nothing
            agent = company.agent(full.getsockname()[1], "a")
            company.until(lambda: link_of(agent)._tries == 2, "the next try")
    assert str(link_of(agent)._trouble) == "Connection timed out"


# -- once it is in -----------------------------------------------------------------------------------------------------


def test_a_report_goes_up_whole_and_after_that_only_that_it_still_holds(company: Company) -> None:
    keeper = Keeper(company, lease_s=0.5)
    agent = company.agent(keeper.port, "a")
    keeper.let_in()
    first = keeper.hears()
    assert "report" in first
    keeper.send(answer(1.0, GATHERING))
    second = keeper.hears()
    assert "report" in second, "now it has seen the view"
    third, fourth = keeper.hears(), keeper.hears()
    assert "still" in third and "still" in fourth
    assert 0.04 < fourth.number("still") - third.number("still") < 0.4
    assert agent.view == GATHERING
    keeper.send(answer(2.0))
    company.until(lambda: agent.answered_at == 2.0, "the answer to a heartbeat")


def test_a_heartbeat_needs_nobody_who_tells(company: Company) -> None:
    """An agent that takes its leave only ticks; its link neither falls silent nor keeps it awake."""
    keeper = Keeper(company, lease_s=0.5)
    agent = company.agent(keeper.port, "a")
    keeper.let_in()
    keeper.hears()
    agent.tells = False
    assert "still" in keeper.hears()
    turns = company.turns
    company.turn_for(0.1)
    assert company.turns - turns < 30


def test_after_a_drop_it_calls_again_at_once_and_says_all_it_is(company: Company) -> None:
    keeper = Keeper(company)
    agent = company.agent(keeper.port, "a")
    keeper.let_in()
    first = keeper.hears()
    keeper.send(answer(1.0, GATHERING))
    keeper.hears()
    keeper.send(answer(2.0)[:7])
    keeper.drop()
    keeper.let_in()
    again = keeper.hears().within("report")
    assert "report" in first and again is not None
    assert again.whole("seen") == 0
    assert len(agent.terms) == 1, "to be let in on the same terms is no news, and no answer"
    keeper.send(answer(3.0))
    company.until(lambda: agent.answered_at == 3.0, "an answer, whatever was cut off before it")
    keeper.drop()
    keeper.let_in("box#2")
    company.until(lambda: agent.name == "box#2", "the new name")


def test_after_a_drop_its_patience_is_two_leases(company: Company) -> None:
    keeper = Keeper(company, lease_s=0.1)
    agent = company.agent(keeper.port, "a", patience_s=60.0)
    keeper.let_in()
    keeper.hears()
    keeper.send(answer(1.0, GATHERING))
    company.until(lambda: agent.view, "the view")
    keeper.listener.close()
    keeper.drop()
    company.until(lambda: agent.lost, "the end of its patience")
    assert str(agent.lost[0]).endswith(": Connection refused, for 0.2 s")


def test_a_coordinator_that_throws_it_out_each_time_wears_out_its_patience(company: Company) -> None:
    keeper = Keeper(company, lease_s=0.2)
    agent = company.agent(keeper.port, "a", patience_s=0.5)
    while keeper.calls < 3:
        keeper.let_in()
        keeper.drop()
    assert agent.lost == []
    company.until(lambda: agent.lost or keeper.came(), "the end of its patience")
    assert len(agent.terms) == 1
    assert keeper.calls < 8, "with growing pauses"


def test_a_coordinator_that_was_started_anew_is_not_followed(company: Company) -> None:
    keeper = Keeper(company)
    agent = company.agent(keeper.port, "a")
    keeper.let_in()
    keeper.hears()
    running = JobView(4, Phase.RUNNING, 1, "round 1 on box")
    keeper.send(answer(1.0, running))
    company.until(lambda: agent.view == running, "the view")
    keeper.drop()
    keeper.let_in()
    keeper.hears()
    keeper.send(answer(9.0, GATHERING, by="c2"))
    company.until(lambda: agent.lost, "it to see that")
    assert "its agent was started anew, and the rounds that it had decided are over" in str(agent.lost[0])
    assert agent.lost[0].remedy == "start this node's agent anew as well"
    assert (agent.view, agent.answered_at) == (running, 1.0)


@pytest.mark.parametrize(
    "said",
    [frame({"at": "noon"}), frame({"view": {}, "at": 1.0}), struct.pack(">I", 1 << 30), frame({"view": 1, "at": 1.0})],
)
def test_nonsense_from_the_coordinator_costs_the_connection(company: Company, said: bytes) -> None:
    keeper = Keeper(company)
    agent = company.agent(keeper.port, "a")
    keeper.let_in()
    keeper.hears()
    keeper.send(said)
    keeper.let_in()
    assert "report" in keeper.hears()
    assert str(link_of(agent)._trouble).startswith("it sent ")
    assert (agent.views, agent.lost) == ([], [])


def test_a_line_for_the_user_is_passed_on(company: Company) -> None:
    keeper = Keeper(company)
    agent = company.agent(keeper.port, "a")
    keeper.let_in()
    keeper.send(frame({"say": "waiting for nodes"}))
    company.until(lambda: agent.said, "the line")
    assert agent.said == ["waiting for nodes"]


def test_it_is_settled_when_its_newest_report_was_heard_or_cannot_be(company: Company) -> None:
    keeper = Keeper(company)
    agent = company.agent(keeper.port, "a")
    keeper.let_in()
    first = keeper.hears().within("report")
    assert first is not None
    assert not agent.link.settled
    keeper.send(answer(first.number("sent_at")))
    company.until(lambda: agent.link.settled, "the answer")
    agent.standing = Standing.LEFT
    agent.link.tell(agent.report())
    assert not agent.link.settled
    keeper.drop()
    company.until(lambda: agent.link.settled, "the drop")


def test_closing_it_leaves_nothing_on_the_loop(company: Company) -> None:
    keeper = Keeper(company)
    knocking, inside = company.agent(keeper.port, "a"), company.agent(keeper.port, "b")
    keeper.let_in()
    for agent in (knocking, inside):
        agent.close()
        assert agent.link.wake_at() is None
        agent.tick(monotonic())
        assert agent.link.settled
    assert len(company.loop._selector.get_map()) == 0
