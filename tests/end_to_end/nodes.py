"""Several agents of one job on this machine, each a launcher of its own with a name of its own."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Mapping

from .running import Run, Runs, until

# What a worker tells of its round: one line with its node, and where it sits.
ROUND = """
NODE = os.environ["NODE"]
def seat():
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "GROUP_RANK", "GROUP_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
             "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_RUN_ID")
    import json
    tell("seat", json.dumps({"node": NODE, "round": ROUND, "pid": os.getpid(), **{n: os.environ[n] for n in names}}))
seat()
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Nodes:
    """The agents of one job; all of their workers tell to the same file."""

    def __init__(self, relight: Runs, script: str, nnodes: str, *options: str, id_: str = "job") -> None:
        self.port = free_port()
        self._relight = relight
        self._words = (
            *("--nproc-per-node=1", f"--nnodes={nnodes}", f"--rdzv-id={id_}"),
            *("--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{self.port}"),
            *options,
        )
        self._script = relight.script(ROUND + script)
        self.runs: dict[str, Run] = {}

    def add(self, name: str, *options: str, env: Mapping[str, str] | None = None) -> Run:
        run = self._relight(*self._words, *options, self._script, env={"NODE": name, **(env or {})})
        self.runs[name] = run
        return run

    def hosted(self, name: str, env: Mapping[str, str] | None = None) -> Run:
        """The first agent: once it listens, the others call it."""
        run = self.add(name, env=env)
        until(lambda: _listens(self.port) or run.process.poll() is not None, "the coordinator to listen")
        return run

    @property
    def told(self) -> list[str]:
        return [event for run in self.runs.values() for event in run.events]

    def seats(self, world: int, round_: int | None = None) -> dict[str, dict[str, str]]:
        """The newest complete round of that size: what each of its workers told, by rank."""
        rounds: dict[int, dict[str, dict[str, str]]] = {}
        for event in self.told:
            if event.startswith("seat "):
                seat = json.loads(event[5:])
                if int(seat["WORLD_SIZE"]) == world:
                    rounds.setdefault(seat["round"], {})[seat["RANK"]] = seat
        whole = [number for number, found in rounds.items() if len(found) == world and round_ in (None, number)]
        return rounds[max(whole)] if whole else {}

    def works(self, world: int, round_: int | None = None) -> dict[str, dict[str, str]]:
        """Waits for a round of that size."""
        until(lambda: self.seats(world, round_), lambda: f"a round of {world}; {self.story()}")
        return self.seats(world, round_)

    def end(self) -> dict[str, int]:
        """Waits for every agent's end; their exit codes."""
        codes = {name: run.ends() for name, run in self.runs.items()}
        for run in self.runs.values():
            run.nothing_is_left()
        return codes

    def story(self) -> str:
        return "; ".join(f"{name}: {run.story()}" for name, run in self.runs.items())


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def soon(since: float, within_s: float, what: str) -> None:
    """Something that must not take the time of any time-out. Generous: speed is a benchmark's affair."""
    took_s = time.monotonic() - since
    assert took_s < within_s, f"{what} took {took_s:.1f} s"
