"""Training on every GPU of a machine, or on its CPUs, with snapshots: the shape most tutorials teach.

relight --standalone --nproc-per-node=gpu examples/multigpu.py 50 10
relight --standalone --nproc-per-node=2 examples/multigpu.py 50 10      without a GPU
"""

from __future__ import annotations

import argparse
import os
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, TensorDataset
from torch.utils.data.distributed import DistributedSampler

Batch = tuple[torch.Tensor, torch.Tensor]


def ddp_setup() -> torch.device:
    """Joins the process group that the launcher describes in the environment."""
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", device_id=device)
    else:
        device = torch.device("cpu")
        dist.init_process_group("gloo")
    return device


class Trainer:
    def __init__(
        self,
        model: torch.nn.Module,
        train_data: DataLoader[Any],
        optimizer: torch.optim.Optimizer,
        device: torch.device,
        save_every: int,
        snapshot_path: str,
    ) -> None:
        self.device = device
        self.rank = dist.get_rank()
        self.model = model.to(device)
        self.train_data = train_data
        self.optimizer = optimizer
        self.save_every = save_every
        self.snapshot_path = snapshot_path
        self.epochs_run = 0
        if os.path.exists(snapshot_path):
            self._load_snapshot()
        self.ddp = DDP(self.model, device_ids=[device.index] if device.type == "cuda" else None)

    def _load_snapshot(self) -> None:
        snapshot = torch.load(self.snapshot_path, map_location=self.device, weights_only=True)
        self.model.load_state_dict(snapshot["MODEL_STATE"])
        self.optimizer.load_state_dict(snapshot["OPTIMIZER_STATE"])
        self.epochs_run = snapshot["EPOCHS_RUN"]
        print(f"[{self.rank}] resuming from {self.snapshot_path}: {self.epochs_run} epochs are done")

    def _save_snapshot(self, epoch: int) -> None:
        """Under another name first: a death while it is written leaves the one before it whole."""
        snapshot = {
            "MODEL_STATE": self.model.state_dict(),
            "OPTIMIZER_STATE": self.optimizer.state_dict(),
            "EPOCHS_RUN": epoch + 1,
        }
        partial = f"{self.snapshot_path}.partial"
        torch.save(snapshot, partial)
        os.replace(partial, self.snapshot_path)
        print(f"[{self.rank}] epoch {epoch}: snapshot saved at {self.snapshot_path}")

    def _run_batch(self, source: torch.Tensor, targets: torch.Tensor) -> float:
        self.optimizer.zero_grad()
        loss = F.mse_loss(self.ddp(source), targets)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def _run_epoch(self, epoch: int) -> None:
        sampler = self.train_data.sampler
        assert isinstance(sampler, DistributedSampler)
        sampler.set_epoch(epoch)
        losses = [
            self._run_batch(source.to(self.device), targets.to(self.device)) for source, targets in self.train_data
        ]
        print(f"[{self.rank}] epoch {epoch} | steps {len(losses)} | loss {sum(losses) / len(losses):.5f}")

    def train(self, max_epochs: int) -> None:
        for epoch in range(self.epochs_run, max_epochs):
            self._run_epoch(epoch)
            if self.rank == 0 and (epoch + 1) % self.save_every == 0:
                self._save_snapshot(epoch)


def load_train_objs() -> tuple[Dataset[Batch], torch.nn.Module, torch.optim.Optimizer]:
    """Points on a plane with a little noise, and the line that has to be found."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.rand(2048, 20, generator=generator)
    weights = torch.randn(20, 1, generator=generator)
    targets = inputs @ weights + 0.01 * torch.randn(2048, 1, generator=generator)
    torch.manual_seed(1)
    model = torch.nn.Linear(20, 1)
    return TensorDataset(inputs, targets), model, torch.optim.SGD(model.parameters(), lr=0.1)


def main() -> None:
    parser = argparse.ArgumentParser(description="A simple distributed training job.")
    parser.add_argument("total_epochs", type=int, help="how many epochs to train")
    parser.add_argument("save_every", type=int, help="how often to save a snapshot, in epochs")
    parser.add_argument("--batch_size", type=int, default=32, help="for each worker (32)")
    parser.add_argument("--snapshot_path", default="snapshot.pt", help="the snapshot's file (snapshot.pt)")
    asked = parser.parse_args()

    device = ddp_setup()
    dataset, model, optimizer = load_train_objs()
    batches = DataLoader(
        dataset, batch_size=asked.batch_size, pin_memory=device.type == "cuda", sampler=DistributedSampler(dataset)
    )
    Trainer(model, batches, optimizer, device, asked.save_every, asked.snapshot_path).train(asked.total_epochs)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
