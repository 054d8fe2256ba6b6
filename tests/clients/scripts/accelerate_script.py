"""A training loop written for accelerate, which is told nothing about how many processes there are."""

# As users write it, without types.
# mypy: ignore-errors

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset


def main():
    accelerator = Accelerator(cpu=True)
    set_seed(0)
    print(f"process {accelerator.process_index} of {accelerator.num_processes}, {accelerator.distributed_type.value}")
    inputs = torch.randn(256, 8)
    targets = inputs @ torch.arange(8.0).unsqueeze(1)
    loader = DataLoader(TensorDataset(inputs, targets), batch_size=16, shuffle=True)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    print(f"batches {len(loader)}")
    for epoch in range(10):
        for batch, wanted in loader:
            loss = torch.nn.functional.mse_loss(model(batch), wanted)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        mean = accelerator.gather(loss.detach().reshape(1)).mean().item()
        accelerator.print(f"epoch {epoch} loss {mean:.5f}")
    ranks = accelerator.gather(torch.tensor([accelerator.process_index])).tolist()
    accelerator.print(f"gathered {ranks}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
