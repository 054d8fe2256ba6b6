"""Record what torchrun does: `python -m tests.drop_in.record [--all] [GROUP ...]`.

Without --all only cases whose recording is missing or belongs to an older form of the case are run.
"""

from __future__ import annotations

import sys
import time

from .cases import GROUPS
from .recording import entry, load, save, save_usual, usual
from .running import TORCHRUN, TookTooLong


def main(words: list[str]) -> int:
    if not TORCHRUN.exists():
        print("torchrun is not installed beside this python", file=sys.stderr)
        return 2
    everything = "--all" in words
    groups = [word for word in words if word != "--all"] or list(GROUPS)
    if not usual():
        save_usual(GROUPS["options"][0])
    troubles = 0
    for group in groups:
        known = load(group)
        cases = {case.name: case for case in GROUPS[group]}
        entries = {name: known[name] for name in cases if name in known}
        for name, case in cases.items():
            if not everything and name in entries and entries[name]["case"] == case.fingerprint():
                continue
            began = time.monotonic()
            try:
                entries[name] = entry(case)
            except TookTooLong as trouble:
                troubles += 1
                print(f"{group}: {name}: {trouble}", file=sys.stderr)
                continue
            print(
                f"{time.monotonic() - began:6.1f} s  {group}: {name}  exit {entries[name]['seen']['exit']}", flush=True
            )
            save(group, entries)
        save(group, entries)
    return 1 if troubles else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
