"""Frameworks and libraries that are usually run with torchrun, unmodified, under relight: two workers each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .running import SCRIPTS, Job, job, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
pytest.importorskip("torch", reason="torch is not installed")

RESTARTED = re.compile(r"^relight: .*starting again, restart (\d) of 3$", re.MULTILINE)


def needs(package: str) -> pytest.MarkDecorator:
    """Skips a test where a package of requirements.txt is missing, without importing what is there."""
    from importlib.util import find_spec

    return pytest.mark.skipif(find_spec(package) is None, reason=f"{package} is not installed (requirements.txt here)")


def losses(job: Job, pattern: str = r" loss ([0-9.]+)", rank: int = 0) -> list[float]:
    return [float(found[1]) for found in job.said(pattern, rank)]


def restarts(job: Job) -> list[str]:
    return RESTARTED.findall(job.printed)


def test_plain_ddp(tmp_path: Path) -> None:
    done = run(tmp_path, "--nproc-per-node=2", SCRIPTS / "plain_ddp.py")

    for rank in (0, 1):
        assert done.said(rf"^rank {rank} of 2, local rank {rank}, elastic True$", rank)
        assert done.said(r"^same weights everywhere: True$", rank)
        first, last = losses(done, rank=rank)
        assert last < first


@needs("transformers")
@needs("accelerate")
def test_hugging_face_trainer_carries_on_from_its_checkpoint(tmp_path: Path) -> None:
    words = ("--nproc-per-node=2", "--max-restarts=3", SCRIPTS / "hf_trainer.py", tmp_path / "model", "40")
    with job(tmp_path, *words) as running:
        running.until(r"^saved at step 10$", rank=0)
        running.kill_worker(1)
        assert running.finish() == 0, running.printed
        assert running.left_running() == []

    assert restarts(running) == ["1"], running.printed
    for rank in (0, 1):
        assert running.said(rf"^world 2 process {rank} mode DISTRIBUTED from None$", rank)
        again = running.said(rf"^world 2 process {rank} mode DISTRIBUTED from .*checkpoint-(\d+)$", rank)
        assert [int(found[1]) % 10 for found in again] == [0], running.printed
        assert running.said(r"^finished at step 40$", rank)
    assert losses(running)[-1] < losses(running)[0] / 2


@needs("accelerate")
def test_a_script_for_accelerate(tmp_path: Path) -> None:
    done = run(tmp_path, "--nproc-per-node=2", SCRIPTS / "accelerate_script.py")

    for rank in (0, 1):
        assert done.said(rf"^process {rank} of 2, MULTI_CPU$", rank), done.printed
        assert done.said(r"^batches 8$", rank)  # half of 16
    assert done.said(r"^gathered \[0, 1\]$", 0)
    assert losses(done)[-1] < losses(done)[0] / 10


@needs("lightning")
def test_lightning_knows_the_launcher_and_carries_on(tmp_path: Path) -> None:
    words = ("--nproc-per-node=2", "--max-restarts=3", SCRIPTS / "lightning_fit.py", tmp_path / "model", "30")
    with job(tmp_path, *words) as running:
        running.until(r"^epoch 3 loss", rank=0)
        running.kill_worker(1)
        assert running.finish() == 0, running.printed
        assert running.left_running() == []

    assert restarts(running) == ["1"], running.printed
    for rank in (0, 1):
        assert len(running.said(rf"^TorchElasticEnvironment rank {rank} of 2$", rank)) == 2, running.printed
        assert running.said(r"^finished after epoch 30$", rank)
    epochs = [int(found[1]) for found in running.said(r"^epoch (\d+) loss", 0)]
    assert epochs.count(0) == 1, "the second round begins where the checkpoint ends"
    assert sorted(set(epochs)) == list(range(30))
    assert losses(running)[-1] < losses(running)[0] / 10


@needs("torchdata")
def test_a_stateful_data_loader_goes_on_in_mid_epoch(tmp_path: Path) -> None:
    words = ("--nproc-per-node=2", "--max-restarts=3", SCRIPTS / "stateful_loader.py", tmp_path)
    quiet = run(_folder(tmp_path, "quiet"), *words[:-1], _folder(tmp_path, "quiet"), "live")
    died = run(_folder(tmp_path, "died"), *words[:-1], _folder(tmp_path, "died"), "die")

    assert restarts(died) == ["1"], died.printed
    for rank in (0, 1):
        assert died.said(r"^carrying on after batch 5$", rank)
        expected, seen = _batches(quiet, rank), _batches(died, rank)
        assert [number for number, _ in expected] == list(range(1, 13))
        assert set(seen) == set(expected), "after the restart each batch holds what it would have held"
        assert [number for number, _ in seen][-7:] == list(range(6, 13))
    everything = [word for rank in (0, 1) for _, held in _batches(quiet, rank) for word in held.split(", ")]
    assert len(set(everything)) == len(everything) == 96


def _batches(job: Job, rank: int) -> list[tuple[int, str]]:
    return [(int(found[1]), found[2]) for found in job.said(r"^batch (\d+) holds \[(.*)\]$", rank)]


def _folder(parent: Path, name: str) -> Path:
    (parent / name).mkdir(exist_ok=True)
    return parent / name
