"""`python -m benchmarks [--reps N] [--only NAME]`: the README's table, measured on this machine.

Launchers take turns within each repetition, so that the machine's moods hit them alike; what counts are the ratios.
Every moment is CLOCK_MONOTONIC, taken by the workers as their first statement, or by this program just before it
starts a launcher. Medians, with the range in brackets.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "worker.py")
LAUNCHERS = ("torchrun", "relight")
DEADLINE_S = 120


class Run:
    """One run of a launcher: its workers' events, and what it cost."""

    def __init__(self, launcher: str, options: list[str], mode: str, capture: bool = False, **environ: str) -> None:
        folder = tempfile.mkdtemp(prefix="relight-bench-")
        events = os.path.join(folder, "events")
        command = [shutil.which(launcher, path=_path()) or launcher, "--standalone", *options, WORKER, mode]
        self.began = time.monotonic_ns()
        process = subprocess.Popen(
            command,
            env={**os.environ, "OMP_NUM_THREADS": "1", "BENCH_EVENTS": events, **environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if capture else subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.lines: list[tuple[int, bytes]] = []
        if process.stdout is not None:
            while chunk := os.read(process.stdout.fileno(), 1 << 16):
                self.lines.append((time.monotonic_ns(), chunk))
            process.stdout.close()
        timer = time.monotonic() + DEADLINE_S
        while True:
            pid, _, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() > timer:
                process.kill()
                raise TimeoutError(f"{' '.join(command)} took more than {DEADLINE_S} s")
            time.sleep(0.002)
        process.returncode = 0
        self.ended = time.monotonic_ns()
        self.agent_mb = usage.ru_maxrss / 1024
        with open(events) as file:
            rows = [line.split() for line in file]
        self.events = [(name, int(rank), int(restart), int(at)) for name, rank, restart, at in rows]
        shutil.rmtree(folder, ignore_errors=True)

    def moments(self, name: str, restart: int = 0) -> list[int]:
        return [at for what, _, count, at in self.events if what == name and count == restart]


def start(launcher: str) -> dict[str, float]:
    run = Run(launcher, ["--nproc-per-node=4"], "plain")
    return {
        "first line of the last of 4 workers, s": (max(run.moments("start")) - run.began) / 1e9,
        "a whole job that does nothing, s": (run.ended - run.began) / 1e9,
        "after the last worker's end, s": (run.ended - max(run.moments("end"))) / 1e9,
    }


def restart(launcher: str) -> dict[str, float]:
    results = {}
    for workers in (2, 8):
        run = Run(launcher, [f"--nproc-per-node={workers}", "--max-restarts=1"], "die")
        died = run.moments("die")[0]
        results[f"a worker of {workers} dies: all run again, s"] = (max(run.moments("start", 1)) - died) / 1e9
    return results


def stubborn(launcher: str) -> dict[str, float]:
    run = Run(launcher, ["--nproc-per-node=2", "--max-restarts=1", "--shutdown-timeout=3"], "stubborn")
    died = run.moments("die")[0]
    return {"the same, one ignores SIGTERM, --shutdown-timeout=3, s": (max(run.moments("start", 1)) - died) / 1e9}


def console(launcher: str) -> dict[str, float]:
    run = Run(launcher, ["--nproc-per-node=2", "--tee=3"], "tick", capture=True, PYTHONUNBUFFERED="1")
    delays, rest = [], b""
    for at, chunk in run.lines:
        *lines, rest = (rest + chunk).split(b"\n")
        delays += [(at - int(line.split()[-1])) / 1e6 for line in lines if b"TICK" in line]
    delays.sort()
    run = Run(launcher, ["--nproc-per-node=2", "--tee=3"], "flood", capture=True)
    size = sum(len(chunk) for _, chunk in run.lines)
    seconds = (run.lines[-1][0] - min(run.moments("start"))) / 1e9
    return {
        "--tee: a line is on the console after, median ms": statistics.median(delays),
        "--tee: the same, 99th percentile, ms": delays[int(len(delays) * 0.99)],
        "--tee: big chunks, MB/s": size / 1e6 / seconds,
    }


def gloo(launcher: str) -> dict[str, float]:
    """torchrun's own store makes this hang now and then; so it gets a store per restart, its best case."""
    extra = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"} if launcher == "torchrun" else {}
    run = Run(launcher, ["--nproc-per-node=2", "--max-restarts=1"], "gloo", **extra)
    died = run.moments("die")[0]
    return {
        "2 gloo workers, first all_reduce done, s": (max(run.moments("group")) - run.began) / 1e9,
        "one dies: the group works again, s": (max(run.moments("group", 1)) - died) / 1e9,
    }


def memory(launcher: str) -> dict[str, float]:
    """The launcher's own peak, read while it waits for a worker that sleeps."""
    folder = tempfile.mkdtemp(prefix="relight-bench-")
    environ = {**os.environ, "BENCH_EVENTS": os.path.join(folder, "events")}
    process = subprocess.Popen(
        [shutil.which(launcher, path=_path()) or launcher, "--standalone", "--nproc-per-node=4", WORKER, "rest"],
        env=environ,
        stderr=subprocess.DEVNULL,
    )
    time.sleep(3)
    with open(f"/proc/{process.pid}/status") as file:
        peak = next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))
    process.wait(DEADLINE_S)
    shutil.rmtree(folder, ignore_errors=True)
    return {"the launcher's memory, MB": peak / 1024}


CASES = {"start": start, "restart": restart, "stubborn": stubborn, "console": console, "memory": memory, "gloo": gloo}


def _path() -> str:
    return os.path.dirname(sys.executable) + os.pathsep + os.environ.get("PATH", "")


def _cell(samples: list[float]) -> str:
    return f"{statistics.median(samples):.3g} [{min(samples):.3g}, {max(samples):.3g}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reps", type=int, default=5)
    parser.add_argument("--only", action="append", choices=list(CASES))
    chosen = parser.parse_args()
    print("| | torchrun | relight | ratio |\n|---|---|---|---|")
    for name in chosen.only or CASES:
        samples: dict[str, dict[str, list[float]]] = {}
        for turn in range(chosen.reps if name != "stubborn" else min(2, chosen.reps)):
            for launcher in LAUNCHERS:
                print(f"{name} {turn + 1} {launcher} ...", end="\r", file=sys.stderr)
                for row, seconds in CASES[name](launcher).items():
                    samples.setdefault(row, {}).setdefault(launcher, []).append(seconds)
        for row, by_launcher in samples.items():
            ratio = statistics.median(by_launcher["torchrun"]) / statistics.median(by_launcher["relight"])
            spelled = f"{ratio:.1f}" if ratio >= 1 else f"1/{1 / ratio:.1f}"
            print(
                f"| {row} | {_cell(by_launcher['torchrun'])} | {_cell(by_launcher['relight'])} | {spelled} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
