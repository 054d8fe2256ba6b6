"""The ladder. The table of transitions is its specification; the rest holds for every story."""

from __future__ import annotations

import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relight.core.ending import KILL_WAIT_S, LOOKS_S, Ladder, Look, Stage, Step, Tell

TERM, INT, KILL = signal.SIGTERM, signal.SIGINT, signal.SIGKILL
GRACE_S = 10.0
LOOK = Look()
KILL_ALL = Tell(KILL, group=True)

# A ladder in each stage. Everything happens at 0, so what was asked is due at GRACE_S.
WAYS: dict[Stage, list[str]] = {
    Stage.WORKING: [],
    Stage.ASKED: ["ask"],
    Stage.KILLED: ["kill"],
    Stage.REMAINS: ["ended, others"],
    Stage.REMAINS_ASKED: ["ask", "ended, others"],
    Stage.REMAINS_KILLED: ["kill", "ended, others"],
    Stage.GONE: ["ended"],
    Stage.STUCK: ["kill", "tick at the end"],
}


def happen(ladder: Ladder, event: str, now: float = 0.0) -> list[Step]:
    match event:
        case "ask":
            return ladder.ask(now, TERM, GRACE_S)
        case "ask otherwise":
            return ladder.ask(now, INT, GRACE_S)
        case "ask, no grace":
            return ladder.ask(now, TERM, 0.0)
        case "kill":
            return ladder.kill(now)
        case "ended":
            return ladder.ended(now, others=False)
        case "ended, others":
            return ladder.ended(now, others=True)
        case "looked":
            return ladder.looked(now, others=False)
        case "looked, others":
            return ladder.looked(now, others=True)
        case "tick":
            return ladder.tick(now)
        case "tick at the end":
            return ladder.tick(now + GRACE_S + KILL_WAIT_S)
    raise AssertionError(event)


def at(stage: Stage) -> Ladder:
    ladder = Ladder()
    for event in WAYS[stage]:
        happen(ladder, event)
    assert ladder.stage is stage
    return ladder


W, A, K, G, S = Stage.WORKING, Stage.ASKED, Stage.KILLED, Stage.GONE, Stage.STUCK
R, RA, RK = Stage.REMAINS, Stage.REMAINS_ASKED, Stage.REMAINS_KILLED
ASK, ASK_ALL, INT_ALL = Tell(TERM), Tell(TERM, group=True), Tell(INT, group=True)

TABLE: list[tuple[Stage, str, list[Step], Stage]] = [
    # the worker lives and was not told anything
    (W, "ask", [ASK], A),
    (W, "ask, no grace", [ASK, KILL_ALL], K),
    (W, "kill", [KILL_ALL], K),
    (W, "ended", [], G),
    (W, "ended, others", [], R),
    (W, "looked", [], W),
    (W, "looked, others", [], W),
    (W, "tick at the end", [], W),
    # it lives and was asked
    (A, "ask", [], A),
    (A, "ask otherwise", [Tell(INT)], A),
    (A, "ask, no grace", [KILL_ALL], K),
    (A, "kill", [KILL_ALL], K),
    (A, "ended", [], G),
    (A, "ended, others", [ASK_ALL, LOOK], RA),
    (A, "looked", [], A),
    (A, "looked, others", [], A),
    (A, "tick", [], A),
    (A, "tick at the end", [KILL_ALL], K),
    # it was killed, and its end has not been seen
    (K, "ask", [], K),
    (K, "kill", [], K),
    (K, "ended", [], G),
    (K, "ended, others", [KILL_ALL, LOOK], RK),
    (K, "looked", [], K),
    (K, "tick", [], K),
    (K, "tick at the end", [], S),
    # it ended by itself and left others behind, whom nobody has asked: they may stay until the round ends
    (R, "ask", [ASK_ALL, LOOK], RA),
    (R, "ask, no grace", [ASK_ALL, LOOK, KILL_ALL, LOOK], RK),
    (R, "kill", [KILL_ALL, LOOK], RK),
    (R, "ended", [], G),
    (R, "ended, others", [], R),
    (R, "looked", [], R),
    (R, "tick at the end", [], R),
    # those left behind were asked
    (RA, "ask", [], RA),
    (RA, "ask otherwise", [INT_ALL, LOOK], RA),
    (RA, "ask, no grace", [KILL_ALL, LOOK], RK),
    (RA, "kill", [KILL_ALL, LOOK], RK),
    (RA, "ended", [], G),
    (RA, "ended, others", [], RA),
    (RA, "looked", [], G),
    (RA, "looked, others", [], RA),
    (RA, "tick", [], RA),
    (RA, "tick at the end", [KILL_ALL, LOOK], RK),
    # those left behind were killed
    (RK, "ask", [], RK),
    (RK, "kill", [], RK),
    (RK, "ended, others", [], RK),
    (RK, "looked", [], G),
    (RK, "looked, others", [], RK),
    (RK, "tick", [], RK),
    (RK, "tick at the end", [], G),
    # nothing is left
    (G, "ask", [], G),
    (G, "kill", [], G),
    (G, "ended", [], G),
    (G, "ended, others", [], G),
    (G, "looked", [], G),
    (G, "looked, others", [], G),
    (G, "tick at the end", [], G),
    # not even SIGKILL ended it; when it does end after all, that is good
    (S, "ask", [], S),
    (S, "kill", [], S),
    (S, "ended", [], G),
    (S, "ended, others", [], S),
    (S, "looked", [], S),
    (S, "tick at the end", [], S),
]


@pytest.mark.parametrize(("stage", "event", "steps", "then"), TABLE)
def test_the_table(stage: Stage, event: str, steps: list[Step], then: Stage) -> None:
    ladder = at(stage)
    assert happen(ladder, event) == steps
    assert ladder.stage is then


@pytest.mark.parametrize("stage", list(Stage))
def test_what_a_stage_means(stage: Stage) -> None:
    ladder = at(stage)
    assert ladder.gone is (stage in (G, S))
    assert ladder.asked is (stage in (A, K))
    assert (ladder.wake_at() is None) is (stage in (W, R, G, S))


def test_asking_again_never_brings_a_later_end() -> None:
    ladder = Ladder()
    ladder.ask(0.0, TERM, 3.0)
    ladder.ask(1.0, TERM, 30.0)
    assert ladder.wake_at() == 3.0
    ladder.ask(1.0, INT, 1.0)
    assert ladder.wake_at() == 2.0
    assert ladder.tick(1.999) == []
    assert ladder.tick(2.0) == [KILL_ALL]


def test_what_is_left_behind_shares_the_grace_of_its_worker() -> None:
    ladder = Ladder()
    ladder.ask(0.0, INT, 3.0)
    assert ladder.ended(2.0, others=True) == [INT_ALL, LOOK]
    assert ladder.looked(2.0, others=True) == []
    assert ladder.tick(3.0) == [KILL_ALL, LOOK]


def test_looks_come_fast_at_first_and_steadily_later() -> None:
    ladder = at(RA)
    now, waits = 0.0, list[float]()
    for _ in range(len(LOOKS_S) + 2):
        assert ladder.looked(now, others=True) == []
        wake_at = ladder.wake_at()
        assert wake_at is not None
        waits.append(round(wake_at - now, 6))
        assert ladder.tick(wake_at - 1e-6) == []
        now = wake_at
        assert ladder.tick(now) == [LOOK]
        assert ladder.tick(now) == [], "one look at a time"
    assert waits == [*LOOKS_S, LOOKS_S[-1], LOOKS_S[-1]]


def test_a_new_signal_begins_the_looks_anew() -> None:
    ladder = at(RA)
    for _ in range(9):
        ladder.looked(0.0, others=True)
    assert ladder.ask(1.0, INT, GRACE_S) == [INT_ALL, LOOK]
    ladder.looked(1.0, others=True)
    assert ladder.wake_at() == 1.0 + LOOKS_S[0]


EVENTS = st.one_of(
    st.tuples(st.just("ask"), st.sampled_from([TERM, INT]), st.sampled_from([0.0, 0.5, 3.0, 30.0])),
    st.tuples(st.just("kill")),
    st.tuples(st.just("ended"), st.booleans()),
    st.tuples(st.just("looked"), st.booleans()),
    st.tuples(st.just("tick")),
)
STORIES = st.lists(st.tuples(st.floats(0, 2), EVENTS), max_size=25)


def take(ladder: Ladder, now: float, event: tuple[object, ...]) -> list[Step]:
    match event:
        case ("ask", int(number), float(grace_s)):
            return ladder.ask(now, number, grace_s)
        case ("kill",):
            return ladder.kill(now)
        case ("ended", bool(others)):
            return ladder.ended(now, others)
        case ("looked", bool(others)):
            return ladder.looked(now, others)
        case _:
            return ladder.tick(now)


@given(STORIES)
def test_in_every_story_the_end_is_bounded_and_the_grace_is_kept(story: list[tuple[float, tuple[object, ...]]]) -> None:
    """The shell ticks when it is told to; apart from that anything may happen, in any order."""
    ladder, now = Ladder(), 0.0
    due: float | None = None  # when the grace ends that was given
    killed_at: float | None = None
    ended = False
    waits = [*story, *[(KILL_WAIT_S, ("tick",))] * 10]
    for wait, event in waits:
        until = now + wait
        while (at := ladder.wake_at()) is not None and at <= until:
            now = max(now, at)
            steps = ladder.tick(now)
            killed_at = check(ladder, steps, now, due, killed_at, ended)
            if steps == [] and not ladder.gone:
                break  # nothing to do: only an answer to a look moves it on
        now = until
        over, alive = ladder.gone, ladder.stage in (W, A, K)
        if event[0] == "ask" and ladder.stage in (W, A, R, RA):
            asked_until = now + float(str(event[2]))
            due = asked_until if due is None else min(due, asked_until)
        if event[0] == "kill" and not over:
            due = now if due is None else min(due, now)
        ended = ended or event[0] == "ended"
        steps = take(ladder, now, event)
        killed_at = check(ladder, steps, now, due, killed_at, ended)
        assert not (over and steps), "told something after the end"
        assert alive or not any(isinstance(step, Tell) and not step.group for step in steps)
    if due is not None:
        assert ladder.gone, f"not over at {now}, asked to be by {due}"


def check(
    ladder: Ladder, steps: list[Step], now: float, due: float | None, killed_at: float | None, ended: bool
) -> float | None:
    """What must hold after every event. Returns when the first SIGKILL was sent."""
    for step in steps:
        if isinstance(step, Tell) and step.signal == KILL:
            assert step.group, "SIGKILL goes to the whole group"
            assert due is not None and now >= due, f"killed at {now}, before {due}"
            killed_at = now if killed_at is None else killed_at
    if killed_at is not None and not ladder.gone:
        assert now < killed_at + KILL_WAIT_S + 1e-6, "waits longer for a SIGKILL than it may"
    if ladder.stage is G:
        assert ended, "gone without having ended"
    return killed_at


@given(st.floats(0, 60), st.floats(0, 1), st.booleans())
def test_a_worker_that_ignores_everything_takes_the_grace_and_one_kill_wait(
    grace_s: float, late: float, remains: bool
) -> None:
    ladder, now = Ladder(), 0.0
    ladder.ask(now, TERM, grace_s)
    if remains and ladder.stage is A:
        ladder.ended(grace_s * late, others=True)
    while not ladder.gone:
        wake_at = ladder.wake_at()
        assert wake_at is not None
        now = max(now, wake_at)
        for step in ladder.tick(now):
            if step == LOOK:
                ladder.looked(now, others=True)
    assert now <= grace_s + KILL_WAIT_S + 1e-6


@pytest.mark.parametrize("stage", [W, A, R, RA])
def test_a_kill_is_given_its_time_from_wherever_it_came(stage: Stage) -> None:
    ladder = at(stage)
    ladder.kill(1.0)
    killed = ladder.stage
    assert ladder.tick(1.0 + KILL_WAIT_S - 0.001) == []
    assert ladder.stage is killed
    assert ladder.tick(1.0 + KILL_WAIT_S) == []
    assert ladder.gone


def test_the_numbers() -> None:
    """A group that ends at once is noticed at once; one that does not costs no more than 20 looks a second."""
    assert sorted(LOOKS_S) == list(LOOKS_S)
    assert LOOKS_S[0] <= 0.001
    assert sum(LOOKS_S[:4]) <= 0.02
    assert LOOKS_S[-1] == 0.05
    assert KILL_WAIT_S == 5.0
    assert not Tell(TERM).group


def test_a_pause_is_not_taken_from_the_grace() -> None:
    ladder = at(Stage.ASKED)
    ladder.paused(100.0)
    assert ladder.wake_at() == 100.0 + GRACE_S
    assert ladder.tick(100.0) == []
    assert ladder.tick(100.0 + GRACE_S) == [KILL_ALL]


@pytest.mark.parametrize("stage", [Stage.WORKING, Stage.REMAINS, Stage.GONE])
def test_a_pause_is_nothing_to_who_has_no_deadline(stage: Stage) -> None:
    ladder = at(stage)
    ladder.paused(100.0)
    assert (ladder.stage, ladder.wake_at()) == (stage, None)


def test_a_whole_group_is_asked_together_and_only_once() -> None:
    ladder = Ladder(whole=True)
    assert ladder.ask(0.0, TERM, GRACE_S) == [Tell(TERM, group=True)]
    assert ladder.ask(0.0, INT, GRACE_S) == [Tell(INT, group=True)]
    assert ladder.ended(1.0, others=True) == [LOOK]
    assert ladder.stage is Stage.REMAINS_ASKED
    assert ladder.tick(GRACE_S) == [KILL_ALL, LOOK]
