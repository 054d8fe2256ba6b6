"""What examples/ shows is what happens: each by the command line that its first lines name."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from .running import DEADLINE_S, ROOT, Job, job, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
pytest.importorskip("torch", reason="torch is not installed")

EXAMPLES = ROOT / "examples"
SMALL = ("--epochs", "5", "--images", "1600")


def epochs(job: Job) -> list[tuple[int, str]]:
    return [(int(found[1]), found[2]) for found in job.said(r"^epoch (\d+)  loss ([0-9.]+)  ", 0)]


def accuracy(job: Job) -> str:
    (found,) = job.said(r"^accuracy ([0-9.]+)% on digits", 0)
    return found[1]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_worker_changes_nothing_in_the_result(tmp_path: Path, rank: int) -> None:
    """Bit for bit: the same losses and the same accuracy as a job that nothing happened to."""
    script = ("--nproc-per-node=2", "--max-restarts=3", EXAMPLES / "train.py", *SMALL)
    quiet = run(_folder(tmp_path, "quiet"), *script)
    died = run(_folder(tmp_path, "died"), *script, "--die-at", "2", "--die-rank", str(rank))

    assert died.said(rf"^rank {rank} kills itself in the middle of epoch 2$", rank)
    assert re.search(rf"^relight: rank {rank} on .* was killed by SIGKILL; starting again", died.printed, re.MULTILINE)
    assert died.said(r"^carrying on from snapshot.pt: 2 epochs are done$", 0)
    assert died.said(r"^training again, [0-9.]+ s after the death$", 0)
    assert epochs(died) == epochs(quiet)
    assert [number for number, _ in epochs(died)] == [0, 1, 2, 3, 4]
    assert accuracy(died) == accuracy(quiet)
    assert float(epochs(died)[-1][1]) < float(epochs(died)[0][1])


def test_multigpu_by_the_tutorials_command_line(tmp_path: Path) -> None:
    words = ("--nproc_per_node=2", EXAMPLES / "multigpu.py")
    first = run(tmp_path, *words, "4", "2")
    again = run(_folder(tmp_path, "again"), *words, "6", "2", "--snapshot_path", tmp_path / "snapshot.pt")

    for rank in (0, 1):
        seen = first.said(rf"^\[{rank}\] epoch (\d) \| steps 32 \| loss ([0-9.]+)$", rank)
        assert [found[1] for found in seen] == ["0", "1", "2", "3"]
        assert float(seen[-1][2]) < float(seen[0][2])
        assert again.said(rf"^\[{rank}\] resuming from .*: 4 epochs are done$", rank)
        assert [found[1] for found in again.said(r"epoch (\d) \| steps", rank)] == ["4", "5"]
    assert [found[1] for found in first.said(r"epoch (\d): snapshot saved")] == ["1", "3"]


def test_mingpt_carries_on_after_a_kill(tmp_path: Path) -> None:
    script = (EXAMPLES / "mingpt" / "main.py", "--max-epochs", "4", "--letters", "100000")
    with job(tmp_path, "--nproc-per-node=2", "--max-restarts=3", *script) as running:
        running.until(r"epoch 2 \| batch 0 ", rank=1)
        running.kill_worker(1)
        assert running.finish() == 0, running.printed
        assert running.left_running() == []

    assert len(running.said(r"^\[rank 0\] no snapshot")) == 1
    for rank in (0, 1):
        assert running.said(rf"^\[rank {rank}\] resuming from a snapshot: epoch 2 is next$", rank)
    done = running.said(r"epoch (\d) done \| mean loss ([0-9.]+)", 0)
    assert [found[1] for found in done] == ["0", "1", "2", "3"]
    assert float(done[-1][2]) < float(done[0][2]) - 0.5


def test_the_first_command_of_the_readme() -> None:
    """What `make demo` runs once all is set up: the terminal shows what happened, and how long it took."""
    demo = subprocess.Popen(
        [sys.executable, EXAMPLES / "demo.py"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        printed, _ = demo.communicate(timeout=DEADLINE_S)
    finally:
        if demo.poll() is None:
            os.killpg(demo.pid, signal.SIGKILL)  # relight with it, and relight's guardian ends the workers
            demo.wait(10)
    assert demo.returncode == 0, printed
    seconds = r"^ *[0-9.]+ s  "
    said = [
        r"^\$ relight --standalone --nproc-per-node=4 --max-restarts=3 .* examples/train.py --die-at 3 --die-rank 2 ",
        seconds + r"epoch 2  loss",
        seconds + r"rank 2 kills itself in the middle of epoch 3$",
        seconds + r"relight: rank 2 on .* was killed by SIGKILL.*; starting again, restart 1 of 3$",
        seconds + r"carrying on from .*: 3 epochs are done$",
        seconds + r"training again, [0-9.]+ s after the death$",
        seconds + r"epoch 5  loss",
        seconds + r"accuracy 9\d\.\d+% on digits it has never seen$",
        r"^after the death of rank 2$",
        seconds + r"from the death to training again, of [0-9.]+ s in all$",
    ]
    places = [found.start() if (found := re.search(line, printed, re.MULTILINE)) else -1 for line in said]
    assert -1 not in places and places == sorted(places), printed


def _folder(parent: Path, name: str) -> Path:
    (parent / name).mkdir(exist_ok=True)
    return parent / name
