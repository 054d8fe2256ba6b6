"""Seeds: every run keeps every promise, and replays byte for byte. A failing seed prints itself and its transcript."""

from __future__ import annotations

import random

import pytest

from relight.core.documents import Verdict
from relight.core.values import replace

from .weather import Weather, draw
from .world import World

EVERYDAY, SLOW, SOAK = 300, 3_000, 100_000


def calm(seed: int) -> Weather:
    """The same jobs on a good day: everybody comes, nothing is lost, no worker fails."""
    drawn = draw(random.Random(seed))
    nothing = {"loss": 0.0, "twice": 0.0, "slow": 0.0, "ambush": 0.0, "failing": 0.0, "deaf": "", "faults": ()}
    return replace(drawn, boots=dict.fromkeys(drawn.boots, 0.0), **nothing)


def test_everyday_seeds() -> None:
    for seed in range(EVERYDAY):
        World(seed).run()


@pytest.mark.slow
def test_slow_seeds() -> None:
    for seed in range(EVERYDAY, SLOW):
        World(seed).run()


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_soak_seeds() -> None:
    for seed in range(SLOW, SOAK):
        World(seed).run()


@pytest.mark.parametrize("nodes", [1, 5])
def test_other_numbers_of_nodes(nodes: int) -> None:
    for seed in range(30):
        World(seed, nodes=nodes).run()


@pytest.mark.parametrize("seed", [3, 17, 42])
def test_a_seed_replays_byte_for_byte(seed: int) -> None:
    first, second = World(seed), World(seed)
    first.run()
    second.run()
    assert first.transcript() == second.transcript()
    assert len(first.log) > 20


def test_on_a_good_day_every_job_succeeds_without_a_restart() -> None:
    for seed in range(40):
        world = World(seed, weather=calm(seed))
        world.run()
        view = world.job.decision
        assert view.verdict is Verdict.SUCCEEDED, world.transcript()
        assert view.restarts == 0
        started_together = world.weather.job.min_nodes == world.weather.job.max_nodes
        assert world.truth.rounds == 1 or not started_together, world.transcript()


def test_the_seeds_see_every_end_and_many_rounds() -> None:
    """Seeds that only ever see one kind of world prove little."""
    verdicts: set[Verdict | None] = set()
    rounds = 0
    for seed in (*range(120), 359):
        world = World(seed)
        world.run()
        verdicts.add(world.job.decision.verdict)
        rounds += world.truth.rounds
    assert verdicts == set(Verdict)
    assert rounds > 200
