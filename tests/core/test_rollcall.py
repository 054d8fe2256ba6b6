"""Who is missing, in one sentence."""

from __future__ import annotations

import pytest

from relight.core.rollcall import absentees


@pytest.mark.parametrize(
    ("world", "arrived", "counted", "sentence"),
    [
        (4, frozenset(), 0, None),
        (4, frozenset({0, 1, 2, 3}), 4, None),
        (4, frozenset(), 4, None),
        (4, frozenset({0, 1, 3}), 3, "after 30 s, rank 2 has not reached init_process_group; the others wait there"),
        (4, frozenset({0}), 1, "after 30 s, ranks 1, 2, 3 have not reached init_process_group; the others wait there"),
        (4, frozenset(), 3, "after 30 s, 1 of 4 workers has not reached init_process_group; the others wait there"),
        (4, frozenset(), 1, "after 30 s, 3 of 4 workers have not reached init_process_group; the others wait there"),
        (
            20,
            frozenset({0, 1}),
            2,
            "after 30 s, ranks 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13 and 6 more have not reached "
            "init_process_group; the others wait there",
        ),
    ],
)
def test_the_sentence_names_who_is_missing(
    world: int, arrived: frozenset[int], counted: int, sentence: str | None
) -> None:
    assert absentees(world, arrived, counted, 30.0) == sentence
