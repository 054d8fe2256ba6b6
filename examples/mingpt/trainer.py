"""The trainer: epochs of batches on this worker's share of the data, a snapshot now and then."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from char_dataset import CharDataset
from model import GPT
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


@dataclass
class TrainerConfig:
    max_epochs: int
    batch_size: int
    snapshot_path: str
    save_every: int = 1
    learning_rate: float = 3e-3
    grad_norm_clip: float = 1.0


class Trainer:
    def __init__(self, config: TrainerConfig, model: GPT, data: CharDataset, device: torch.device) -> None:
        self.config = config
        self.device = device
        self.rank = int(os.environ["RANK"])
        self.model = model.to(device)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=config.learning_rate)
        self.sampler: DistributedSampler[Any] = DistributedSampler(data)
        self.loader = DataLoader(data, batch_size=config.batch_size, sampler=self.sampler)
        self.epochs_run = 0
        self._load_snapshot()
        self.ddp = DDP(self.model, device_ids=[device.index] if device.type == "cuda" else None)

    def _load_snapshot(self) -> None:
        try:
            snapshot = torch.load(self.config.snapshot_path, map_location=self.device, weights_only=True)
        except FileNotFoundError:
            print(f"[rank {self.rank}] no snapshot: training from the beginning")
            return
        self.model.load_state_dict(snapshot["model_state"])
        self.optimizer.load_state_dict(snapshot["optimizer_state"])
        self.epochs_run = snapshot["finished_epoch"] + 1
        print(f"[rank {self.rank}] resuming from a snapshot: epoch {self.epochs_run} is next")

    def _save_snapshot(self, epoch: int) -> None:
        snapshot = {
            "model_state": self.model.state_dict(),
            "optimizer_state": self.optimizer.state_dict(),
            "finished_epoch": epoch,
        }
        partial = f"{self.config.snapshot_path}.partial"
        torch.save(snapshot, partial)
        os.replace(partial, self.config.snapshot_path)
        print(f"[rank {self.rank}] snapshot saved after epoch {epoch}")

    def _run_batch(self, source: torch.Tensor, targets: torch.Tensor) -> float:
        _, loss = self.ddp(source.to(self.device), targets.to(self.device))
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.grad_norm_clip)
        self.optimizer.step()
        return loss.item()

    def _run_epoch(self, epoch: int) -> None:
        self.sampler.set_epoch(epoch)
        self.ddp.train()
        losses = []
        for number, (source, targets) in enumerate(self.loader):
            losses.append(self._run_batch(source, targets))
            if number % 50 == 0:
                print(f"[rank {self.rank}] epoch {epoch} | batch {number} | loss {losses[-1]:.4f}")
        print(f"[rank {self.rank}] epoch {epoch} done | mean loss {sum(losses) / len(losses):.4f}")

    def train(self) -> None:
        for epoch in range(self.epochs_run, self.config.max_epochs):
            self._run_epoch(epoch)
            if self.rank == 0 and (epoch + 1) % self.config.save_every == 0:
                self._save_snapshot(epoch)
            dist.barrier()  # nobody begins an epoch whose beginning might not be on disk
