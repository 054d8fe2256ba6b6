"""torchdata's StatefulDataLoader: after a restart every rank goes on in the middle of the epoch where it was."""

# As users write it, without types.
# mypy: ignore-errors

import os
import sys

import torch
import torch.distributed as dist
from torchdata.stateful_dataloader import StatefulDataLoader
from torchdata.stateful_dataloader.sampler import StatefulDistributedSampler

BATCHES, SAVED_AT = 12, 5


def main():
    folder, die = sys.argv[1], sys.argv[2] == "die"
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    numbers = list(range(BATCHES * 4 * dist.get_world_size()))
    sampler = StatefulDistributedSampler(numbers, shuffle=True, seed=7)
    loader = StatefulDataLoader(numbers, batch_size=4, sampler=sampler, num_workers=2)
    path = os.path.join(folder, f"loader.{rank}.pt")
    done = 0
    if os.path.exists(path):
        state = torch.load(path, weights_only=False)
        loader.load_state_dict(state["loader"])
        done = state["done"]
        print(f"carrying on after batch {done}")
    for number, batch in enumerate(loader, done + 1):
        total = batch.sum()
        dist.all_reduce(total)
        print(f"batch {number} holds {batch.tolist()}")
        if number == SAVED_AT:
            torch.save({"loader": loader.state_dict(), "done": number}, f"{path}.partial")
            os.replace(f"{path}.partial", path)
            dist.barrier()
        if number == SAVED_AT + 3 and die and rank == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            os.kill(os.getpid(), 9)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
