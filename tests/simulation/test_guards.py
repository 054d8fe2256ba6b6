"""Every guard is needed: without it some everyday seed breaks a promise."""

from __future__ import annotations

import pytest

from .mutants import MUTANTS, Mutant
from .promises import BrokenPromise
from .test_seeds import EVERYDAY
from .world import World


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.guard.replace(" ", "-"))
def test_without_it_a_seed_fails(mutant: Mutant) -> None:
    job_class, node_class = mutant.classes()
    for seed in range(EVERYDAY):
        try:
            World(seed, job_class, node_class).run()
        except BrokenPromise as broken:
            assert str(broken).startswith(f"seed {seed}: ")
            return
    pytest.fail(f"no seed below {EVERYDAY} misses this guard: {mutant.guard}")
