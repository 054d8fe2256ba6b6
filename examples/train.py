"""A small, complete training script that survives the death of a worker.

    relight --standalone --nproc-per-node=4 --max-restarts=3 examples/train.py
    relight --standalone --nproc-per-node=4 --max-restarts=3 examples/train.py --die-at 3 --die-rank 2

It trains a convolutional network to read the noisy digits of a seven-segment display, which it draws itself, with
DistributedDataParallel on gloo. After every epoch rank 0 saves a snapshot. A restarted job carries on from it, and
ends with exactly the numbers of a job that nothing happened to: the snapshot holds each rank's random state too.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import relight

SEGMENTS = ("abcdef", "bc", "abdeg", "abcdg", "bcfg", "acdfg", "acdefg", "abc", "abcdefg", "abcdfg")
STROKES = {  # rows and columns of each segment on a canvas of 13 by 9
    "a": (slice(0, 2), slice(1, 8)),
    "b": (slice(1, 7), slice(7, 9)),
    "c": (slice(6, 12), slice(7, 9)),
    "d": (slice(11, 13), slice(1, 8)),
    "e": (slice(6, 12), slice(0, 2)),
    "f": (slice(1, 7), slice(0, 2)),
    "g": (slice(5, 7), slice(1, 8)),
}


def digits(count: int, seed: int) -> TensorDataset:
    """Draws digits at random places of a 16 by 16 image, then buries them in noise."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(10, (count,), generator=generator)
    down, across = torch.randint(4, (count,), generator=generator), torch.randint(8, (count,), generator=generator)
    images = torch.randn(count, 1, 16, 16, generator=generator) * 0.5
    for image, label, y, x in zip(images, labels.tolist(), down.tolist(), across.tolist(), strict=True):
        canvas = torch.zeros(13, 9)
        for segment in SEGMENTS[label]:
            canvas[STROKES[segment]] = 1.0
        image[0, y : y + 13, x : x + 9] += canvas[:, : 16 - x]
    return TensorDataset(images, labels)


class Reader(nn.Module):
    """Two convolutions and two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.seeing = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        )  # fmt: skip
        self.telling = nn.Sequential(nn.Dropout(0.1), nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        told: torch.Tensor = self.telling(self.seeing(images).flatten(1))
        return told


class Trainer:
    """Epochs, snapshots, and carrying on from the newest one."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self.asked = asked
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(1000 + self.rank)
        training = digits(asked.images, seed=1)
        self.sampler: DistributedSampler[Any] = DistributedSampler(training, seed=3)
        self.batches = DataLoader(training, batch_size=asked.batch_size, sampler=self.sampler)
        self.examined = digits(2000, seed=2)
        self.plain = Reader()
        self.epoch = 0  # the next one to be trained
        # One bucket per allreduce, always the same: sums come out bit for bit alike before and after a restart.
        self.model = DistributedDataParallel(self.plain, bucket_cap_mb=100)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-3)
        self.died_at: float | None = None
        if os.path.exists(asked.snapshot):
            self.load()

    def train(self) -> None:
        for epoch in range(self.epoch, self.asked.epochs):
            began = time.perf_counter()
            loss = self.train_epoch(epoch)
            self.epoch = epoch + 1
            self.save()
            relight.step(self.epoch)
            if self.rank == 0:
                print(f"epoch {epoch}  loss {loss:.6f}  {time.perf_counter() - began:.2f} s")
        accuracy = self.accuracy()
        if self.rank == 0:
            print(f"accuracy {accuracy:.2%} on digits it has never seen")

    def train_epoch(self, epoch: int) -> float:
        self.model.train()
        self.sampler.set_epoch(epoch)
        total = torch.zeros(())
        for number, (images, labels) in enumerate(self.batches):
            if number == len(self.batches) // 2:
                self.die_if_asked(epoch)
            loss = F.cross_entropy(self.model(images), labels)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += loss.detach()
            self.say_training_again()
        dist.all_reduce(total)
        return float(total) / (len(self.batches) * self.world)

    @torch.no_grad()
    def accuracy(self) -> float:
        """Every rank examines its share."""
        self.model.eval()
        images, labels = (tensor[self.rank :: self.world] for tensor in self.examined.tensors)
        right = (self.plain(images).argmax(1) == labels).sum().float()
        dist.all_reduce(right)
        return float(right) / len(self.examined)

    # -- snapshots ------------------------------------------------------------------------------------------

    def save(self) -> None:
        """Whole or not at all: a death while this runs leaves the snapshot before it."""
        own = torch.get_rng_state()
        everyones = [torch.empty_like(own) for _ in range(self.world)] if self.rank == 0 else None
        dist.gather(own, everyones)
        if self.rank != 0:
            return
        snapshot = {
            "model": self.plain.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "epoch": self.epoch,
            "random": everyones,
        }
        partial = f"{self.asked.snapshot}.partial"
        with open(partial, "wb") as file:
            torch.save(snapshot, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, self.asked.snapshot)

    def load(self) -> None:
        snapshot = torch.load(self.asked.snapshot, weights_only=True)
        self.plain.load_state_dict(snapshot["model"])
        self.optimizer.load_state_dict(snapshot["optimizer"])
        self.epoch = snapshot["epoch"]
        if len(snapshot["random"]) == self.world:
            torch.set_rng_state(snapshot["random"][self.rank])
        if self.rank == 0:
            print(f"carrying on from {self.asked.snapshot}: {self.epoch} epochs are done")
            self.died_at = _when(_note(self.asked.snapshot))

    # -- only for the demonstration -------------------------------------------------------------------------

    def die_if_asked(self, epoch: int) -> None:
        """Kills this worker, once: a restarted job is left alone."""
        first = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
        if first and epoch == self.asked.die_at and self.rank == self.asked.die_rank % self.world:
            print(f"rank {self.rank} kills itself in the middle of epoch {epoch}", flush=True)
            with open(_note(self.asked.snapshot), "w", encoding="ascii") as file:
                file.write(repr(time.time()))
            os.kill(os.getpid(), signal.SIGKILL)

    def say_training_again(self) -> None:
        if self.died_at is not None:
            print(f"training again, {time.time() - self.died_at:.2f} s after the death")
            os.unlink(_note(self.asked.snapshot))
            self.died_at = None


def _note(snapshot: str) -> str:
    return f"{snapshot}.died-at"


def _when(path: str) -> float | None:
    try:
        with open(path, encoding="ascii") as file:
            return float(file.read())
    except (OSError, ValueError):
        return None


@relight.record
def main() -> None:
    parser = argparse.ArgumentParser(description="Trains a small network that reads digits.")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--images", type=int, default=8000, help="how many images to train on")
    parser.add_argument("--batch-size", type=int, default=50, help="for each worker")
    parser.add_argument("--snapshot", default="snapshot.pt", help="the file to save to and to carry on from")
    parser.add_argument("--die-at", type=int, metavar="EPOCH", help="kill a worker in the middle of this epoch, once")
    parser.add_argument("--die-rank", type=int, default=0, metavar="RANK", help="which one (0)")
    dist.init_process_group("gloo")
    try:
        Trainer(parser.parse_args()).train()
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
