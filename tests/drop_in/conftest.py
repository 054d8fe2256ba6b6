"""Prints what the drop-in proof consists of at the end of a run that touched it."""

from __future__ import annotations

import pytest

from .cases import GROUPS
from .everywhere import EVERYWHERE


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    ran = [
        report
        for kind in ("passed", "failed")
        for report in terminalreporter.stats.get(kind, [])
        if "drop_in/test_drop_in.py::test_same_world" in report.nodeid
    ]
    if not ran:
        return
    terminalreporter.write_line("drop-in proof       cases  with differences of their own  ran now")
    total = [0, 0, 0]
    for group, cases in GROUPS.items():
        row = [
            len(cases),
            sum(bool(case.differs) for case in cases),
            sum(f"[{group}: " in report.nodeid for report in ran),
        ]
        total = [one + two for one, two in zip(total, row, strict=True)]
        terminalreporter.write_line(f"  {group:<16}{row[0]:>7}{row[1]:>31}{row[2]:>9}")
    terminalreporter.write_line(f"  {'all':<16}{total[0]:>7}{total[1]:>31}{total[2]:>9}")
    keys = {difference.key for difference in EVERYWHERE.values()}
    terminalreporter.write_line(f"  declared for all cases: {', '.join(sorted(keys))}")
