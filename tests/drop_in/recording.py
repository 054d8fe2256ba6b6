"""torchrun's observations on disk: one file per group, each entry with its case's fingerprint.

Hundreds of workers live in almost the same world. `usual.json` is the world of the plainest one; of every other
worker only what differs from it is written down, so that a recording can be read.
"""

from __future__ import annotations

import json
import os
from functools import cache
from typing import Any

from .case import Case
from .observing import flat, observe
from .running import HERE, TORCHRUN, Launcher, run

FOLDER = f"{HERE}/recorded"
USUAL = f"{FOLDER}/usual.json"


def seen(case: Case, launcher: Launcher) -> dict[str, Any]:
    """Run the case and say what was seen, as JSON would hand it back."""
    with run(case, launcher) as happened:
        return dict(json.loads(json.dumps(observe(case, happened))))


def entry(case: Case) -> dict[str, Any]:
    """A fresh recording of the case under torchrun."""
    return {"case": case.fingerprint(), "seen": seen(case, TORCHRUN)}


def load(group: str) -> dict[str, Any]:
    """The entries of a group, worlds complete again (as leaves by their path)."""
    entries = _read(f"{FOLDER}/{group}.json")
    for each in entries.values():
        for part in ("world", "inner"):
            worlds = each["seen"][part]
            each["seen"][part] = {key: whole(short, usual()) for key, short in worlds.items()}
    return entries


def save(group: str, entries: dict[str, Any]) -> None:
    """Write the entries; what `load` gave and what `entry` made may be mixed."""
    short = {}
    for name, each in entries.items():
        told = dict(each["seen"])
        for part in ("world", "inner"):
            told[part] = {key: unusual(flat(world), usual()) for key, world in told[part].items()}
        short[name] = {"case": each["case"], "seen": told}
    _write(f"{FOLDER}/{group}.json", short)


@cache
def usual() -> dict[str, Any]:
    """The leaves of the usual worker's world."""
    return _read(USUAL)


def save_usual(case: Case) -> None:
    (world,) = seen(case, TORCHRUN)["world"].values()
    _write(USUAL, flat(world))
    usual.cache_clear()


def unusual(world: dict[str, Any], usual: dict[str, Any]) -> dict[str, Any]:
    """What is to be said of a world beyond the usual; `-` names what is missing."""
    said = {path: leaf for path, leaf in world.items() if path not in usual or usual[path] != leaf}
    if gone := sorted(usual.keys() - world.keys()):
        said["-"] = gone
    return said


def whole(said: dict[str, Any], usual: dict[str, Any]) -> dict[str, Any]:
    """The world of which `unusual` said this."""
    kept = {path: leaf for path, leaf in usual.items() if path not in said.get("-", [])}
    return {**kept, **{path: leaf for path, leaf in said.items() if path != "-"}}


def _read(path: str) -> dict[str, Any]:
    if not os.path.exists(path):
        return {}
    with open(path) as file:
        return dict(json.load(file))


def _write(path: str, content: dict[str, Any]) -> None:
    os.makedirs(FOLDER, exist_ok=True)
    with open(path, "w") as file:
        json.dump(content, file, indent=1, sort_keys=True, ensure_ascii=False)
        file.write("\n")
