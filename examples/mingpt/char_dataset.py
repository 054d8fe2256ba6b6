"""Characters of a text as numbers: a sample is a piece of it, its target the same piece one character later."""

from __future__ import annotations

import torch
from torch.utils.data import Dataset


def builtin_text() -> str:
    """Text that every Python brings along: its own language reference, as `help()` shows it."""
    from pydoc_data.topics import topics

    return "\n".join(topics[name] for name in sorted(topics))


class CharDataset(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    def __init__(self, text: str, block_size: int) -> None:
        self.letters = sorted(set(text))
        number_of = {letter: number for number, letter in enumerate(self.letters)}
        self.encoded = torch.tensor([number_of[letter] for letter in text])
        self.block_size = block_size

    def __len__(self) -> int:
        return (len(self.encoded) - 1) // self.block_size

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        start = index * self.block_size
        piece = self.encoded[start : start + self.block_size + 1]
        return piece[:-1], piece[1:]

    def decode(self, numbers: torch.Tensor) -> str:
        return "".join(self.letters[number] for number in numbers.tolist())
