"""Job and Node with one guard taken out each. A guard that no seed misses is not needed, or not tested."""

from __future__ import annotations

import types

from relight.core import job, node
from relight.core.job import Job
from relight.core.node import Node
from relight.core.values import value


@value
class Mutant:
    """One line of the source, and what stands there when its guard is gone."""

    guard: str
    module: types.ModuleType
    line: str
    instead: str

    def classes(self) -> tuple[type[Job], type[Node]]:
        """The two machines, one of them without its guard. The values they exchange are the real ones."""
        assert self.module.__file__ is not None
        with open(self.module.__file__, encoding="utf-8") as file:
            source = file.read()
        if source.count(self.line) != 1:
            raise AssertionError(f"{self.guard}: {self.line!r} is there {source.count(self.line)} times, not once")
        made = types.ModuleType(self.module.__name__)
        changed = source.replace(self.line, self.instead)
        exec(compile(changed, f"<mutant of {self.module.__name__}>", "exec"), made.__dict__)
        real = {name: entry for name, entry in vars(self.module).items() if isinstance(entry, type)}
        made.__dict__.update({name: entry for name, entry in real.items() if name not in ("Job", "Node")})
        return vars(made).get("Job", Job), vars(made).get("Node", Node)


MUTANTS = (
    Mutant(
        "nobody has seen what has just been decided",
        job,
        "        self._ready.clear()  # nobody has seen this one yet\n",
        "",
    ),
    Mutant(
        "nobody begins while someone present is not ready",
        job,
        "if len(self._ready) < max(len(self._present), self._rules.min_nodes):",
        "if len(self._ready) < self._rules.min_nodes:",
    ),
    Mutant(
        "nobody is given up before its lease",
        job,
        "        self._rules = rules\n",
        "        self._rules = replace(rules, lease_s=rules.lease_s * 0.4)\n",
    ),
    Mutant(
        "silence ends membership",
        job,
        "while self.decision.phase is not Phase.ENDED and now >= self._silent_at():",
        "while False:",
    ),
    Mutant(
        "an overtaken report says nothing",
        job,
        "return report.sent_at < newest or (known is not None",
        "return (known is not None",
    ),
    Mutant(
        "an earlier life says nothing",
        job,
        "or (known is not None and number < self._heard[known.report.life][0])",
        "",
    ),
    Mutant(
        "a new life is another node",
        job,
        "if known is None or not known.present or known.report.life != report.life:",
        "if known is None or not known.present:",
    ),
    Mutant(
        "the dead agent's workers are waited for",
        job,
        "self._clear_at = now + ORPHANS_S",
        "pass",
    ),
    Mutant(
        "a newcomer has seen the newest view",
        job,
        "return report.seen == self.decision.serial and report.standing not in",
        "return report.standing not in",
    ),
    Mutant(
        "ready in mid-round names the view seen",
        job,
        "case Standing.READY if report.seen == self.decision.serial:",
        "case Standing.READY:",
    ),
    Mutant(
        "a node that ended its workers by itself is noticed",
        job,
        '                    self._again(now, f"{report.node} could not hear the coordinator and ended its workers")',
        "                    pass",
    ),
    Mutant(
        "nobody who has finished works again for a newcomer",
        job,
        "len(self._running.seats) < self._rules.max_nodes and not self._finished",
        "len(self._running.seats) < self._rules.max_nodes",
    ),
    Mutant(
        "whatever breaks a round off counts for the rate",
        job,
        "(self._rate, self._restarts) if cause else (self._rate,):",
        "(self._rate, self._restarts) if cause else ():",
    ),
    Mutant(
        "who has finished is not waited for",
        job,
        "return node in self._parts and node not in self._finished",
        "return node in self._parts",
    ),
    Mutant(
        "who has finished is forgotten when a round begins",
        job,
        "            self._finished.clear()\n",
        "",
    ),
    Mutant(
        "too few nodes are not waited for for ever",
        job,
        "elif now >= self._gives_up_at():",
        "elif False:",
    ),
    Mutant(
        "a job that ended stays ended",
        job,
        "if self.decision.phase is Phase.ENDED or self._overtaken(report):",
        "if self._overtaken(report):",
    ),
    Mutant(
        "at most so many nodes",
        job,
        "self.decision.roster, rules.max_nodes)",
        "self.decision.roster, 99)",
    ),
    Mutant(
        "a node fences itself",
        node,
        "if now >= self._fence_at():",
        "if False:",
    ),
    Mutant(
        "the fence kills who does not obey",
        node,
        "grace = max(0.0, self._kill_at() - now)",
        "grace = 30.0",
    ),
    Mutant(
        "ending workers are killed in time for the lease",
        node,
        "                moments.append(self._kill_at())",
        "                pass",
    ),
    Mutant(
        "the lease counts from when the answered report was sent",
        node,
        "self._heard_at = max(self._heard_at, sent_at)",
        "self._heard_at = now",
    ),
    Mutant(
        "nobody starts on an old lease",
        node,
        "if ready and view.part is not None and now < self._fence_at():",
        "if ready and view.part is not None:",
    ),
    Mutant(
        "a seat is for one life",
        job,
        "part=part if part is not None and part.seat.life == applicant.life else None,",
        "part=part,",
    ),
    Mutant(
        "a view is followed once",
        node,
        "if self._view is not None and view.serial <= self._view.serial:",
        "if self._view is not None and view.serial < self._view.serial:",
    ),
    Mutant(
        "an older view is not followed",
        node,
        "if self._view is not None and view.serial <= self._view.serial:",
        "if self._view is not None and view.serial == self._view.serial:",
    ),
    Mutant(
        "ready only when nothing is alive",
        node,
        "return Standing.READY if quiet else Standing.WORKING",
        "return Standing.READY",
    ),
    Mutant(
        "who was asked to end has not finished",
        node,
        "all(end.ok and not end.asked for end in self.ends.values())",
        "all(end.ok for end in self.ends.values())",
    ),
    Mutant(
        "done is about this round",
        node,
        "return view is not None and view.phase is Phase.RUNNING and view.round == self._round",
        "return True",
    ),
    Mutant(
        "nobody leaves workers behind",
        node,
        "if self._left or not quiet or not (ended or self.stop_signals or stuck):",
        "if self._left or not (ended or self.stop_signals or stuck):",
    ),
)
