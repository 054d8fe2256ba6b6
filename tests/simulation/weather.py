"""What one seed draws: the rules of the job, how bad the network is, and what will go wrong when."""

from __future__ import annotations

import random

from relight.core.job import JobRules
from relight.core.launch import Budget
from relight.core.node import NodeRules
from relight.core.values import value

LEASE_S = 3.0
HEARTBEAT_S = 0.5
CALM_AT = 20.0  # from here on nothing goes wrong any more
JOIN_TIMEOUT_S = 15.0
SHUTDOWNS_S = (0.2, 6.0, 6.0)  # shorter than a lease and longer


@value
class Fault:
    """Something that goes wrong: crash, boot, stop, pause, freeze, deaf, mute, cut."""

    at: float
    kind: str
    node: str
    for_s: float = 0.0


@value
class Weather:
    """Everything that is drawn before a run. What remains is drawn as it happens, from the same seed."""

    job: JobRules
    node: NodeRules
    slots: dict[str, int]
    boots: dict[str, float]  # when each node's first agent starts
    faults: tuple[Fault, ...]
    loss: float
    twice: float  # how many messages arrive twice
    slow: float  # how many messages are late
    slow_s: float  # and how late they may be
    ambush: float  # how many decisions meet a fault at their worst moment
    stubborn: str  # a node whose workers ignore SIGTERM, while all others obey at once; empty: it varies
    deaf: str  # a node that never hears anything; empty: none
    failing: float  # how many workers fail
    work_s: float  # how long a worker works at most


def draw(chance: random.Random, nodes: int = 3) -> Weather:
    """A job and its bad luck."""
    names = [f"n{number}" for number in range(1, nodes + 1)]
    most = chance.choice([nodes, nodes, nodes, max(1, nodes - 1)])
    least = chance.choice([1, max(1, most - 1), most])
    rate = chance.random() < 0.3
    stubborn = chance.choice(["", "", *names])
    budget = Budget(chance.choice([0, 1, 3]), chance.choice([2, 5]) if rate else None, 30.0 if rate else 0.0)
    faults: list[Fault] = []
    for _ in range(chance.choice([0, 1, 3, 6])):
        faults += _mishap(chance, chance.choice(names), chance.uniform(0.0, 12.0))
        if chance.random() < 0.5:  # misfortune seldom comes alone
            faults += _mishap(chance, chance.choice(names), faults[-1].at + chance.uniform(0.0, 2.0))
    return Weather(
        job=JobRules(least, most, budget, LEASE_S, chance.choice([0.0, 0.5]), JOIN_TIMEOUT_S),
        node=NodeRules(chance.choice(SHUTDOWNS_S), chance.choice([LEASE_S, LEASE_S, 0.8 * LEASE_S])),
        slots={name: chance.choice([1, 2]) for name in names},
        boots={name: chance.choice([0.0, 0.0, chance.uniform(0, 1), chance.uniform(0, 12)]) for name in names},
        faults=tuple(sorted(faults, key=lambda fault: fault.at)),
        loss=chance.choice([0.0, 0.02, 0.3]),
        twice=chance.choice([0.0, 0.1]),
        slow=chance.choice([0.0, 0.02, 0.2, 0.2]),
        slow_s=chance.choice([0.3, 8.0]),
        ambush=chance.choice([0.0, 0.4, 0.8]),
        stubborn=stubborn,
        deaf=names[-1] if chance.random() < 0.05 else "",
        failing=chance.choice([0.0, 0.05, 0.3]),
        work_s=chance.choice([1.0, 4.0, 10.0]),
    )


def ambush(chance: random.Random, weather: Weather, now: float) -> list[Fault]:
    """A fault for the moment in which a decision is on its way."""
    at = now + chance.choice([0.0, chance.uniform(0.0, 0.5)])
    kind = chance.choice(["crash", "pause", "pause", "deaf", "mute", "cut"])
    node = weather.stubborn or chance.choice(list(weather.slots))
    found = [Fault(at, kind, node, chance.uniform(LEASE_S, 2.0 * LEASE_S))]
    if kind == "crash":
        found.append(Fault(at + chance.choice([0.01, 0.4, 2.0]), "boot", node))
    return found


def _mishap(chance: random.Random, node: str, at: float) -> list[Fault]:
    kind = chance.choice(["crash", "crash", "flap", "stop", "pause", "freeze", "deaf", "mute", "cut", "cut"])
    if kind == "flap":  # an agent that crashes again and again, and is started anew at once
        moments = [at + 0.4 * turn for turn in range(5)]
        return [Fault(one + gap, what, node) for one in moments for what, gap in (("crash", 0.0), ("boot", 0.001))]
    for_s = chance.choice([chance.uniform(0.0, LEASE_S), chance.uniform(0.8 * LEASE_S, 1.7 * LEASE_S)])
    found = [Fault(at, kind, node, for_s)]
    if kind in ("crash", "stop") and chance.random() < 0.8:
        found.append(Fault(at + chance.choice([0.001, 0.05, 0.4, for_s]), "boot", node))
    return found
