"""How two agents begin to talk: who is let in, who is turned away with which words, and what proves the token."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relight.core.frames import LIMIT, LINE, Frames, frame
from relight.core.names import Nonsense
from relight.core.opening import (
    LONGEST,
    MAGIC,
    OPTION,
    OPTIONS,
    Call,
    Caller,
    Doorway,
    FirstLine,
    Refused,
    Terms,
    differences,
    refusal,
)
from relight.core.values import replace

CALLER = Caller("llama", "0.2.0", "n1", "life1", 4711, (("--nnodes", "1:4"), ("--max-restarts", "3")))
TERMS = Terms("n1#2", 5.0)
TOKENS = [b"", b"secret"]
SAME_TOKEN = "the same RELIGHT_TOKEN or --token-file on every node"
FIRST = frame({"nonce": "door", "token": False})


def doorway(token: bytes = b"", nonce: str = "door") -> Doorway:
    return Doorway("llama", token, nonce)


def call(token: bytes = b"", nonce: str = "caller", caller: Caller = CALLER) -> Call:
    return Call(caller, token, nonce)


def said(data: bytes) -> list[dict[str, Any]]:
    """The objects in these bytes."""
    return [dict(one._said) for one in Frames().received(data)]


def introduced(calling: Call, door: Doorway) -> tuple[bytes, Caller]:
    """A whole conversation up to the introduction, which is given as well."""
    asked, nobody = door.received(calling.begin())
    assert nobody is None
    introduction, terms = calling.received(asked)
    assert terms is None
    answer, caller = door.received(introduction)
    assert answer == b"" and caller is not None
    return introduction, caller


def torn(side: Call | Doorway, data: bytes, size: int = 1) -> tuple[bytes, Caller | Terms | None]:
    """What one side makes of bytes that come in small chunks."""
    answers = b""
    found: Caller | Terms | None = None
    for start in range(0, len(data), size):
        answer, found = side.received(data[start : start + size])
        answers += answer
    return answers, found


def refused(side: Call | Doorway | FirstLine, data: bytes) -> Refused:
    with pytest.raises(Refused) as caught:
        side.received(data)
    return caught.value


def nonsense(side: Call | Doorway, data: bytes) -> str:
    with pytest.raises(Nonsense) as caught:
        side.received(data)
    return str(caught.value)


# -- let in --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", TOKENS)
def test_a_caller_is_let_in(token: bytes) -> None:
    calling, door = call(token), doorway(token)
    _, caller = introduced(calling, door)
    assert caller == CALLER
    assert calling.received(door.let_in(TERMS)) == (b"", TERMS)


@pytest.mark.parametrize("token", TOKENS)
def test_a_caller_is_let_in_byte_by_byte(token: bytes) -> None:
    calling, door = call(token), doorway(token)
    asked, nobody = torn(door, calling.begin())
    introduction, nothing = torn(calling, asked)
    assert (nobody, nothing) == (None, None)
    assert torn(door, introduction) == (b"", CALLER)
    assert torn(calling, door.let_in(TERMS)) == (b"", TERMS)


@pytest.mark.parametrize("token", TOKENS)
def test_a_caller_that_knows_the_door_may_say_all_at_once(token: bytes) -> None:
    introduction, _ = introduced(call(token), doorway(token))
    answer, caller = doorway(token).received(MAGIC + introduction)
    assert answer == MAGIC + frame({"nonce": "door", "token": bool(token)})
    assert caller == CALLER


def test_an_opening_on_the_network() -> None:
    calling, door = call(b"secret"), doorway(b"secret")
    assert calling.begin() == b"relight/1\n"
    asked, _ = door.received(b"relight/1\n")
    assert asked == b"relight/1\n" + frame({"nonce": "door", "token": True})
    introduction, _ = calling.received(asked)
    assert said(introduction) == [
        {
            "job": "llama",
            "release": "0.2.0",
            "host": "n1",
            "life": "life1",
            "door": 4711,
            "options": ["--nnodes", "1:4", "--max-restarts", "3"],
            "nonce": "caller",
            "proof": CALLER_PROOF,
        }
    ]
    door.received(introduction)
    assert said(door.let_in(TERMS)) == [{"name": "n1#2", "lease_s": 5.0, "proof": DOOR_PROOF}]


# hmac-sha256 of "relight\0caller\0door\0caller\0llama", and of "relight\0door\0door\0caller\0llama", by "secret"
CALLER_PROOF = "30620473e878eaf183a1b8785f80a01d944e8cf664062079128297d0f6c03020"
DOOR_PROOF = "1e8f14f42eb0b1e807517c33948a5bb4fb7e858a286cd75da4a35a2d3134c174"


def test_without_a_token_nothing_is_proved() -> None:
    calling, door = call(), doorway()
    introduction, _ = introduced(calling, door)
    assert said(introduction)[0]["proof"] == ""
    assert said(door.let_in(TERMS))[0]["proof"] == ""
    _, caller = doorway().received(MAGIC + changed(introduction, proof=None))
    assert caller == CALLER
    assert calling.received(changed(door.let_in(TERMS), proof=None)) == (b"", TERMS)


def changed(data: bytes, **entries: object) -> bytes:
    (one,) = said(data)
    return frame({**one, **entries})


@pytest.mark.parametrize(
    "caller",
    [
        Caller("llama", "", "", ""),
        Caller("llama", "x" * 50, "x" * 255, "x" * 100, 65535, (("x" * OPTION, "y" * OPTION),) * OPTIONS),
        Caller("llama", "\x01", "n\u00f6de", "\U0001f600", 1, (("", "two\nlines"),)),
    ],
)
def test_a_caller_comes_in_as_it_is(caller: Caller) -> None:
    assert introduced(call(caller=caller), doorway())[1] == caller


def test_more_options_than_may_be_told_of_are_cut() -> None:
    caller = replace(CALLER, options=(("x" * 999, "y" * 999),) * 99)
    assert introduced(call(caller=caller), doorway())[1].options == (("x" * OPTION, "y" * OPTION),) * OPTIONS


@pytest.mark.parametrize("job", ["x" * LINE + "y", "\U0001f600" * 32_000, "\x01" * 131_000, "\udcff"])
def test_the_strangest_name_of_a_job_is_no_hindrance(job: str) -> None:
    calling, door = call(b"secret", caller=replace(CALLER, job=job)), Doorway(job, b"secret", "door")
    assert introduced(calling, door)[1].job == job[:LINE]
    assert calling.received(door.let_in(TERMS)) == (b"", TERMS)


def test_the_largest_introduction_fits_a_frame() -> None:
    caller = Caller("\x01" * LINE, "\x01" * 50, "\x01" * 255, "\x01" * 100, 65535, (("\U0001f600" * OPTION,) * 2,) * 40)
    introduction, _ = call(b"secret", caller=caller).received(MAGIC + frame({"nonce": "x" * 64, "token": True}))
    assert len(introduction) < LIMIT


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)


HOST = st.text("node-0123.\u00e4", max_size=20)
PAIRS = st.lists(st.tuples(TEXT, TEXT), max_size=4).map(tuple)


@given(
    st.builds(Caller, TEXT, TEXT, HOST, TEXT, st.integers(0, 65535), PAIRS),
    st.builds(Terms, TEXT, st.floats(0.01, 1e15)),
    st.binary(max_size=20),
    st.integers(1, 60),
)
def test_any_caller_is_let_in_whatever_the_cuts(caller: Caller, terms: Terms, token: bytes, size: int) -> None:
    calling, door = Call(caller, token, "c" * 32), Doorway(caller.job, token, "d" * 32)

    asked, _ = torn(door, calling.begin(), size)
    introduction, _ = torn(calling, asked, size)
    assert torn(door, introduction, size) == (b"", caller)
    assert torn(calling, door.let_in(terms), size) == (b"", terms)


@pytest.mark.parametrize("host", ["h\u202e", "a\x1b[31m", "\udcff", "two\nlines"])
def test_a_host_that_would_steer_a_terminal_is_given_a_plain_name(host: str) -> None:
    assert introduced(call(caller=replace(CALLER, host=host)), doorway())[1].host == "node"


def test_nobody_is_let_in_unheard() -> None:
    with pytest.raises(AssertionError, match=r"^it has introduced itself$"):
        doorway().let_in(TERMS)


# -- turned away ---------------------------------------------------------------------------------------------


def test_a_wrong_token_is_refused() -> None:
    introduction, _ = introduced(call(b"other"), doorway(b"other"))
    no = refused(doorway(b"secret"), MAGIC + introduction)
    assert (no.what, no.remedy, no.final) == ("its token is not this job's", SAME_TOKEN, True)
    assert str(no) == no.what


@pytest.mark.parametrize("proof", ["", "x", "\ud800", "é", "x" * 1000])
def test_what_proves_nothing_is_refused(proof: str) -> None:
    introduction, _ = introduced(call(b"secret"), doorway(b"secret"))
    no = refused(doorway(b"secret"), MAGIC + changed(introduction, proof=proof))
    assert no.what == "its token is not this job's"
    calling, door = call(b"secret"), doorway(b"secret")
    introduced(calling, door)
    no = refused(calling, changed(door.let_in(TERMS), proof=proof))
    assert (no.what, no.remedy, no.final) == (
        "it does not know the job's token", "another port: somebody else answers at this one", True
    )  # fmt: skip


def test_a_proof_that_is_missing_is_nonsense() -> None:
    introduction, _ = introduced(call(b"secret"), doorway(b"secret"))
    assert "'proof'" in nonsense(doorway(b"secret"), MAGIC + changed(introduction, proof=None))


def test_a_proof_is_of_no_use_a_second_time() -> None:
    introduction, _ = introduced(call(b"secret"), doorway(b"secret", "door"))
    assert refused(doorway(b"secret", "another"), MAGIC + introduction).what == "its token is not this job's"
    calling, door = call(b"secret"), doorway(b"secret")
    introduced(calling, door)
    overheard = door.let_in(TERMS)
    again, door = call(b"secret", "another"), doorway(b"secret")
    introduced(again, door)
    assert refused(again, overheard).what == "it does not know the job's token"


@pytest.mark.parametrize("change", [{"nonce": "another"}, {"nonce": ""}])
def test_a_proof_is_for_one_nonce(change: dict[str, object]) -> None:
    introduction, _ = introduced(call(b"secret"), doorway(b"secret"))
    assert refused(doorway(b"secret"), MAGIC + changed(introduction, **change)).what == "its token is not this job's"


def test_a_proof_is_for_one_job() -> None:
    other = replace(CALLER, job="gemma")
    introduction, _ = call(b"secret", caller=other).received(MAGIC + frame({"nonce": "door", "token": True}))
    assert refused(doorway(b"secret"), MAGIC + changed(introduction, job="llama")).what == "its token is not this job's"


def test_a_callers_proof_is_not_the_doors() -> None:
    """Somebody who sends a caller its own proof back has proved nothing."""
    calling, door = call(b"secret", "same"), doorway(b"secret", "same")
    introduction, _ = introduced(calling, door)
    echo = changed(door.let_in(TERMS), proof=said(introduction)[0]["proof"])
    assert refused(calling, echo).what == "it does not know the job's token"


@pytest.mark.parametrize(
    ("ours", "theirs", "what", "remedy"),
    [
        (b"secret", b"", "it knows no token, and this node has one", "the same token there, or none here"),
        (b"", b"secret", "it asks for the job's token, and this node has none", "RELIGHT_TOKEN=..., or --token-file"),
    ],
)
def test_a_token_on_one_side_only_is_refused_before_anything_is_said(
    ours: bytes, theirs: bytes, what: str, remedy: str
) -> None:
    asked, _ = doorway(theirs).received(MAGIC)
    no = refused(call(ours), asked)
    assert (no.what, no.remedy, no.final) == (what, remedy, True)


def test_another_job_is_refused_by_its_name() -> None:
    other = replace(CALLER, job="gemma")
    calling, door = call(caller=other), doorway()
    asked, _ = door.received(calling.begin())
    introduction, _ = calling.received(asked)
    no = refused(door, introduction)
    assert no.what == "here is job 'llama', and it asks for job 'gemma'"
    assert no.remedy == "--rdzv-id llama, or another port for the other job"
    told = refused(calling, refusal(no))
    assert (told.what, told.remedy, told.final) == (no.what, no.remedy, True)


def test_however_long_the_names_a_refusal_is_understood() -> None:
    ours, theirs = "\U0001f600" * LINE, "\ue000" * LINE
    calling, door = call(caller=replace(CALLER, job=theirs)), Doorway(ours, b"", "door")
    asked, _ = door.received(calling.begin())
    introduction, _ = calling.received(asked)
    no = refused(door, introduction)
    assert len(no.what) < 2500
    told = refused(calling, refusal(no))
    assert told.what == no.what[: LINE - 3] + "..."
    assert told.remedy == "--rdzv-id " + "\U0001f600" * (LINE - 13) + "..."


@pytest.mark.parametrize("final", [True, False])
def test_a_refusal_is_passed_on(final: bool) -> None:
    said_no = refusal(Refused("no", "go", final=final))
    assert said(said_no) == [{"refused": "no", "try": "go", "final": final}]
    for calling, before in ((call(), MAGIC), (call(), MAGIC + FIRST)):
        no = refused(calling, before + said_no)
        assert (no.what, no.remedy, no.final) == ("no", "go", final)


def test_a_refusal_has_no_remedy_and_is_final_unless_it_says_otherwise() -> None:
    no = Refused("no")
    assert (no.remedy, no.final) == ("", True)


# -- who else may be there -----------------------------------------------------------------------------------

TLS = "it speaks TLS, and this side does not"
TORCHRUN = "it speaks torch's TCPStore protocol: a torchrun agent, or a worker of another job"
HTTP = "it speaks HTTP"


@pytest.mark.parametrize(
    ("first", "what"),
    [
        (b"\0\x3d\x85\x95\x3c", TORCHRUN),
        (b"\0", TORCHRUN),
        (b"\x16\x03\x01\x02\0\x01", TLS),
        (b"\x16\x03", TLS),
        (b"\x16\x04", "it is not relight: its first bytes are b'\\x16\\x04'"),
        *((verb + b" / HTTP/1.1\r\n\r\n", HTTP) for verb in (b"GET", b"POST", b"HEAD", b"PUT", b"OPTIONS")),
        (b"HTTP/1.1 400 Bad Request\r\n", HTTP),
        (b"<!DOCTYPE HTML>\n", HTTP),
        (b"GETTING / HTTP\r\n", "it is not relight: its first bytes are b'GETTING / HTTP\\r\\n'"),
        (b"G", "it is not relight: its first bytes are b'G'"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "it is not relight: its first bytes are b'SSH-2.0-OpenSSH_'"),
        (b"\n", "it is not relight: its first bytes are b'\\n'"),
        (b"reli\n", "it is not relight: its first bytes are b'reli\\n'"),
        (b"relights/1\n", "it is not relight: its first bytes are b'relights/1\\n'"),
        (b"relight/" + b"1" * 13, "it is not relight: its first bytes are b'relight/11111111'"),
        (b"relight/" + b"1" * 13 + b"\n", "it is not relight: its first bytes are b'relight/11111111'"),
    ],
)  # fmt: skip
def test_a_stranger_is_named(first: bytes, what: str) -> None:
    for side in (FirstLine(), call(), doorway()):
        no = refused(side, first)
        assert (no.what, no.remedy, no.final) == (what, "", True)


@pytest.mark.parametrize(
    ("line", "version"),
    [(b"relight/2\n", "2"), (b"relight/" + b"2" * 12 + b"\n", "2" * 12), (b"relight/1\r\n", "1\r"),
     (b"relight/\n", ""), (b"relight/\xff\n", "\\xff")],
)  # fmt: skip
def test_another_version_is_named(line: bytes, version: str) -> None:
    assert len(line) <= LONGEST + 1
    for side in (FirstLine(), call(), doorway()):
        no = refused(side, line + b"whatever it says then")
        assert no.what == f"it speaks version {version} of relight's protocol, and this is version 1"
        assert (no.remedy, no.final) == ("the same release of relight on every node", True)


def test_a_first_line_may_come_in_parts_and_with_more() -> None:
    first = FirstLine()
    assert first.received(b"") is None
    assert first.received(b"relig") is None
    assert first.heard is False
    assert first.received(b"ht/1") is None
    assert first.received(b"\nmore") == b"more"
    assert first.heard
    assert first.received(b"and more\n") == b"and more\n"


def test_a_stranger_may_come_in_parts() -> None:
    first = FirstLine()
    assert first.received(b"relight") is None
    assert refused(first, b"ing\n").what == "it is not relight: its first bytes are b'relighting\\n'"


@pytest.mark.parametrize(
    ("heard", "what"),
    [
        (b"", "it closed the connection without a word, as a torchrun agent's store does"),
        (b"relight", "it closed the connection without a word, as a torchrun agent's store does"),
        (MAGIC, "it closed the connection while we introduced ourselves"),
        (MAGIC + FIRST, "it closed the connection while we introduced ourselves"),
    ],
)
def test_a_connection_that_ends_early_is_worth_another_try(heard: bytes, what: str) -> None:
    calling = call()
    calling.received(heard)
    no = calling.ended()
    assert (no.what, no.remedy, no.final) == (what, "", False)


def test_a_first_line_that_does_not_come() -> None:
    no = FirstLine().ended()
    assert no.what == "it closed the connection without a word, as a torchrun agent's store does"
    assert not no.final


# -- nonsense ------------------------------------------------------------------------------------------------


def test_who_is_not_let_in_yet_waits() -> None:
    introduction, _ = introduced(call(), doorway())
    why = nonsense(doorway(), MAGIC + introduction + frame({"report": {}}))
    assert why == "something said before it was let in"


@pytest.mark.parametrize(
    ("name", "longest"), [("job", 1000), ("nonce", 64), ("host", 255), ("life", 100), ("release", 50), ("proof", 1000)]
)
def test_what_a_caller_says_of_itself_has_a_length(name: str, longest: int) -> None:
    introduction, _ = introduced(call(b"secret"), doorway(b"secret"))
    kind = "text" if name in ("release", "proof") else "word"
    why = f"{name!r} that is no {kind} of at most {longest} characters"
    strange: list[object] = ["x" * (longest + 1), None, 1, ["x"]]
    for entry in strange if kind == "text" else [*strange, "a\0b", "\ud800"]:
        token = b"secret" if name == "proof" else b""
        assert nonsense(doorway(token), MAGIC + changed(introduction, **{name: entry})) == why


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"door": -1}, "'door' that is no whole number from 0 to 65535"),
        ({"door": 65536}, "'door' that is no whole number from 0 to 65535"),
        ({"door": None}, "'door' that is no whole number from 0 to 65535"),
        ({"options": ["--nnodes"]}, "options that are no pairs"),
        ({"options": ["x"] * 82}, "'options' that is no list of at most 80 texts"),
        ({"options": ["x" * 301, "y"]}, "'options' with something that is no text of at most 300 characters"),
        ({"options": None}, "'options' that is no list of at most 80 texts"),
    ],
)
def test_an_introduction_that_makes_no_sense(change: dict[str, object], why: str) -> None:
    introduction, _ = introduced(call(), doorway())
    assert nonsense(doorway(), MAGIC + changed(introduction, **change)) == why


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (frame({}), "'nonce' that is no word of at most 64 characters"),
        (frame({"nonce": "x" * 65, "token": False}), "'nonce' that is no word of at most 64 characters"),
        (frame({"nonce": "x\0y", "token": False}), "'nonce' that is no word of at most 64 characters"),
        (frame({"nonce": "x"}), "'token' that is neither true nor false"),
        (frame({"refused": 1}), "'refused' that is no text of at most 1000 characters"),
        (frame({"refused": "no"}), "'try' that is no text of at most 1000 characters"),
        (frame({"refused": "no", "try": ""}), "'final' that is neither true nor false"),
        (FIRST + frame({}), "'name' that is no word of at most 300 characters"),
        (FIRST + frame({"name": "x" * 301, "lease_s": 5}), "'name' that is no word of at most 300 characters"),
        (FIRST + frame({"name": "n1"}), "'lease_s' that is no number from 0.01 to 1e+15"),
        (FIRST + frame({"name": "n1", "lease_s": 0.009}), "'lease_s' that is no number from 0.01 to 1e+15"),
        (FIRST + frame({"name": "n1", "lease_s": float("nan")}), "'lease_s' that is no number from 0.01 to 1e+15"),
        (b"\xff\xff\xff\xff", f"a frame of 4294967295 bytes, and {LIMIT} is the most"),
    ],
)
def test_a_door_that_makes_no_sense(answer: bytes, why: str) -> None:
    assert nonsense(call(), MAGIC + answer) == why


def test_the_longest_name_and_nonce_are_taken() -> None:
    calling = call()
    calling.received(MAGIC + frame({"nonce": "x" * 64, "token": False}))
    assert calling.received(frame({"name": "x" * 300, "lease_s": 0.01})) == (b"", Terms("x" * 300, 0.01))


@pytest.mark.parametrize("seed", range(200))
def test_no_bytes_do_more_than_end_the_opening(seed: int) -> None:
    chance = random.Random(seed)
    token = chance.choice(TOKENS)
    calling, door = call(token), doorway(token)
    introduction, _ = introduced(calling, door)
    answers = frame({"nonce": "door", "token": bool(token)}) + door.let_in(TERMS)
    calls = chance.random() < 0.5
    side: Call | Doorway = call(token) if calls else doorway(token)
    data = bytearray(MAGIC + chance.choice([answers if calls else introduction, chance.randbytes(30)]))
    for _ in range(chance.randint(0, 3)):
        at = chance.randrange(len(data))
        data[at : at + chance.randint(0, 3)] = chance.randbytes(chance.randint(0, 3))
    try:
        while data:
            size = chance.randint(1, len(data))
            _, found = side.received(bytes(data[:size]))
            assert found is None or isinstance(found, Caller | Terms)
            del data[:size]
    except Refused as no:
        assert no.what and repr(no.what).encode()
    except Nonsense as why:
        assert str(why)


# -- options that differ -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ours", "theirs", "unlike"),
    [
        ({}, (), []),
        ({}, (("--nnodes", "4"),), []),
        ({"--nnodes": "2"}, (("--nnodes", "2"),), []),
        ({"--nnodes": "2"}, (("--nnodes", "4"),), ["--nnodes 4 (here 2)"]),
        ({"--nnodes": "2"}, (), ["--nnodes nothing (here 2)"]),
        ({"--nnodes": "2", "--max-restarts": "3"}, (("--max-restarts", "3"), ("--nnodes", "1"), ("--nnodes", "4")),
         ["--nnodes 4 (here 2)"]),
        ({"b": "1", "a": "2"}, (("a", "1"), ("b", "2")), ["b 2 (here 1)", "a 1 (here 2)"]),
    ],
)  # fmt: skip
def test_a_node_that_was_started_otherwise_is_told_apart(
    ours: dict[str, str], theirs: tuple[tuple[str, str], ...], unlike: list[str]
) -> None:
    assert differences(ours, theirs) == unlike
