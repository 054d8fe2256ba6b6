"""`python -m relight.launch`: the form of `torch.distributed.launch`, for scripts written for it.

The same words as `relight`, and --use-env. Without it every worker is given --local-rank=N right after the
script's name, as scripts of that time expect.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one launcher; returns its exit code."""
    from relight.cli.main import main as launch

    return launch(argv, legacy=True)


if __name__ == "__main__":
    sys.exit(main())
