"""A Lightning module and Trainer as its manual shows them; carries on from its newest checkpoint."""

# As users write it, without types.
# mypy: ignore-errors

import os
import sys

import lightning as L
import torch
from torch.utils.data import DataLoader, TensorDataset


class Line(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch, number):
        inputs, targets = batch
        loss = torch.nn.functional.mse_loss(self.layer(inputs), targets)
        self.log("loss", loss, on_step=False, on_epoch=True, sync_dist=True)
        return loss

    def on_train_epoch_end(self):
        print(f"epoch {self.current_epoch} loss {self.trainer.callback_metrics['loss'].item():.5f}")

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.1)


def main():
    folder, epochs = sys.argv[1], int(sys.argv[2])
    L.seed_everything(0)
    inputs = torch.randn(256, 8)
    targets = inputs @ torch.arange(8.0).unsqueeze(1)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_epochs=epochs,
        default_root_dir=folder,
        callbacks=[L.pytorch.callbacks.ModelCheckpoint(dirpath=folder, save_last=True)],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    environment = trainer.strategy.cluster_environment
    print(f"{type(environment).__name__} rank {trainer.global_rank} of {trainer.world_size}")
    last = os.path.join(folder, "last.ckpt")
    trainer.fit(
        Line(),
        DataLoader(TensorDataset(inputs, targets), batch_size=16),
        ckpt_path=last if os.path.exists(last) else None,
    )
    print(f"finished after epoch {trainer.current_epoch}")


if __name__ == "__main__":
    main()
