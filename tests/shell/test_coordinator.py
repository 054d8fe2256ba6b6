"""The listening side: agents without workers, strangers by hand, real sockets on one loop."""

from __future__ import annotations

import errno
import os
import socket
import struct

import pytest

from relight.core.documents import Standing
from relight.core.frames import LIMIT, Frames, frame
from relight.core.opening import MAGIC, Call, Caller
from relight.core.values import replace
from relight.core.wire import write_report
from relight.shell import coordinator as coordinators
from relight.shell import stream as streams
from relight.shell.clock import monotonic
from relight.shell.coordinator import Coordinator
from relight.shell.probe import Probe
from tests.shell.company import NAME, Agent, Company, hear, introduce, port_of
from tests.waiting import out_of_descriptors

TCPSTORE = b"\0" + struct.pack("<I", 0x3C85F7CE)


def pair(company: Company, *, token: bytes = b"", lease_s: float = 60.0) -> tuple[Coordinator, Agent, Agent]:
    """A job of two nodes that runs."""
    coordinator = company.host(2, token=token, lease_s=lease_s)
    one, two = (company.agent(coordinator, life, host=life, token=token) for life in ("n1", "n2"))
    company.until(lambda: one.runs and two.runs, "both to run")
    return coordinator, one, two


def serial(coordinator: Coordinator) -> int:
    return coordinator._job.decision.serial


# -- who is here -------------------------------------------------------------------------------------------------


def test_agents_meet_and_each_is_told_its_own_part(company: Company) -> None:
    coordinator = company.host(3)
    seat = company.agent(coordinator, "a", "box", seat=coordinator)
    company.until(lambda: coordinator._job.has("box"), "the one in this process")
    others = [company.agent(coordinator, life) for life in ("b", "c")]
    everybody = [seat, *others]
    company.until(lambda: all(agent.runs for agent in everybody), "all three to run")
    assert sorted(agent.name for agent in everybody) == ["box", "box#2", "box#3"]
    parts = [agent.view.part for agent in everybody if agent.view]
    assert [part.seat.node for part in parts if part] == [agent.name for agent in everybody]
    assert sorted(part.seat.first_rank for part in parts if part) == [0, 2, 4]
    assert {(part.world_size, part.group_world_size, part.store_address) for part in parts if part} == {
        (6, 3, "127.0.0.1")
    }
    assert {part.store_port for part in parts if part} == {seat.applicant.store_port}
    assert {agent.reason for agent in everybody} == {"round 0 on box, box#2, box#3"}
    assert seat.terms[0].lease_s == float("inf"), "who is in the same process needs no fence"
    assert others[0].terms[0].lease_s == 60.0
    company.turn_for(0.05)
    assert coordinator._job.decision.round == 0


def test_a_life_that_comes_back_keeps_its_name_even_if_a_better_one_is_free_now(company: Company) -> None:
    coordinator = company.host(3)
    first = company.agent(coordinator, "a")
    company.until(lambda: coordinator._job.has("box"), "the first")
    second = company.agent(coordinator, "b")
    company.until(lambda: coordinator._job.has("box#2"), "the second")
    first.standing = Standing.LEFT
    company.until(lambda: not coordinator._job.has("box"), "the first to leave")
    first.vanish()
    company.until(lambda: not coordinator._members["box"].here, "its connection to end")
    second.drop()
    company.until(lambda: not coordinator._members["box#2"].here, "the drop to be seen")
    company.until(lambda: coordinator._members["box#2"].here, "the second to come back")
    third = company.agent(coordinator, "c")
    company.until(lambda: third.name, "somebody new")
    assert (second.name, third.name) == ("box#2", "box")
    assert len(second.terms) == 1, "the same terms are not told again"


def test_a_name_stays_taken_while_its_holder_may_still_live(company: Company) -> None:
    coordinator, one, _ = pair(company)
    one.silent = True
    one.drop()
    company.until(lambda: coordinator._suspects, "the suspicion")
    impostor = company.agent(coordinator, "other", host="n1")
    company.until(lambda: impostor.name, "its name")
    assert impostor.name == "n1#2"


def test_a_name_is_taken_as_soon_as_it_is_given(company: Company) -> None:
    coordinator = company.host(2)
    callers = [Caller(NAME, "1.0", "box", life) for life in ("a", "b")]
    names = [introduce(company, company.dial(coordinator), caller).name for caller in callers]
    assert names == ["box", "box#2"], "though neither has reported anything yet"


def test_an_agent_without_a_host_name_has_a_name(company: Company) -> None:
    agent = company.agent(company.host(2), "a", host="")
    company.until(lambda: agent.name, "its name")
    assert agent.name == "node"


def test_a_new_connection_of_the_same_life_ends_the_old_one(company: Company) -> None:
    coordinator, one, two = pair(company)
    before = serial(coordinator)
    one.silent = True
    client = company.dial(coordinator)
    terms = introduce(company, client, Caller(NAME, "1.0", "n1", "n1"))
    assert terms.name == "n1"
    company.turn_for(0.05)
    assert coordinator._suspects == {}
    assert (serial(coordinator), two.runs) == (before, True)


# -- who lives ---------------------------------------------------------------------------------------------------


def test_a_heartbeat_extends_the_lease_and_silence_ends_it(company: Company) -> None:
    coordinator, one, two = pair(company, lease_s=0.4)
    since = one.answered_at
    company.turn_for(0.5)
    assert one.runs and two.runs
    assert one.answered_at > since + 0.4
    two.silent = True
    company.until(lambda: not one.runs, "the silence to be noticed")
    assert one.reason.startswith("n2 fell silent for 0.")
    assert coordinator._members["n2"].here, "its connection is as it was"


def test_a_lost_connection_is_no_death_while_the_agents_door_answers(company: Company) -> None:
    coordinator, one, two = pair(company)
    before = serial(coordinator)
    two.silent = True
    two.drop()
    company.until(lambda: coordinator._suspects, "the suspicion")
    suspect = coordinator._suspects["n2"]
    company.until(lambda: suspect._looks == 3, "three knocks at its door")
    assert (serial(coordinator), one.runs) == (before, True)
    two.silent = False
    company.until(lambda: coordinator._members["n2"].here, "it to come back")
    company.turn_for(0.05)
    assert coordinator._suspects == {}
    assert (serial(coordinator), two.runs, len(two.terms)) == (before, True, 1)


def test_no_other_answer_than_a_refusal_proves_a_death(company: Company) -> None:
    coordinator, one, two = pair(company)
    two.silent = True
    two.drop()
    company.until(lambda: coordinator._suspects, "the suspicion")
    for error in (0, errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.EMFILE):
        coordinator._suspects["n2"]._answered(error)
    assert coordinator._job.has("n2") and one.runs


def test_a_door_that_refuses_proves_a_death(company: Company) -> None:
    coordinator, one, two = pair(company)
    company.until(lambda: coordinator._members["n2"].provable, "its door to answer once")
    two.vanish()
    company.until(lambda: not one.runs, "the news of it")
    assert one.reason == "n2 has died"
    assert coordinator._suspects == {}


def test_a_suspect_that_falls_silent_is_a_matter_of_its_lease(company: Company) -> None:
    coordinator, one, two = pair(company, lease_s=0.3)
    two.silent = True
    two.drop()
    company.until(lambda: not one.runs, "its lease to end")
    assert one.reason.startswith("n2 fell silent")
    assert coordinator._suspects == {}


@pytest.mark.parametrize("door", [0, 1])
def test_who_has_no_door_that_answered_while_it_lived_is_never_proved_dead(company: Company, door: int) -> None:
    coordinator = company.host(2)
    one = company.agent(coordinator, "n1", host="n1")
    two = company.agent(coordinator, "n2", host="n2", has_door=False, door=door)
    company.until(lambda: one.runs and two.runs, "both to run")
    two.vanish()
    company.until(lambda: coordinator._suspects, "the suspicion")
    suspect = coordinator._suspects["n2"]
    company.until(lambda: suspect._looks == 3, "three looks")
    assert one.runs
    assert coordinator._job.has("n2")


def test_a_probe_tells_what_the_door_said(company: Company) -> None:
    told: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        Probe(company.loop, "127.0.0.1", port, told.append)
        company.until(lambda: told, "an answer")
    Probe(company.loop, "127.0.0.1", port, told.append)
    company.until(lambda: len(told) == 2, "a refusal")
    Probe(company.loop, "255.255.255.255", port, told.append)
    assert told[:2] == [0, errno.ECONNREFUSED]
    assert told[2] not in (0, errno.ECONNREFUSED)


def test_a_probe_without_a_descriptor_tells_nothing(company: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []

    def no_socket(*_: object) -> socket.socket:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patched:
        patched.setattr(socket, "socket", no_socket)
        probe = Probe(company.loop, "127.0.0.1", 1, told.append)
    probe.close()
    assert told == []


# -- the end -----------------------------------------------------------------------------------------------------


def test_everybody_has_seen_the_end_before_the_coordinator_goes(company: Company) -> None:
    coordinator, one, two = pair(company)
    one.standing = two.standing = Standing.DONE
    company.until(lambda: one.ended, "one to hear of the end")
    company.until(lambda: coordinator.settled and one.link.settled and two.link.settled, "everybody to know")
    assert (two.ended, two.reason) == (True, one.reason)
    one.vanish()
    two.vanish()
    company.turn_for(0.03)
    assert coordinator.settled, "who has seen the end and is gone is not waited for"


def test_it_is_not_settled_before_whoever_lost_its_connection_has_heard_of_the_end(company: Company) -> None:
    coordinator, one, two = pair(company)
    two.standing = Standing.DONE
    company.until(lambda: coordinator._job._finished, "n2 to be done")
    two.silent = True
    two.drop()
    company.until(lambda: coordinator._suspects, "the suspicion")
    one.standing = Standing.DONE
    company.until(lambda: one.link.settled and one.ended, "one to hear of the end")
    company.turn_for(0.03)
    assert not coordinator.settled
    two.silent = False

    def told() -> bool:
        assert two.ended or not coordinator.settled
        return two.ended

    company.until(told, "two to hear of the end")
    company.until(lambda: coordinator.settled, "everybody to know")


def test_a_final_report_is_heard_before_the_link_closes(company: Company) -> None:
    coordinator, one, two = pair(company)
    two.standing = Standing.LEFT
    two.link.tell(two.report())
    assert not two.link.settled
    company.until(lambda: two.link.settled, "the last report to be heard")
    two.vanish()
    company.until(lambda: one.reason == "n2 left", "the others to know")
    assert coordinator._suspects == {}


def test_closing_it_leaves_nothing_on_the_loop(company: Company) -> None:
    coordinator, _, two = pair(company)
    company.dial(coordinator)
    company.until(lambda: coordinator._strangers, "a stranger")
    two.drop()
    two.silent = True
    company.until(lambda: coordinator._suspects, "a suspect")
    for agent in company.parts:
        if isinstance(agent, Agent):
            agent.close()
    coordinator.close()
    assert len(company.loop._selector.get_map()) == 0


def test_when_nothing_happens_it_sleeps(company: Company) -> None:
    coordinator, one, _ = pair(company)
    company.turn_for(0.1)
    now = monotonic()
    assert (coordinator.wake_at() or now) > now + 1
    assert (one.link.wake_at() or now) > now + 1


# -- strangers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (TCPSTORE, "it speaks torch's TCPStore protocol: a torchrun agent, or a worker of another job"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "it speaks HTTP"),
        (b"\x16\x03\x01\x02\x00", "it speaks TLS, and this side does not"),
        (b"\xff\xfe garbage", "it is not relight: its first bytes are b'\\xff\\xfe garbage'"),
        (b"relight/999\n", "it speaks version 999 of relight's protocol, and this is version 1"),
        (MAGIC + struct.pack(">I", LIMIT + 1), f"it sent a frame of {LIMIT + 1} bytes, and {LIMIT} is the most"),
        (MAGIC + struct.pack(">I", 3) + b"{]}", "it sent a frame that is not JSON"),
        (MAGIC + frame({"nonce": 5}), "it sent 'nonce' that is no "),
        (MAGIC + frame({}) * 2, "it sent something said before it was let in"),
    ],
)
def test_a_stranger_is_turned_away_with_a_sentence_said_once(company: Company, said: bytes, why: str) -> None:
    coordinator, one, two = pair(company)
    before = serial(coordinator)
    for _ in range(3):
        client = company.dial(coordinator)
        client.sendall(said)
        hear(company, client)
    assert len(company.said) == 1
    assert company.said[0].startswith(f"the coordinator turned 127.0.0.1 away: {why}")
    assert coordinator._strangers == {}
    company.turn_for(0.02)
    assert (serial(coordinator), one.runs, two.runs) == (before, True, True)


def test_no_crowd_of_strangers_fills_the_console(company: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinators, "MOST_REMARKS", 3)
    coordinator = company.host(2)
    for turn in range(6):
        client = company.dial(coordinator)
        client.sendall(b"?%d\n" % turn)
        hear(company, client)
    assert len(company.said) == 3


def test_another_version_of_relight_is_told_who_refuses_it(company: Company) -> None:
    client = company.dial(company.host(2))
    client.sendall(b"relight/2\n")
    answer = hear(company, client)
    assert answer.startswith(MAGIC)
    (said,) = Frames().received(answer[len(MAGIC) :])
    assert said.text("refused") == "it speaks version 2 of relight's protocol, and this is version 1"


@pytest.mark.parametrize(
    ("token", "job", "what", "remedy"),
    [
        (b"guessed", NAME, "its token is not this job's", "the same RELIGHT_TOKEN or --token-file on every node"),
        (b"right", "gpt", "here is job 'llama', and it asks for job 'gpt'", "--rdzv-id llama, or another port"),
        (b"", NAME, "it asks for the job's token, and this node has none", "RELIGHT_TOKEN=..., or --token-file"),
    ],
)
def test_who_has_not_the_token_or_means_another_job_is_told_so_and_does_not_try_again(
    company: Company, token: bytes, job: str, what: str, remedy: str
) -> None:
    coordinator, one, two = pair(company, token=b"right")
    before = serial(coordinator)
    stray = company.agent(coordinator, "x", token=token, job=job)
    company.until(lambda: stray.lost, "the refusal")
    assert str(stray.lost[0]) == f"the coordinator at 127.0.0.1:{port_of(coordinator)}: {what}"
    assert remedy in stray.lost[0].remedy
    company.turn_for(0.02)
    assert len(stray.lost) == 1
    assert stray.terms == []
    assert (serial(coordinator), one.runs, two.runs) == (before, True, True)
    assert len(company.said) <= 1


def test_who_never_introduces_itself_does_not_stay(company: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinators, "OPENING_S", 0.08)
    coordinator = company.host(2)
    mute, slow = company.dial(coordinator), company.dial(coordinator)
    trickle = iter(MAGIC)
    slow_ended: list[bool] = []

    def drips() -> bool:
        try:
            slow.send(bytes([next(trickle, 0)]))
            slow_ended.extend([True] if slow.recv(1) == b"" else [])
        except BlockingIOError:
            pass
        except OSError:
            slow_ended.append(True)
        return bool(slow_ended)

    company.until(drips, "the one that drips its bytes to be sent away")
    assert hear(company, mute) == b""
    assert coordinator._strangers == {}


def test_a_stranger_that_is_gone_before_its_answer_is_no_member(company: Company) -> None:
    coordinator = company.host(2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        connection, _ = server.accept()
    connection.setblocking(False)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    call = Call(Caller(NAME, "1.0", "box", "a"), b"", "mine")
    introduction, _ = call.received(MAGIC + frame({"nonce": "theirs", "token": False}))
    coordinator.adopt(connection, "127.0.0.1", MAGIC + introduction)
    assert coordinator._members == {}
    assert coordinator._strangers == {}


# -- nonsense ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nonsense", "why"),
    [
        (frame({"still": "so"}), "'still' that is no number"),
        (struct.pack(">I", 2) + b"[]", "something that is no JSON object"),
        (struct.pack(">I", 1 << 31), f"a frame of {1 << 31} bytes, and {LIMIT} is the most"),
        (frame({"report": 7}), "something that is no JSON object"),
        (frame({"report": {}}), ""),
        (frame({"still": 1e300}), "'still' that is no number"),
    ],
)
def test_a_member_that_sends_nonsense_is_thrown_out_and_the_rest_goes_on(
    company: Company, nonsense: bytes, why: str
) -> None:
    coordinator, one, two = pair(company)
    before = serial(coordinator)
    two.says(nonsense)
    company.until(lambda: company.said, "it to be thrown out")
    assert len(company.said) == 1
    assert company.said[0].startswith(f"the coordinator turned n2 away: it sent {why}")
    company.until(lambda: not coordinator._suspects and coordinator._members["n2"].here, "it to come back")
    company.until(lambda: two.link.settled, "it to be heard again")
    assert (serial(coordinator), one.runs, two.runs) == (before, True, True)
    assert [agent.name for agent in (one, two)] == ["n1", "n2"]


def test_nobody_speaks_for_somebody_else(company: Company) -> None:
    coordinator, one, two = pair(company)
    before = serial(coordinator)
    report = write_report(one.report())
    report["standing"] = "left"
    client = company.dial(coordinator)
    terms = introduce(company, client, Caller(NAME, "1.0", "other", "z"))
    client.sendall(frame({"report": report}))
    company.until(lambda: coordinator._members[terms.name].report, "the report")
    heard = coordinator._members[terms.name].report
    assert heard is not None
    assert (heard.node, heard.life) == ("other", "z")
    assert (serial(coordinator), one.runs, two.runs) == (before, True, True)


def test_a_member_that_never_reads_is_dropped_when_too_much_waits_for_it(
    company: Company, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "MOST_UNSENT", 100_000)
    coordinator, one, two = pair(company)
    two.silent = True
    stream = coordinator._members["n2"].stream
    assert stream is not None
    while stream.open:
        stream.send(frame({"say": "x" * 50_000}))
    assert not coordinator._members["n2"].here
    assert "n2" in coordinator._suspects
    assert one.runs
    two.silent = False
    company.until(lambda: coordinator._members["n2"].here, "it to come back")


# -- descriptors -------------------------------------------------------------------------------------------------


def test_room_is_made_by_whoever_came_first_and_has_not_introduced_itself(company: Company) -> None:
    coordinator, one, two = pair(company)
    assert not coordinator.make_room(), "members stay"
    first, second = company.dial(coordinator), company.dial(coordinator)
    company.until(lambda: len(coordinator._strangers) == 2, "two strangers")
    assert coordinator.make_room()
    assert hear(company, first) == b""
    assert len(coordinator._strangers) == 1
    assert (one.runs, two.runs, second.fileno() >= 0) == (True, True, True)


def test_out_of_descriptors_strangers_go_and_members_are_served(company: Company) -> None:
    coordinator, one, two = pair(company)
    mute = company.dial(coordinator)
    company.until(lambda: coordinator._strangers, "a stranger")
    newcomer = company.dial(coordinator)
    with out_of_descriptors():
        assert hear(company, mute) == b""
        introduce(company, newcomer, Caller(NAME, "1.0", "late", "z"))
        since = one.answered_at
        one.applicant = replace(one.applicant, slots=3)
        company.until(lambda: one.answered_at > since, "a member to be answered")
    assert one.runs and two.runs


# -- what is said ------------------------------------------------------------------------------------------------


def test_other_options_are_said_once(company: Company) -> None:
    coordinator = company.host(2)
    one = company.agent(coordinator, "n1", host="n1")
    two = company.agent(coordinator, "n2", host="n2", options={"--nnodes": "2:4"})
    company.until(lambda: one.runs and two.runs, "both to run: they differ, and that is all")
    two.drop()
    company.until(lambda: not coordinator._members["n2"].here, "the drop to be seen")
    company.until(lambda: coordinator._members["n2"].here, "it to come back")
    assert company.said == [
        "n2 was started with other options than this job: --nnodes 2:4 (here 2:2), --max-restarts nothing (here 3)"
    ]


def test_while_nodes_are_missing_a_line_says_who_is_here(company: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinators, "NEWS_S", (0.05, 0.2, 60.0))
    coordinator = company.host(3)
    one = company.agent(coordinator, "a")
    company.until(lambda: one.said, "the first line")
    assert one.said == ["waiting for nodes: 1 of 3 is here (box)"]
    two = company.agent(coordinator, "b")
    company.until(lambda: two.said, "the second line")
    assert two.said == ["waiting for nodes: 2 of 3 are here (box, box#2)"]
    assert company.said == [*one.said[:1], *two.said]
    assert coordinator._news_at > monotonic() + 50, "each comes later than the one before"
    three = company.agent(coordinator, "c")
    company.until(lambda: three.runs, "the round")
    coordinator._tell_news(coordinator._news_at)
    assert len(company.said) == 2, "nobody is waited for"


def test_a_crowd_is_counted_and_not_listed(company: Company) -> None:
    coordinator = company.host(40)
    for turn in range(20):
        agent = company.agent(coordinator, f"life{turn}", host=f"n{turn:02}", has_door=False)
    company.until(lambda: agent.view and len(coordinator._job._present) == 20, "all of them")
    coordinator._wanted = (40, 48)
    coordinator._tell_news(monotonic())
    names = ", ".join(f"n{turn:02}" for turn in range(16))
    assert company.said == [f"waiting for nodes: 20 of 40 to 48 are here ({names} and 4 more)"]


def test_no_line_reaches_who_has_not_said_what_it_is(company: Company) -> None:
    """It may not even have read its terms yet, and reads nothing that comes behind them in the same breath."""
    coordinator = company.host(2)
    client = company.dial(coordinator)
    introduce(company, client, Caller(NAME, "1.0", "box", "a"))
    coordinator._tell_news(monotonic())
    with pytest.raises(BlockingIOError):
        client.recv(100)


# -- addresses ---------------------------------------------------------------------------------------------------


def adopted(
    company: Company, coordinator: Coordinator, address: str, reached: str, first: bytes = b""
) -> socket.socket:
    """A connection that seems to come from elsewhere; `reached` is where it found this machine."""
    with socket.create_server((reached, 0)) as server:
        client = socket.create_connection(server.getsockname())
        connection, _ = server.accept()
    client.setblocking(False)
    connection.setblocking(False)
    company.ends.append(client.close)
    coordinator.adopt(connection, address, first)
    return client


def test_who_is_on_this_machine_is_found_where_others_find_this_machine(company: Company) -> None:
    coordinator = company.host(3)
    seat = company.agent(coordinator, "a", "n1", seat=coordinator)
    near = company.agent(coordinator, "b", host="n2")
    company.until(lambda: len(coordinator._job._present) == 2, "the two on this machine")
    far = adopted(company, coordinator, "10.1.2.3", "127.0.0.7")
    terms = introduce(company, far, Caller(NAME, "1.0", "n3", "c"))
    assert terms.name == "n3"
    company.turn_for(0.02)
    report = write_report(near.report())
    far.sendall(frame({"report": {**report, "seen": 0}}))
    company.until(lambda: seat.runs and near.runs, "the round")
    roster = coordinator._job.decision.roster
    assert roster is not None
    assert [(one.node, one.store_address) for one in roster.seats] == [
        ("n1", "127.0.0.7"),
        ("n2", "127.0.0.7"),
        ("n3", "10.1.2.3"),
    ]
    assert near.view is not None and near.view.part is not None
    assert near.view.part.store_address == "127.0.0.7"


def test_an_address_of_its_own_choice_stays(company: Company) -> None:
    coordinator = company.host(2)
    near = company.agent(coordinator, "a", host="n1")
    near.applicant = replace(near.applicant, store_address="192.0.2.9")
    company.until(lambda: coordinator._job.has("n1"), "the one on this machine")
    far = adopted(company, coordinator, "10.1.2.3", "127.0.0.7")
    introduce(company, far, Caller(NAME, "1.0", "n2", "b"))
    report = coordinator._members["n1"].report
    assert report is not None
    assert report.applicant.store_address == "192.0.2.9"


def test_a_stranger_does_not_decide_where_this_machine_is(company: Company) -> None:
    coordinator = company.host(2)
    client = adopted(company, coordinator, "10.1.2.3", "127.0.0.7", b"GET / HTTP/1.1\r\n")
    hear(company, client)
    assert coordinator._outward == ""


def test_a_call_may_be_half_read_when_it_is_handed_over(company: Company) -> None:
    coordinator = company.host(2)
    client = adopted(company, coordinator, "127.0.0.1", "127.0.0.1", MAGIC[:4])
    assert introduce(company, client, Caller(NAME, "1.0", "box", "a"), begun=4).name == "box"


def test_a_failure_that_waits_is_not_put_to_another_life_of_the_same_name(company: Company) -> None:
    coordinator, one, _two = pair(company)
    member = coordinator._members["n1"]
    assert member.report is not None
    broken = replace(member.report, standing=Standing.BROKEN, sent_at=one.answered_at + 1.0)
    before = serial(coordinator)
    coordinator._held[member] = broken
    coordinator._members["n1"] = coordinators.Member("n1", Caller(NAME, "1.0", "n1", "another"), "127.0.0.1", None)
    coordinator.tick(monotonic())
    assert (serial(coordinator), coordinator._held) == (before, {})
    coordinator._held[member] = broken
    coordinator._members["n1"] = member
    coordinator.tick(monotonic())
    assert serial(coordinator) == before + 1
