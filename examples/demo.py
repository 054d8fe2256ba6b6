"""The main job, to be watched: four workers train, one is killed in the middle, the job carries on.

    make demo

Runs relight with examples/train.py, puts the time before each line it prints, and sums up what the death cost.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
WORDS = ("--standalone", "--nproc-per-node=4", "--max-restarts=3")
SCRIPT = ("--die-at", "3", "--die-rank", "2")
MOMENTS = (  # what is said at each, and what the time since the moment before it was spent on
    (r"^rank 2 kills itself", ""),
    (r"^relight: .* starting again", "relight has noticed, and ended the other three"),
    (r"^carrying on from", "four new workers have imported torch and loaded the snapshot"),
    (r"^training again", "they have met, and trained a first batch"),
)


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="relight_demo_") as folder:
        # What the three survivors have to say about the connection they lost is kept out of the picture.
        quiet = ("--redirects=2", f"--log-dir={folder}/logs")
        script = (os.path.join(HERE, "train.py"), *SCRIPT, "--snapshot", os.path.join(folder, "snapshot.pt"))
        shown = " ".join((*WORDS, *quiet, os.path.relpath(script[0]), *script[1:]))
        print(f"$ relight {shown}", flush=True)
        began = time.monotonic()
        job = subprocess.Popen(
            [sys.executable, "-m", "relight", *WORDS, *quiet, *script],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        moments = watch(job, began)
        code = job.wait()
        took = time.monotonic() - began
    if code == 0 and len(moments) == len(MOMENTS):
        sum_up(moments, took)
        return 0
    print(f"demo: this did not go as it should (exit code {code})", file=sys.stderr)
    return code or 1


def watch(job: subprocess.Popen[str], began: float) -> list[float]:
    """Passes the job's lines on, with the time. Returns when each of MOMENTS came."""
    moments: list[float] = []
    assert job.stdout is not None
    for line in job.stdout:
        now = time.monotonic() - began
        print(f"{now:6.2f} s  {line}", end="", flush=True)
        if len(moments) < len(MOMENTS) and re.search(MOMENTS[len(moments)][0], line):
            moments.append(now)
    return moments


def sum_up(moments: list[float], took: float) -> None:
    print("\nafter the death of rank 2")
    for (_, what), before, at in zip(MOMENTS[1:], moments, moments[1:], strict=False):
        print(f"{at - before:6.2f} s  {what}")
    print(f"{moments[-1] - moments[0]:6.2f} s  from the death to training again, of {took:.1f} s in all")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:  # relight has had its own, and has ended the workers
        sys.exit(130)
