"""Two limits on restarts, both of which must allow: in all, and within a period."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relight.core.budget import Allowed, Refused, Spending
from relight.core.launch import Budget


@pytest.mark.parametrize(
    ("budget", "asked"),
    [
        (Budget(0), [(0.0, Refused("0 of 0 restarts used"))]),
        (Budget(2), [(0.0, Allowed(1)), (0.0, Allowed(2)), (1e9, Refused("2 of 2 restarts used"))]),
        (Budget(5, 0, 10.0), [(0.0, Refused("0 restarts within 10 s are the limit"))]),
        (Budget(5, 1, 10.0), [(0.0, Allowed(1)), (1.0, Refused("1 restart within 10 s is the limit"))]),
        (
            Budget(4, 2, 10.0),
            [
                (0.0, Allowed(1)),
                (9.0, Allowed(2)),
                (9.9, Refused("2 restarts within 10 s are the limit")),
                (10.0, Allowed(3)),
                (18.9, Refused("2 restarts within 10 s are the limit")),
                (19.0, Allowed(4)),
                (100.0, Refused("4 of 4 restarts used")),
            ],
        ),
    ],
)
def test_restarts_are_spent_one_by_one(budget: Budget, asked: list[tuple[float, Allowed | Refused]]) -> None:
    spending = Spending(budget)
    assert [(now, spending.ask(now)) for now, _ in asked] == asked


@given(
    st.integers(0, 6),
    st.none() | st.integers(0, 4),
    st.sampled_from([1.0, 5.0, 30.0]),
    st.lists(st.floats(0, 10), max_size=30),
)
def test_no_limit_is_ever_passed(restarts: int, intensity: int | None, period_s: float, waits: list[float]) -> None:
    spending = Spending(Budget(restarts, intensity, period_s))
    now, granted = 0.0, list[float]()
    for wait in waits:
        now += wait
        recent = sum(1 for at in granted if at > now - period_s)
        answer = spending.ask(now)
        expected = len(granted) < restarts and (intensity is None or recent < intensity)
        assert isinstance(answer, Allowed) is expected
        if expected:
            granted.append(now)
            assert answer == Allowed(len(granted))
        assert spending.used == len(granted)
