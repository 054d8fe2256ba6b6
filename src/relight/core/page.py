"""The failure page: cause first, counts instead of repetition, a path for each claim.

The same story is told three times: for people, for programs (`report.json`), and in the block that tools which
grep torchrun's output look for. Nothing is known here that the story does not hold. What is for a terminal holds
nothing that would steer it; programs get every character as it was.
"""

from __future__ import annotations

import posixpath

from relight.core.failure import death_of, earliest, shorten, summary_of
from relight.core.names import signal_name, visible
from relight.core.values import value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from relight.core.failure import Cause, WorkerEnd

TRACEBACK_HELP = "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"


@value
class Story:
    """A failed job, as one node knows it."""

    job: str
    name: str  # what ran: the script, the module or the program
    host: str
    round: int
    restarts: int
    most_restarts: int
    reason: str
    cause: Cause | None  # what the job's end was decided on
    ends: tuple[WorkerEnd, ...]  # this node's workers in the last round, by local rank
    evidence: str = ""  # what the kernel has to say
    report: str = ""  # where report.json is

    @property
    def first_cause(self) -> Cause | None:
        """What to show as the cause: the decided one, or a failure of this node that came before it."""
        return earliest(self.cause, self.host, self.ends)


def for_people(story: Story) -> str:
    """The page on the terminal."""
    used = (
        f"{story.restarts} of {story.most_restarts} restarts used" if story.most_restarts else "no restarts asked for"
    )
    when = f"in round {story.round}" if story.round >= 0 else "before its first round"
    lines = [f"relight: {_title(story)} failed {when}, {used}"]
    cause = story.first_cause
    end = cause.end if cause else None
    if cause is None or end is None:
        lines.append(f"  first cause  {cause.sentence if cause else story.reason}")
    else:
        lines.append(f"  first cause  {_who(end)} on {cause.node}{_lead(story, end)}")
        after_step = "" if end.step is None else f" after step {end.step}"
        lines.append(f"  how          {death_of(end)}{after_step}{_because(story, end)}")
        lines += _said(end, "" if cause.node == story.host else cause.node)
    if after := _afterwards(story, end):
        lines.append(f"  afterwards   {after}{_on_this_node(story, cause)}")
    why = story.reason.removeprefix(cause.sentence).lstrip("; ") if cause else ""
    if why and why != used and story.most_restarts:
        lines.append(f"  decision     {why}")
    if story.report:
        lines.append(f"  report       {story.report}")
    return visible("\n".join(lines))


def _on_this_node(story: Story, cause: Cause | None) -> str:
    """What is counted is this node's; that is worth a word where the cause was another node's."""
    return "" if cause is None or cause.node == story.host else f" (on {story.host})"


def _title(story: Story) -> str:
    """The job by the name its user gave it; one that was made up tells nobody anything."""
    made_up = story.job in ("", "none") or (len(story.job) == 36 and story.job.count("-") == 4)
    return posixpath.basename(story.name) if made_up else f'job "{story.job}"'


def _who(end: WorkerEnd) -> str:
    return f"rank {end.rank} (local rank {end.local_rank}, pid {end.pid})"


def _lead(story: Story, first: WorkerEnd) -> str:
    """How long before any other failure the first one came."""
    others = [end.failed_at for end in story.ends if end.own_failure and end.rank != first.rank]
    if not others:
        return ""
    lead = min(others) - first.failed_at
    return f", {lead:.2f} s before any other" if lead >= 0.005 else f", {lead * 1000:.1f} ms before any other"


def _because(story: Story, end: WorkerEnd) -> str:
    return f"; {story.evidence}" if story.evidence and end.status.signal == 9 else ""


def _said(end: WorkerEnd, elsewhere: str) -> list[str]:
    """Its own words, and where they are: here, or on the node that is named."""
    summary = summary_of(end)
    where = end.error_file if end.words and end.words.message.strip() else end.stderr_file
    path = [f"               {where}{f' on {elsewhere}' if elsewhere else ''}"] if where else []
    if summary:
        return [f"  it said      {summary}", *path]
    if end.tail:
        return ["  its last words on stderr", *(f"               {shorten(line)}" for line in end.tail[-8:]), *path]
    if end.stderr_file:
        return [f"  it said      nothing that is in its file ({end.stderr_file})"]
    output = f"its output on {elsewhere}" if elsewhere else "its output above"
    return [f"  it said      see {output}; --tee 3 (or -r 3) would keep it in a file and show the end here"]


def _afterwards(story: Story, first: WorkerEnd | None) -> str:
    """What became of the others, counted."""
    groups: dict[str, list[int]] = {}
    ended_by_us = finished = 0
    for end in story.ends:
        if first is not None and end.rank == first.rank:
            continue
        if end.ok and not end.asked:
            finished += 1
        elif end.own_failure:
            # One that had raised and was then ended by us while it unloaded: the signal is not its story.
            how = "failed as well" if end.asked and end.status.signal is not None else str(end.status)
            groups.setdefault(how, []).append(end.rank)
        else:
            ended_by_us += 1
    parts = [f"{_workers(len(ranks))} {how} (rank{_s(ranks)} {_ranks(ranks)})" for how, ranks in groups.items()]
    if ended_by_us:
        parts.append(f"relight ended {ended_by_us} other{'' if ended_by_us == 1 else 's'}")
    if finished:
        parts.append(f"{_workers(finished)} had finished")
    return "; ".join(parts)


def _workers(count: int) -> str:
    return f"{count} worker{'' if count == 1 else 's'}"


def _s(ranks: list[int]) -> str:
    return "" if len(ranks) == 1 else "s"


def _ranks(ranks: list[int], most: int = 12) -> str:
    listed = ", ".join(map(str, ranks[:most]))
    return listed if len(ranks) <= most else f"{listed} and {len(ranks) - most} more"


def for_programs(story: Story) -> dict[str, Any]:
    """What report.json holds."""
    cause = story.first_cause
    return {
        "relight_report": 1,
        "job": story.job,
        "name": story.name,
        "host": story.host,
        "round": story.round,
        "restarts": story.restarts,
        "max_restarts": story.most_restarts,
        "reason": story.reason,
        "evidence": story.evidence,
        "first_cause": None
        if cause is None
        else {
            "node": cause.node,
            "sentence": cause.sentence,
            "worker": _worker(cause.end) if cause.end else None,
        },
        "workers": [_worker(end) for end in story.ends],
    }


def _worker(end: WorkerEnd) -> dict[str, Any]:
    return {
        "rank": end.rank,
        "local_rank": end.local_rank,
        "pid": end.pid,
        "exit_code": end.status.number,
        "signal": None if end.status.signal is None else signal_name(end.status.signal),
        "outcome": "finished" if end.ok else "failed" if end.own_failure else "ended by relight",
        "step": end.step,
        "crashed_after_its_script": end.forgiven,
        "failed_at": end.failed_at,
        "ended_at": end.at,
        "message": end.words.message if end.words else None,
        "traceback": end.words.callstack if end.words else None,
        "error_file": end.error_file if end.words else None,
        "stderr_file": end.stderr_file or None,
        "stderr_tail": list(end.tail),
    }


def for_grep(story: Story, clock: dict[int, str]) -> str:
    """The block that torchrun prints, for the tools that look for it. `clock` tells each rank's time as text."""
    cause = story.first_cause
    root = cause.end if cause else None
    if cause is None or root is None:
        return ""
    # torchrun numbers those that failed by themselves first, then those it ended.
    failed = [end for end in sorted(story.ends, key=lambda one: (one.asked, one.local_rank)) if not end.ok]
    blocks = {end.rank: _block(index, end, story.host, clock.get(end.rank, "")) for index, end in enumerate(failed)}
    first = blocks.pop(root.rank, "") or _block(0, root, cause.node, clock.get(root.rank, ""))
    title = visible(f"{story.name} FAILED")
    width = min(60, max(len(line) for part in (title, first, *blocks.values()) for line in part.split("\n")))
    thick, thin = "=" * width, "-" * width
    others = "\n".join(blocks.values()) or "  <NO_OTHER_FAILURES>"
    return "\n".join(
        [thick, title, thin, "Failures:", others, thin, "Root Cause (first observed failure):", first, thick]
    )


def _block(index: int, end: WorkerEnd, host: str, time: str) -> str:
    signalled = end.status.signal
    own_words = (end.words.callstack or end.words.message) if end.words else ""
    if own_words:
        traceback = own_words.replace("\n", "\n  ")
    elif signalled is not None:
        traceback = f"Signal {signalled} ({signal_name(signalled)}) received by PID {end.pid}"
    elif summary_of(end):
        traceback = "\n  ".join(end.tail)
    else:
        traceback = TRACEBACK_HELP
    how = f"{end.status.number} (pid: {end.pid}) " + (f" ({signal_name(signalled)})" if signalled is not None else "")
    return "\n".join(
        [
            f"[{index}]:",
            f"  time      : {time}",
            f"  host      : {host}",
            f"  rank      : {end.rank} (local_rank: {end.local_rank})",
            f"  exitcode  : {how}",
            f"  error_file: {end.error_file if end.words else '<N/A>'}",
            f"  traceback : {visible(traceback)}",
        ]
    )


def as_json(story: Story) -> bytes:
    import json

    return json.dumps(for_programs(story), indent=1).encode() + b"\n"
