"""Trains a small GPT on characters, then lets it write a few lines.

relight --standalone --nproc-per-node=gpu --max-restarts=3 examples/mingpt/main.py
relight --standalone --nproc-per-node=2 --max-restarts=3 examples/mingpt/main.py      without a GPU
"""

from __future__ import annotations

import argparse
import os

import torch
import torch.distributed as dist
from char_dataset import CharDataset, builtin_text
from model import GPT, GPTConfig
from trainer import Trainer, TrainerConfig


def ddp_setup() -> torch.device:
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", device_id=device)
    else:
        device = torch.device("cpu")
        dist.init_process_group("gloo")
    return device


def text_of(path: str, letters: int) -> str:
    if not path:
        return builtin_text()[:letters]
    with open(path, encoding="utf-8") as file:
        return file.read(letters)


def main() -> None:
    parser = argparse.ArgumentParser(description="Trains a small GPT on the characters of a text.")
    parser.add_argument("--text", default="", help="a text file; without it, Python's own language reference")
    parser.add_argument("--letters", type=int, default=200_000, help="how much of it to read")
    parser.add_argument("--max-epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--block-size", type=int, default=64)
    parser.add_argument("--save-every", type=int, default=1)
    parser.add_argument("--snapshot-path", default="gpt_snapshot.pt")
    asked = parser.parse_args()

    torch.manual_seed(0)
    device = ddp_setup()
    data = CharDataset(text_of(asked.text, asked.letters), asked.block_size)
    model = GPT(GPTConfig(vocab_size=len(data.letters), block_size=asked.block_size))
    config = TrainerConfig(asked.max_epochs, asked.batch_size, asked.snapshot_path, asked.save_every)
    Trainer(config, model, data, device).train()
    if dist.get_rank() == 0:
        model.eval()
        begun = torch.zeros(1, 1, dtype=torch.long, device=device)
        print(data.decode(model.generate(begun, 200)[0, 1:]))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
