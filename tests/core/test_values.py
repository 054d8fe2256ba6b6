"""Frozen values keep the part of the dataclass contract that this project uses."""

from __future__ import annotations

import copy
import pickle
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relight.core.values import fields_of, replace, value


@value
class Point:
    """A place."""

    x: int
    y: int = 0
    name: str = "here"


@value
class Nothing:
    """No fields at all."""


@value
class Even:
    number: int

    def check(self) -> None:
        if self.number % 2:
            raise ValueError(f"{self.number} is odd")

    @property
    def half(self) -> int:
        return self.number // 2


@value
class Spoken:
    word: str

    def __repr__(self) -> str:
        return f"<{self.word}>"


POINTS = st.builds(Point, st.integers(), st.integers(), st.text())


def test_fields_come_in_order_by_place_or_by_name() -> None:
    assert Point(1, 2, "a") == Point(name="a", y=2, x=1)
    assert Point(1) == Point(1, 0, "here")
    assert fields_of(Point(3, name="b")) == {"x": 3, "y": 0, "name": "b"}
    assert list(fields_of(Point(3))) == ["x", "y", "name"]


@pytest.mark.parametrize(
    ("given_", "named", "complaint"),
    [
        ((), {}, "Point needs 'x'"),
        ((1, 2, "a", 4), {}, "Point takes 3 fields, got 4"),
        ((1,), {"x": 2}, "Point got 'x' twice"),
        ((1,), {"z": 2}, "Point has no field 'z'"),
    ],
)
def test_wrong_fields_are_refused(given_: tuple[object, ...], named: dict[str, object], complaint: str) -> None:
    with pytest.raises(TypeError, match=complaint):
        Point(*given_, **named)  # type: ignore[arg-type]


def test_a_value_cannot_be_changed() -> None:
    point = Point(1)
    with pytest.raises(AttributeError, match=r"Point\.x is frozen"):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(AttributeError, match=r"Point\.x is frozen"):
        del point.x
    with pytest.raises(AttributeError, match=r"Point\.other is frozen"):
        point.other = 2  # type: ignore[attr-defined]
    assert not hasattr(point, "__dict__")


def test_check_sees_every_way_to_make_a_value() -> None:
    assert Even(4).half == 2
    with pytest.raises(ValueError, match="3 is odd"):
        Even(3)
    with pytest.raises(ValueError, match="5 is odd"):
        replace(Even(4), number=5)


def test_values_of_two_kinds_differ_even_with_the_same_fields() -> None:
    assert Even(2) != Spoken(2)  # type: ignore[arg-type]
    assert Even(2) != 2  # type: ignore[comparison-overlap]
    assert len({Even(2), Spoken(2)}) == 2  # type: ignore[arg-type]
    assert Even(2) == mock.ANY


def test_they_show_and_match_as_dataclasses_do() -> None:
    assert repr(Point(1, name="a")) == "Point(x=1, y=0, name='a')"
    assert repr(Spoken("hi")) == "<hi>"
    assert repr(Nothing()) == "Nothing()"
    match Point(1, 2):
        case Point(x, y, name=name):
            assert (x, y, name) == (1, 2, "here")
    assert Point.__doc__ == "A place."
    assert Point.__qualname__ == "Point"
    assert Point.__module__ == __name__


def test_a_value_inherits_nothing() -> None:
    with pytest.raises(TypeError, match="Child is a value and inherits nothing"):

        @value
        class Child(Point):
            z: int = 0


def test_replace_knows_the_fields() -> None:
    assert replace(Point(1), y=5) == Point(1, 5)
    with pytest.raises(TypeError, match="no field 'z'"):
        replace(Point(1), z=5)


@given(POINTS, POINTS)
def test_equal_values_are_equal_in_every_way(one: Point, other: Point) -> None:
    same = fields_of(one) == fields_of(other)
    assert (one == other) is same
    assert not same or hash(one) == hash(other)


@given(POINTS)
def test_copies_are_equal(point: Point) -> None:
    assert copy.copy(point) == copy.deepcopy(point) == pickle.loads(pickle.dumps(point)) == replace(point) == point


def test_a_value_without_fields_survives_a_copy() -> None:
    assert copy.copy(Nothing()) == pickle.loads(pickle.dumps(Nothing())) == Nothing()


def test_a_pickle_with_too_few_or_too_many_fields_is_refused() -> None:
    for state in ((1, 2), (1, 2, "a", 4)):
        with pytest.raises(ValueError, match="zip"):
            object.__new__(Point).__setstate__(state)  # type: ignore[attr-defined]


def test_values_that_differ_have_hashes_that_differ() -> None:
    assert len({hash(one) for one in (Point(1), Point(2), Point(1, 2), Even(2), Spoken("2"), Nothing())}) == 6
    assert hash(Even(2)) != hash(Spoken(2))  # type: ignore[arg-type]
