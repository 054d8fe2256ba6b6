"""Nodes with networks of their own: real addresses and host names, and cables that can be pulled."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from .running import Run, Runs, until

WORKER = """
import json, socket
names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT")
with socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), 5):
    pass
tell("seat", json.dumps({"host": socket.gethostname(), "round": ROUND, **{n: os.environ[n] for n in names}}))
told("go")
"""
LEASE = "--rdzv-conf=keep_alive_interval=1,keep_alive_max_attempt=2,settle_timeout=0.5"


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def _may() -> bool:
    """Whether this machine lets us make network namespaces."""
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("unshare"):
        return False
    name = f"rl{os.getpid()}try"
    made = subprocess.run(["ip", "netns", "add", name], check=False, capture_output=True).returncode == 0
    if made:
        _ip("netns", "delete", name)
    return made


pytestmark = [pytest.mark.slow, pytest.mark.skipif(not _may(), reason="network namespaces cannot be made here")]


class Network:
    """A bridge, and hosts around it: host n has the address 10.78.0.n and calls itself node<n>."""

    def __init__(self, hosts: int) -> None:
        self.name = f"rl{os.getpid()}"
        self.bridge = f"{self.name}br"
        _ip("netns", "add", self.bridge)
        _ip("-n", self.bridge, "link", "add", "br0", "type", "bridge")
        _ip("-n", self.bridge, "link", "set", "br0", "up")
        self.hosts = range(1, hosts + 1)
        for number in self.hosts:
            host, cable = self.host(number), f"b{number}"
            _ip("netns", "add", host)
            _ip("-n", self.bridge, "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", host)
            _ip("-n", self.bridge, "link", "set", cable, "master", "br0")
            _ip("-n", self.bridge, "link", "set", cable, "up")
            _ip("-n", host, "addr", "add", f"10.78.0.{number}/24", "dev", "eth0")
            _ip("-n", host, "link", "set", "eth0", "up")
            _ip("-n", host, "link", "set", "lo", "up")

    def host(self, number: int) -> str:
        return f"{self.name}h{number}"

    def inside(self, number: int, name: str = "") -> tuple[str, ...]:
        """The words before a command that runs it on a host."""
        named = f'hostname {name or f"node{number}"}; exec "$@"'
        return ("ip", "netns", "exec", self.host(number), "unshare", "-u", "sh", "-c", named, "sh")

    def cable(self, number: int, state: str) -> None:
        _ip("-n", self.bridge, "link", "set", f"b{number}", state)

    def close(self) -> None:
        for name in (*map(self.host, self.hosts), self.bridge):
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


@pytest.fixture
def network() -> Iterator[Network]:
    network = Network(3)
    yield network
    network.close()


def start(relight: Runs, network: Network, nnodes: str, endpoint: str, *options: str, name: str = "") -> list[Run]:
    script = relight.script(WORKER)
    words = (f"--nnodes={nnodes}", "--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}", LEASE, *options, script)
    return [relight(*words, before=network.inside(number, name)) for number in network.hosts]


def seats(runs: list[Run], world: int) -> dict[str, dict[str, str]]:
    """What the workers of the newest complete round of that size told, by rank; nothing if there is none."""
    rounds: dict[int, dict[str, dict[str, str]]] = {}
    for event in (event for run in runs for event in run.events if event.startswith("seat ")):
        seat = json.loads(event[5:])
        if int(seat["WORLD_SIZE"]) == world:
            rounds.setdefault(seat["round"], {})[seat["RANK"]] = seat
    whole = [number for number, found in rounds.items() if len(found) == world]
    return rounds[max(whole)] if whole else {}


def works(runs: list[Run], world: int) -> dict[str, dict[str, str]]:
    until(lambda: seats(runs, world), lambda: f"a round of {world}; {[run.story() for run in runs]}")
    return seats(runs, world)


def finish(runs: list[Run]) -> None:
    for run in runs:
        run.tell("go")
    assert [run.ends() for run in runs] == [0] * len(runs), [run.story() for run in runs]


@pytest.mark.parametrize("endpoint", ["10.78.0.1:29400", "10.78.0.2:29400"])
def test_nodes_meet_at_an_address_without_any_names(relight: Runs, network: Network, endpoint: str) -> None:
    runs = start(relight, network, "3", endpoint)
    found = works(runs, 3)
    assert {seat["host"] for seat in found.values()} == {"node1", "node2", "node3"}
    first = found["0"]["host"].removeprefix("node")
    assert {seat["MASTER_ADDR"] for seat in found.values()} == {f"10.78.0.{first}"}
    finish(runs)


def test_machines_that_all_call_themselves_localhost(relight: Runs, network: Network) -> None:
    runs = start(relight, network, "3", "10.78.0.1:29400", name="localhost")
    found = works(runs, 3)
    assert {seat["host"] for seat in found.values()} == {"localhost"}
    assert found["0"]["MASTER_ADDR"].startswith("10.78.0.")
    finish(runs)


def test_a_cable_is_pulled_and_put_back(relight: Runs, network: Network) -> None:
    """Nothing says goodbye: silence is noticed by the lease, on both sides."""
    runs = start(relight, network, "1:3", "10.78.0.1:29400")
    works(runs, 3)
    network.cable(3, "down")
    found = works(runs, 2)
    assert {seat["host"] for seat in found.values()} == {"node1", "node2"}
    assert "node3 fell silent for" in runs[0].err
    until(lambda: not any("train.py" in words and "-u" in words for words in runs[2].alive().values()), "its fence")
    network.cable(3, "up")
    until(lambda: int(works(runs, 3)["0"]["round"]) >= 2, "the third one to be taken in again")
    finish(runs)
