"""Writes every transcript anew: `python -m tests.transcripts.rewrite`."""

from __future__ import annotations

import os

from .story import replay

FOLDER = os.path.dirname(os.path.abspath(__file__))


def names() -> list[str]:
    return sorted(name for name in os.listdir(FOLDER) if name.endswith(".txt"))


def read(name: str) -> str:
    with open(os.path.join(FOLDER, name), encoding="utf-8") as file:
        return file.read()


def rewrite() -> None:
    for name in names():
        text = replay(read(name))
        with open(os.path.join(FOLDER, name), "w", encoding="utf-8") as file:
            file.write(text)


if __name__ == "__main__":
    rewrite()
