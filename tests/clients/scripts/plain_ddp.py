"""A plain DDP script in the shape of PyTorch's own tutorial. Knows nothing of any launcher."""

# As users write it, without types.
# mypy: ignore-errors

import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.optim as optim
from torch.nn.parallel import DistributedDataParallel as DDP


class ToyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.net1 = nn.Linear(10, 10)
        self.relu = nn.ReLU()
        self.net2 = nn.Linear(10, 5)

    def forward(self, x):
        return self.net2(self.relu(self.net1(x)))


def demo_basic():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    print(f"rank {rank} of {world}, local rank {os.environ['LOCAL_RANK']}, elastic {dist.is_torchelastic_launched()}")

    torch.manual_seed(rank)  # ranks begin with different weights; DDP gives them rank 0's
    ddp_model = DDP(ToyModel())
    loss_fn = nn.MSELoss()
    optimizer = optim.SGD(ddp_model.parameters(), lr=0.05)
    inputs, labels = torch.randn(20, 10), torch.randn(20, 5)
    for step in range(30):
        optimizer.zero_grad()
        loss = loss_fn(ddp_model(inputs), labels)
        loss.backward()
        optimizer.step()
        if step in (0, 29):
            print(f"step {step} loss {loss.item():.5f}")

    weight = ddp_model.module.net1.weight.detach()
    everyones = [torch.empty_like(weight) for _ in range(world)]
    dist.all_gather(everyones, weight)
    print(f"same weights everywhere: {all(torch.equal(weight, other) for other in everyones)}")
    dist.destroy_process_group()


if __name__ == "__main__":
    demo_basic()
