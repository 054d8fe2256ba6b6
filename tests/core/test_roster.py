"""Who sits where."""

from __future__ import annotations

import pytest

from relight.core.roster import Applicant, Place, Roster, seat


def nodes(roster: Roster) -> list[str]:
    return [taken.node for taken in roster.seats]


def applicants(*names: str) -> list[Applicant]:
    return [Applicant(name, 1) for name in names]


@pytest.mark.parametrize(
    ("names", "order"),
    [
        (["node10", "node2", "node1"], ["node1", "node2", "node10"]),
        (["b", "a"], ["a", "b"]),
        (["rack2-10", "rack10-1", "rack2-9"], ["rack2-9", "rack2-10", "rack10-1"]),
        (["10.0.0.10", "10.0.0.9"], ["10.0.0.9", "10.0.0.10"]),
        (["n\u00b2", "n1", "n"], ["n", "n1", "n\u00b2"]),  # a digit that is no number
        (["7", "a", "6"], ["6", "7", "a"]),
    ],
)
def test_newcomers_sit_in_natural_order(names: list[str], order: list[str]) -> None:
    assert nodes(seat(applicants(*names), None, 9)) == order


def test_survivors_keep_their_order_and_newcomers_sit_behind_them() -> None:
    before = seat(applicants("n1", "n2", "n3"), None, 9)
    without = seat(applicants("n3", "n2"), before, 9)
    assert nodes(without) == ["n2", "n3"]
    assert nodes(seat(applicants("n1", "n0", "n2", "n3"), without, 9)) == ["n2", "n3", "n0", "n1"]


def test_at_most_so_many() -> None:
    assert nodes(seat(applicants("n1", "n2", "n3"), None, 2)) == ["n1", "n2"]


def test_ranks_run_through_and_nodes_may_differ() -> None:
    given = [
        Applicant("n1", 2, "trainer", "10.0.0.1", 29500, "a"),
        Applicant("n2", 1, "reader", "10.0.0.2", 29501, "b"),
        Applicant("n3", 3, "trainer", "10.0.0.3", 29502, "c"),
    ]
    roster = seat(given, None, 9)
    assert roster.world_size == 6
    assert roster.nodes == {"n1", "n2", "n3"}
    assert {name: part.role_world_size for name, part in roster.parts().items()} == {"n1": 5, "n2": 1, "n3": 5}
    assert [place.rank for part in roster.parts().values() for place in part.places()] == [0, 1, 2, 3, 4, 5]
    assert roster.parts()["n3"].places()[1] == Place(
        rank=4,
        local_rank=1,
        world_size=6,
        local_world_size=3,
        group_rank=2,
        group_world_size=3,
        role="trainer",
        role_rank=3,
        role_world_size=5,
    )
    assert (roster.seats[0].store_address, roster.seats[0].store_port) == ("10.0.0.1", 29500)


def test_ranks_within_a_role_run_through() -> None:
    given = [Applicant(f"n{number}", 2, "odd" if number % 2 else "even") for number in range(5)]
    parts = seat(given, None, 9).parts()
    assert [part.seat.first_role_rank for part in parts.values()] == [0, 0, 2, 2, 4]


def test_everybody_meets_where_seat_0_is() -> None:
    roster = seat([Applicant("n1", 1, store_address="a", store_port=1), Applicant("n2", 1, store_port=2)], None, 9)
    assert {(part.store_address, part.store_port) for part in roster.parts().values()} == {("a", 1)}


def test_newcomers_sit_where_they_were_meant_to_and_behind_those_the_others() -> None:
    given = [
        Applicant("n1", 1, hint=2),
        Applicant("n2", 1),
        Applicant("n3", 1, hint=0),
        Applicant("n4", 1, hint=2),
        Applicant("n0", 1),
    ]
    first = seat(given, None, 9)
    assert nodes(first) == ["n3", "n1", "n4", "n0", "n2"], "two with one wish do no harm"
    assert nodes(seat([*given, Applicant("n9", 1, hint=0)], first, 9)) == [*nodes(first), "n9"], "survivors stay"
