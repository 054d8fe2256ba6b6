"""What only a machine with an NVIDIA GPU can show: GPUs are counted, NCCL works, a killed worker's memory is free."""

from __future__ import annotations

import glob
from pathlib import Path

import pytest

from .running import SCRIPTS, job

GPUS = glob.glob("/dev/nvidia[0-9]*")

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not GPUS, reason="this machine has no NVIDIA GPU")]


@pytest.mark.parametrize("word", ["gpu", "auto"])
def test_a_worker_for_each_gpu_and_its_memory_is_free_after_a_kill(
    tmp_path: Path, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RELIGHT_CLIENT_GPUS", ",".join(map(str, range(len(GPUS)))))
    with job(tmp_path, f"--nproc-per-node={word}", "--max-restarts=1", SCRIPTS / "nccl.py") as running:
        assert running.finish() == 0, running.printed
        assert running.left_running() == []
    for rank in range(len(GPUS)):
        assert len(running.said(rf"^{len(GPUS)} workers, sum {len(GPUS)}$", rank)) == 2, running.printed
        first, second = (float(found[1]) for found in running.said(r"^free before ([0-9.]+) GiB", rank))
        held = float(running.said(r"^free while held ([0-9.]+) GiB", rank)[0][1])
        assert held < 0.7 * first
        assert second > 0.98 * first
