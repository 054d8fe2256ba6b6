"""The failure page for people, for programs, and for the tools that look for torchrun's block."""

from __future__ import annotations

import json
import socket
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relight.core.failure import Cause, Words, WorkerEnd, cause_of, write_words
from relight.core.names import ExitStatus
from relight.core.page import Story, as_json, for_grep, for_people, for_programs
from relight.core.values import replace

T = 1_790_000_000.0


def end(rank: int, code: int = 1, at: float = T, **more: Any) -> WorkerEnd:
    return WorkerEnd(rank, rank, 100 + rank, ExitStatus(code), at, **more)


def story(*ends: WorkerEnd, cause: Cause | None = None, first: int = 0, **more: Any) -> Story:
    if cause is None and ends:
        cause = cause_of("n1", ends[first])
    facts: dict[str, Any] = {
        "job": "llama", "name": "train.py", "host": "n1", "round": 3, "restarts": 2, "most_restarts": 2,
        "reason": f"{cause.sentence}; 2 of 2 restarts used" if cause else "the job ended",
    }  # fmt: skip
    return Story(cause=cause, ends=ends, **{**facts, **more})


BOOM = Words("ValueError: boom\nsecond line", "Traceback (most recent call last):\nValueError: boom\nsecond line\n", T)
ERROR_FILE, STDERR = "logs/attempt_3/0/error.json", "logs/attempt_3/0/stderr.log"

PAGES: list[tuple[Story, str]] = [
    (
        story(
            end(0, -9, T),
            end(1, 1, T + 0.41),
            end(2, 1, T + 0.5),
            end(3, -6, T + 0.6),
            end(4, -15, T + 1, asked=True),
            end(5, -9, T + 1, asked=True),
            end(6, 0),
            evidence="the kernel counted 1 out-of-memory kill in this cgroup",
            report="logs/attempt_3/report.json",
        ),
        """\
relight: job "llama" failed in round 3, 2 of 2 restarts used
  first cause  rank 0 (local rank 0, pid 100) on n1, 0.41 s before any other
  how          killed by SIGKILL; the kernel counted 1 out-of-memory kill in this cgroup
  it said      see its output above; --tee 3 (or -r 3) would keep it in a file and show the end here
  afterwards   2 workers exited with 1 (ranks 1, 2); 1 worker was killed by SIGABRT (rank 3); relight ended 2 others; \
1 worker had finished
  report       logs/attempt_3/report.json""",
    ),
    (
        story(
            end(0, 1, T + 1, words=BOOM, error_file=ERROR_FILE, stderr_file=STDERR),
            end(1, -15, T + 2, asked=True),
            evidence="the kernel counted 1 out-of-memory kill in this cgroup",
            restarts=0,
            most_restarts=0,
        ),
        """\
relight: job "llama" failed in round 3, no restarts asked for
  first cause  rank 0 (local rank 0, pid 100) on n1
  how          exit code 1
  it said      ValueError: boom
               logs/attempt_3/0/error.json
  afterwards   relight ended 1 other""",
    ),
    (
        story(end(0, 1, tail=("Traceback", "  File", "KeyError: 'x'"), stderr_file=STDERR)),
        """\
relight: job "llama" failed in round 3, 2 of 2 restarts used
  first cause  rank 0 (local rank 0, pid 100) on n1
  how          exit code 1
  it said      KeyError: 'x'
               logs/attempt_3/0/stderr.log""",
    ),
    (
        story(
            end(
                0, 1, tail=("first", *(f"line {n}" for n in range(7)), "x" * 999),
                words=Words(" "), error_file=ERROR_FILE, stderr_file=STDERR,
            ),
            end(1, 1, T + 0.0007),
        ),
        f"""\
relight: job "llama" failed in round 3, 2 of 2 restarts used
  first cause  rank 0 (local rank 0, pid 100) on n1, 0.7 ms before any other
  how          exit code 1
  its last words on stderr
               line 0
               line 1
               line 2
               line 3
               line 4
               line 5
               line 6
               {"x" * 197}...
               logs/attempt_3/0/stderr.log
  afterwards   1 worker exited with 1 (rank 1)""",
    ),
    (
        story(end(0, 2, stderr_file=STDERR)),
        """\
relight: job "llama" failed in round 3, 2 of 2 restarts used
  first cause  rank 0 (local rank 0, pid 100) on n1
  how          exit code 2
  it said      nothing that is in its file (logs/attempt_3/0/stderr.log)""",
    ),
    (
        story(end(0, 2, tail=("no path to this",))),
        """\
relight: job "llama" failed in round 3, 2 of 2 restarts used
  first cause  rank 0 (local rank 0, pid 100) on n1
  how          exit code 2
  its last words on stderr
               no path to this""",
    ),
    (
        story(*(end(rank, 1, T + rank) for rank in range(16))),
        """\
relight: job "llama" failed in round 3, 2 of 2 restarts used
  first cause  rank 0 (local rank 0, pid 100) on n1, 1.00 s before any other
  how          exit code 1
  it said      see its output above; --tee 3 (or -r 3) would keep it in a file and show the end here
  afterwards   15 workers exited with 1 (ranks 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 and 3 more)""",
    ),
    (
        # Decided on rank 1, which was gone first; rank 0 had raised before that and took long to unload.
        story(end(0, 1, T + 9, asked=True, words=replace(BOOM, raised_at=T - 0.02)), end(1, 1, T), first=1),
        """\
relight: job "llama" failed in round 3, 2 of 2 restarts used
  first cause  rank 0 (local rank 0, pid 100) on n1, 0.02 s before any other
  how          exit code 1
  it said      ValueError: boom
  afterwards   1 worker exited with 1 (rank 1)
  decision     rank 1 on n1 (local rank 1) exited with 1; 2 of 2 restarts used""",
    ),
    (
        story(cause=Cause("n1", "the workers could not be started: No such file or directory: ./run")),
        """\
relight: job "llama" failed in round 3, 2 of 2 restarts used
  first cause  the workers could not be started: No such file or directory: ./run""",
    ),
    (
        story(end(0, 0), cause=Cause("n2", "n2 fell silent"), reason="nobody came back in 60 s"),
        """\
relight: job "llama" failed in round 3, 2 of 2 restarts used
  first cause  n2 fell silent
  afterwards   1 worker had finished (on n1)
  decision     nobody came back in 60 s""",
    ),
    (
        replace(story(end(0, -9, asked=True)), cause=None, reason="local rank 1 cannot be killed"),
        """\
relight: job "llama" failed in round 3, 2 of 2 restarts used
  first cause  local rank 1 cannot be killed
  afterwards   relight ended 1 other""",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("told", "page"), PAGES)
def test_the_page_for_people(told: Story, page: str) -> None:
    assert for_people(told) == page


def test_a_worker_that_raised_and_was_then_ended_by_relight_failed_as_well() -> None:
    page = for_people(story(end(0, 1), end(1, -15, T + 1, asked=True, words=BOOM), end(2, -15, T + 1, asked=True)))
    assert "afterwards   1 worker failed as well (rank 1); relight ended 1 other" in page


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ([0, 0], "2 workers had finished"),
        ([1] * 12, "12 workers exited with 1 (ranks 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)"),
        ([1] * 13, "13 workers exited with 1 (ranks 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 and 1 more)"),
    ],
)
def test_the_others_are_counted(others: list[int], said: str) -> None:
    page = for_people(story(end(0, 1), *(end(rank, code, T + 1) for rank, code in enumerate(others, 1))))
    assert page.endswith(f"\n  afterwards   {said}")


@pytest.mark.parametrize(
    ("lead", "said"), [(0.0049, "4.9 ms"), (0.004949, "4.9 ms"), (0.005, "0.01 s"), (0.126, "0.13 s")]
)
def test_a_short_lead_is_told_in_milliseconds(lead: float, said: str) -> None:
    assert f", {said} before any other\n" in for_people(story(end(0, 1, 0.0), end(1, 1, lead)))


def test_a_worker_that_told_of_its_steps_is_shown_with_the_last_one() -> None:
    assert "how          exit code 1 after step 1200" in for_people(story(end(0, 1, step=1200)))


def test_the_report_for_programs_tells_the_same() -> None:
    told = story(
        end(0, -9, T, tail=("a", "b"), stderr_file=STDERR, error_file=ERROR_FILE),
        end(1, 1, T + 1, words=BOOM, error_file=ERROR_FILE),
        end(2, -15, T + 2, asked=True),
        end(3, 0, T + 3),
        evidence="1 out-of-memory kill",
        report="report.json",
    )
    assert as_json(told).startswith(b'{\n "relight_report": 1,\n')
    document = json.loads(as_json(told))
    assert document == for_programs(told)
    workers = document.pop("workers")
    assert document == {
        "relight_report": 1, "job": "llama", "name": "train.py", "host": "n1", "round": 3,
        "restarts": 2, "max_restarts": 2, "evidence": "1 out-of-memory kill",
        "reason": "rank 0 on n1 (local rank 0) was killed by SIGKILL; 2 of 2 restarts used",
        "first_cause": {
            "node": "n1", "sentence": "rank 0 on n1 (local rank 0) was killed by SIGKILL", "worker": workers[0],
        },
    }  # fmt: skip
    assert workers[0] == {
        "rank": 0, "local_rank": 0, "pid": 100, "exit_code": -9, "signal": "SIGKILL", "outcome": "failed",
        "failed_at": T, "ended_at": T, "message": None, "traceback": None, "error_file": None,
        "stderr_file": STDERR, "stderr_tail": ["a", "b"], "step": None, "crashed_after_its_script": False,
    }  # fmt: skip
    assert [worker["outcome"] for worker in workers] == [
        "failed", "failed", "ended by relight", "finished",
    ]  # fmt: skip
    assert (workers[1]["message"], workers[1]["traceback"]) == (BOOM.message, BOOM.callstack)
    assert (workers[1]["failed_at"], workers[1]["ended_at"]) == (T, T + 1)
    assert (workers[1]["error_file"], workers[1]["stderr_file"]) == (ERROR_FILE, None)
    assert [worker["signal"] for worker in workers] == ["SIGKILL", None, "SIGTERM", None]


@pytest.mark.parametrize(
    ("cause", "first"),
    [(None, None), (Cause("n2", "n2 fell silent"), {"node": "n2", "sentence": "n2 fell silent", "worker": None})],
)
def test_a_cause_may_have_no_worker(cause: Cause | None, first: object) -> None:
    assert for_programs(story(cause=cause))["first_cause"] == first


HELP = "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"
CLOCK = {rank: f"2026-11-18_22:21:3{rank}" for rank in range(5)}


def test_the_block_has_torchruns_shape() -> None:
    told = story(end(0, 0), end(1, 4), end(2, -9), end(3, -15, asked=True), first=2)
    assert (
        for_grep(replace(told, cause=cause_of("n1", told.ends[2])), CLOCK)
        == f"""\
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[0]:
  time      : 2026-11-18_22:21:31
  host      : n1
  rank      : 1 (local_rank: 1)
  exitcode  : 4 (pid: 101)\x20
  error_file: <N/A>
  traceback : {HELP}
[2]:
  time      : 2026-11-18_22:21:33
  host      : n1
  rank      : 3 (local_rank: 3)
  exitcode  : -15 (pid: 103)  (SIGTERM)
  error_file: <N/A>
  traceback : Signal 15 (SIGTERM) received by PID 103
------------------------------------------------------------
Root Cause (first observed failure):
[1]:
  time      : 2026-11-18_22:21:32
  host      : n1
  rank      : 2 (local_rank: 2)
  exitcode  : -9 (pid: 102)  (SIGKILL)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 102
============================================================"""
    )


def test_a_block_without_another_failure_says_so_and_is_as_wide_as_its_longest_line() -> None:
    told = story(end(0, 1, words=Words("E: x"), error_file="e"))
    assert (
        for_grep(told, CLOCK)
        == """\
=================================
train.py FAILED
---------------------------------
Failures:
  <NO_OTHER_FAILURES>
---------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-18_22:21:30
  host      : n1
  rank      : 0 (local_rank: 0)
  exitcode  : 1 (pid: 100)\x20
  error_file: e
  traceback : E: x
================================="""
    )


def test_captured_stderr_stands_in_for_a_traceback() -> None:
    block = for_grep(story(end(0, 1, tail=("Traceback:", "  here", "KeyError: 'x'"))), CLOCK)
    assert "  traceback : Traceback:\n    here\n  KeyError: 'x'\n=====" in block
    own = for_grep(story(end(0, 1, words=BOOM)), CLOCK)
    assert "  traceback : Traceback (most recent call last):\n  ValueError: boom\n  second line\n" in own
    silent = for_grep(story(end(0, 1, tail=("nothing to learn",), words=Words(""), error_file="e")), CLOCK)
    assert f"  error_file: e\n  traceback : {HELP}\n" in silent


def test_a_cause_on_another_node_is_shown_with_its_node() -> None:
    far = end(7, -9)
    block = for_grep(story(end(0, 1), cause=cause_of("n2", far)), {7: "then"})
    root = block.partition("Root Cause (first observed failure):\n")[2]
    assert root.startswith("[0]:\n  time      : then\n  host      : n2\n  rank      : 7 (local_rank: 7)\n")
    assert "rank      : 0 (local_rank: 0)" in block


def test_a_time_that_is_not_known_is_left_empty() -> None:
    block = for_grep(story(end(0, 1), cause=cause_of("n2", end(7, -9))), {})
    assert block.count("  time      : \n") == 2


@pytest.mark.parametrize("cause", [None, Cause("n1", "the workers could not be started")])
def test_without_a_failed_worker_there_is_no_block(cause: Cause | None) -> None:
    assert for_grep(replace(story(end(0, 1)), cause=cause), CLOCK) == ""


TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
ENDS = st.lists(
    st.builds(
        lambda code, at, asked, words, tail, stderr: (code, at, asked, words, tail, stderr),
        st.sampled_from([0, 1, 2, -6, -9, -15]),
        st.floats(T, T + 10),
        st.booleans(),
        st.none() | st.builds(Words, TEXT, TEXT, st.none() | st.floats(T - 10, T + 10)),
        st.lists(TEXT, max_size=3).map(tuple),
        st.sampled_from(["", STDERR]),
    ),
    min_size=1,
    max_size=5,
)


@given(ENDS, st.data())
def test_every_story_can_be_told_three_times(drawn: list[Any], data: st.DataObject) -> None:
    ends = tuple(
        end(rank, code, at, asked=asked, words=words, tail=tail, stderr_file=stderr)
        for rank, (code, at, asked, words, tail, stderr) in enumerate(drawn)
    )
    own = [one for one in ends if one.own_failure]
    decided = cause_of("n1", data.draw(st.sampled_from(own))) if own else None
    told = replace(story(*ends), cause=decided)
    page, block = for_people(told), for_grep(told, CLOCK)
    assert "-0." not in page, "nothing happens before the first cause"
    assert (block == "") is (not own)
    if own:
        first = min(own, key=lambda one: one.failed_at)
        shown = told.first_cause
        assert shown is not None
        assert shown.end is not None
        assert shown.end.failed_at == first.failed_at
        assert f"\n  first cause  rank {shown.end.rank} (" in page
        assert block.count("  exitcode  : ") >= sum(not one.ok for one in ends)
    counted = json.loads(as_json(told))["workers"]
    assert len(counted) == len(ends)


@pytest.mark.slow
def test_the_block_is_torchruns_letter_for_letter(tmp_path: Path) -> None:
    errors = pytest.importorskip("torch.distributed.elastic.multiprocessing.errors")
    said = tmp_path / "0.json"
    said.write_text(json.dumps(write_words(BOOM)))
    host = socket.getfqdn()
    kinds: list[list[WorkerEnd]] = [
        [end(0, 3)],
        [end(0, -9), end(1, -15, T + 1, asked=True), end(2, 7, T + 2)],
        [end(0, 1, words=BOOM, error_file=str(said)), end(1, 1, T + 1)],
        [end(0, -9)],
    ]
    for ends in kinds:
        for name in ("train.py", "a_script_with_a_name_that_is_longer_than_sixty_characters_all_in_all.py"):
            failures: dict[int, Any] = {}
            for one in sorted(ends, key=lambda end: (end.asked, end.rank)):  # the order in which torchrun collects them
                failure = errors.ProcessFailure(one.local_rank, one.pid, one.status.number, one.error_file)
                failure.timestamp = int(one.failed_at)
                failures[one.rank] = failure
            told = replace(story(*ends, cause=cause_of(host, ends[0])), host=host, name=name)
            clock = {one.rank: datetime.fromtimestamp(int(one.failed_at)).isoformat(sep="_") for one in ends}
            assert for_grep(told, clock) == str(errors.ChildFailedError(name, failures)).strip("\n")


@pytest.mark.parametrize(
    ("job", "title"),
    [
        ("llama", 'relight: job "llama" failed in round 3'),
        ("a-b-c-d-e", 'relight: job "a-b-c-d-e" failed in round 3'),
        ("x" * 36, f'relight: job "{"x" * 36}" failed in round 3'),
        ("none", "relight: train.py failed in round 3"),
        ("", "relight: train.py failed in round 3"),
        ("dbedf7cd-1a0e-465b-a3c3-88fe420aa5ca", "relight: train.py failed in round 3"),
    ],
)
def test_a_job_is_called_by_the_name_its_user_gave_it(job: str, title: str) -> None:
    assert for_people(story(end(0, 1), job=job, name="/home/me/train.py")).startswith(title)


def test_a_limit_other_than_the_number_of_restarts_is_told() -> None:
    cause = cause_of("n1", end(0, 1))
    told = story(end(0, 1), reason=f"{cause.sentence}; 2 restarts within 60 s are the limit")
    assert "  decision     2 restarts within 60 s are the limit" in for_people(told)


NASTY = "\x1b]0;title\x07\x1b[2J\x9b1A bad\tword"
SHOWN = "\\x1b]0;title\\x07\\x1b[2J\\x9b1A bad\tword"


@pytest.mark.parametrize(
    "ends",
    [
        [end(0, 1, words=Words(NASTY, f"Traceback:\n  {NASTY}"), error_file=ERROR_FILE)],
        [end(0, 1, words=Words(NASTY), error_file=ERROR_FILE)],
        [end(0, 1, tail=("one", f"Error: {NASTY}"), stderr_file=STDERR)],
        [end(0, 1, tail=(NASTY, "two"), stderr_file=STDERR)],
    ],
)
def test_what_a_worker_said_does_not_steer_the_terminal(ends: list[WorkerEnd]) -> None:
    told = story(*ends)
    for text in (for_people(told), for_grep(told, CLOCK)):
        assert "\x1b" not in text
        assert "\x9b" not in text
    assert SHOWN in for_people(told)
    if ends[0].words or "Error" in ends[0].tail[-1]:
        assert SHOWN in for_grep(told, CLOCK)


def test_the_report_holds_what_a_worker_said_as_it_was() -> None:
    worker = json.loads(as_json(story(end(0, 1, words=Words(NASTY, NASTY), tail=(NASTY,)))))["workers"][0]
    assert (worker["message"], worker["traceback"], worker["stderr_tail"]) == (NASTY, NASTY, [NASTY])


def elsewhere(other: WorkerEnd, *ends: WorkerEnd, **more: Any) -> Story:
    return story(*ends, cause=cause_of("n2", other), reason="that was it", **more)


@pytest.mark.parametrize(
    ("told", "lines"),
    [
        (
            elsewhere(end(5), end(0, 0, asked=True), end(1, -15, asked=True)),
            [
                "  it said      see its output on n2; --tee 3 (or -r 3) would keep it in a file and show the end here",
                "  afterwards   relight ended 2 others (on n1)",
            ],
        ),
        (
            elsewhere(end(5, words=BOOM, error_file=ERROR_FILE)),
            ["  it said      ValueError: boom", f"               {ERROR_FILE} on n2"],
        ),
        (
            elsewhere(end(5, tail=("no path to this",), stderr_file=STDERR), end(0, 0)),
            [
                "               no path to this",
                f"               {STDERR} on n2",
                "  afterwards   1 worker had finished (on n1)",
            ],
        ),
    ],
)
def test_what_happened_on_another_node_is_said_to_be_there(told: Story, lines: list[str]) -> None:
    page = for_people(told).splitlines()
    assert [line for line in lines if line not in page] == [], page


def test_a_job_that_never_began_is_said_not_to_have() -> None:
    page = for_people(story(reason="only 1 of 2 nodes came", round=-1, restarts=0, most_restarts=0))
    assert page.splitlines()[0] == 'relight: job "llama" failed before its first round, no restarts asked for'
    assert for_people(story(reason="x y", round=0)).startswith('relight: job "llama" failed in round 0,')
