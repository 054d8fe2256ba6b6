"""With PyTorch's gloo in the workers: restarts in a row, and careless exits."""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from .running import Runs, children_of

pytestmark = [pytest.mark.slow]
pytest.importorskip("torch", reason="these workers use gloo")

GLOO = {"GLOO_SOCKET_IFNAME": "lo"}
MODES = ["exit", "exception", "kill", "during init", "during a collective", "all at once"]

FAILS_IN_MANY_WAYS = """
    import torch, torch.distributed as dist
    modes = sys.argv[1].split(",")
    mode = modes[ROUND] if ROUND < len(modes) else "finish"
    culprit = ROUND % int(os.environ["WORLD_SIZE"])
    tell("round", ROUND, RANK, mode)
    if mode == "during init" and RANK == culprit:
        if ROUND % 4 < 2: os._exit(6)
        import threading
        threading.Timer(0.03, os._exit, [6]).start()
    dist.init_process_group("gloo")
    value = torch.ones(1000)
    dist.all_reduce(value)
    assert value[0] == int(os.environ["WORLD_SIZE"])
    if mode == "finish":
        told("go on")
        dist.barrier()
        dist.destroy_process_group()
        tell("finished", RANK)
        sys.exit(0)
    if mode == "all at once": os._exit(9)
    if RANK == culprit:
        if mode == "exit": sys.exit(4)
        if mode == "exception": raise RuntimeError("made to fail")
        if mode == "kill": os.kill(os.getpid(), 9)
        if mode == "during a collective":
            import threading
            threading.Timer(0.02, os._exit, [5]).start()
    while True:
        dist.all_reduce(value)
"""


class Launcher:
    """What a launcher's process holds."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def holds(self) -> dict[str, int]:
        status = Path(f"/proc/{self._pid}/status").read_text()
        sockets = [fd for fd in self._open() if fd.startswith("socket:")]
        return {
            "descriptors": len(self._open()),
            "sockets": len(sockets),
            "listening": self._listening(sockets),
            "children": len(children_of(self._pid)),
            "zombies": self._zombies(),
            "threads": int(re.findall(r"Threads:\s+(\d+)", status)[0]),
            "memory_kb": int(re.findall(r"VmRSS:\s+(\d+)", status)[0]),
        }

    def _open(self) -> list[str]:
        found = []
        for name in os.listdir(f"/proc/{self._pid}/fd"):
            try:
                found.append(os.readlink(f"/proc/{self._pid}/fd/{name}"))
            except FileNotFoundError:
                pass
        return found

    def _listening(self, sockets: Sequence[str]) -> int:
        lines = [
            line.split()
            for table in ("tcp", "tcp6")
            for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
        ]
        return sum(line[3] == "0A" and f"socket:[{line[9]}]" in sockets for line in lines)

    def _zombies(self) -> int:
        count = 0
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                fields = Path(f"/proc/{name}/stat").read_text().rpartition(") ")[2].split()
            except OSError:
                continue
            count += fields[0] == "Z" and int(fields[1]) == self._pid
        return count


def restarts(relight: Runs, count: int, workers: int, seed: int) -> None:
    """Forces so many restarts in one job; the launcher holds as much at the end as it held early on."""
    chance = random.Random(seed)
    modes = [chance.choice(MODES) for _ in range(count)]
    logs = relight.folder / "logs"
    run = relight(
        f"--nproc-per-node={workers}",
        f"--max-restarts={count}",
        "--shutdown-timeout=5",
        f"--log-dir={logs}",
        "-r3",
        relight.script(FAILS_IN_MANY_WAYS),
        ",".join(modes),
        env=GLOO,
    )
    launcher, began = Launcher(run.pid), time.monotonic()
    samples, durations = [], []
    for round_ in range(count + 1):
        begin = time.monotonic()
        run.began(f"round {round_} ")  # the culprit of `during init` may be gone before the others have come so far
        durations.append(time.monotonic() - begin)
        samples.append(launcher.holds())
    run.tell("go on")
    assert run.ends(60) == 0, run.story()
    run.nothing_is_left()
    third = len(samples) // 3
    early, late = (
        {what: max(one[what] for one in part) for what in samples[0]} for part in (samples[:third], samples[-third:])
    )
    print(f"{count} restarts of {workers} workers in {time.monotonic() - began:.0f} s, seed {seed}")
    print(f"longest round {max(durations):.1f} s\nearly {early}\nlate  {late}")
    assert [event for event in run.events if event.startswith("finished")]
    assert late["children"] <= workers + 1 and late["zombies"] <= workers and late["threads"] == 1
    for what in ("descriptors", "sockets"):  # how many connections the workers have at the moment is chance
        assert late[what] <= early[what] + 3 * workers, (what, early, late)
    assert late["listening"] <= early["listening"]
    assert late["memory_kb"] < early["memory_kb"] * 1.1 + 1024, (early, late)


@pytest.mark.timeout(300)
def test_a_dozen_restarts_of_gloo_workers(relight: Runs) -> None:
    restarts(relight, 12, workers=2, seed=5)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", [1])
def test_three_hundred_restarts_of_gloo_workers(relight: Runs, seed: int) -> None:
    restarts(relight, 300, workers=2, seed=seed)


CARELESS = """
    import torch, torch.distributed as dist
    dist.init_process_group("gloo")
    value = torch.ones(10)
    for _ in range(10): dist.all_reduce(value)
    tell("worked", RANK)
    if "code" in sys.argv: raise SystemExit(5)
    if "raise" in sys.argv and RANK == 1: raise ValueError("a failure stays one")
"""


@pytest.mark.timeout(300)
def test_a_group_that_nobody_destroyed_is_no_failure(relight: Runs) -> None:
    for _ in range(6):
        run = relight.finish("--nproc-per-node=4", relight.script(CARELESS), env=GLOO)
        assert run.process.returncode == 0, run.story()
        assert run.err.count("left a process group open at exit") == 1, "one warning, not one for each worker"
        assert "terminate called" not in run.err


def test_without_forgiveness_nothing_is_closed(relight: Runs) -> None:
    run = relight.finish("--nproc-per-node=2", "--no-forgive-teardown", relight.script(CARELESS), env=GLOO)
    assert "left a process group open" not in run.err
    assert run.process.returncode in (0, 1), "gloo may abort at exit, or not"


def test_an_exit_code_of_ones_own_stays(relight: Runs) -> None:
    run = relight.finish("--nproc-per-node=2", "--exit-codes=detailed", relight.script(CARELESS), "code", env=GLOO)
    assert run.process.returncode == 5, run.story()


def test_an_exception_stays_a_failure_and_is_not_held_up(relight: Runs) -> None:
    words = "--nproc-per-node=2", "--exit-codes=detailed", "-r2"
    run = relight.finish(*words, relight.script(CARELESS), "raise", env=GLOO)
    assert run.process.returncode == 1, run.story()
    assert "it said      ValueError: a failure stays one" in run.err
