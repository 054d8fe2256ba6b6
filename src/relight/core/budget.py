"""How many failures in how long. Two limits, both must allow: restarts in all, and restarts within a period."""

from __future__ import annotations

import collections

from relight.core.values import value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from relight.core.launch import Budget


@value
class Allowed:
    """Another try, and how many that makes."""

    used: int


@value
class Refused:
    """No other try, and why."""

    why: str


class Spending:
    """What has been spent of a budget."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._moments: collections.deque[float] = collections.deque()
        self.used = 0

    def ask(self, now: float) -> Allowed | Refused:
        """Spends one restart if there is one left."""
        budget = self._budget
        if self.used >= budget.restarts:
            return Refused(f"{self.used} of {budget.restarts} restarts used")
        if budget.intensity is not None:
            while self._moments and self._moments[0] <= now - budget.period_s:
                self._moments.popleft()
            if len(self._moments) >= budget.intensity:
                many, are = ("restart", "is") if budget.intensity == 1 else ("restarts", "are")
                return Refused(f"{budget.intensity} {many} within {budget.period_s:g} s {are} the limit")
            self._moments.append(now)
        self.used += 1
        return Allowed(self.used)
