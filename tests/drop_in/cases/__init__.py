"""The catalogue: every case of the drop-in proof, by group."""

from __future__ import annotations

from ..case import Case
from . import errors, inherited, launch, logs, mistakes, options, pet, restarts, signals, torch, worlds

GROUPS: dict[str, list[Case]] = {
    "options": options.CASES,
    "pet": pet.CASES,
    "worlds": worlds.CASES,
    "inherited": inherited.CASES,
    "logs": logs.CASES,
    "errors": errors.CASES,
    "restarts": restarts.CASES,
    "signals": signals.CASES,
    "launch": launch.CASES,
    "mistakes": mistakes.CASES,
    "torch": torch.CASES,
}
