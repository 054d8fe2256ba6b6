from __future__ import annotations

import asyncio
import glob
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest

from relight.compat import ChildFailedError, DefaultLogsSpecs, LaunchConfig, Std, elastic_launch
from relight.compat.function_worker import ERROR, NOTHING, RESULT, deliver, delivered
from relight.core.names import UsageError

from ..waiting import alive, until
from . import jobs

BOTH = pytest.mark.parametrize("method", ["spawn", "fork"])


@pytest.fixture(autouse=True)
def _own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)


def asked(method: str = "spawn", nproc: int = 2, **more: Any) -> LaunchConfig:
    return LaunchConfig(1, 1, nproc, start_method=method, max_restarts=more.pop("max_restarts", 0), **more)


@BOTH
def test_results_come_back_by_global_rank(method: str) -> None:
    assert elastic_launch(asked(method), jobs.double)(21) == {0: (0, 42), 1: (1, 42)}


def test_forkserver_is_carried_out_as_spawn() -> None:
    assert elastic_launch(asked("forkserver", 1), jobs.double)(1) == {0: (0, 2)}


def test_an_unknown_start_method_is_refused() -> None:
    with pytest.raises(UsageError, match="start_method 'thread'"):
        elastic_launch(asked("thread"), jobs.double)(1)


@BOTH
@pytest.mark.parametrize("function", [jobs.leave, jobs.vanish])
def test_a_worker_that_leaves_without_a_result_does_not_hang(method: str, function: Any) -> None:
    assert elastic_launch(asked(method), function)() == {0: None, 1: None}


@BOTH
def test_leaving_with_a_code_is_a_failure_with_that_code(method: str) -> None:
    with pytest.raises(ChildFailedError) as caught:
        elastic_launch(asked(method, 1), jobs.leave)(3)
    rank, failure = caught.value.get_first_failure()
    assert (rank, failure.exitcode, failure.error_file) == (0, 3, "<N/A>")
    assert caught.value.name == "leave"


@BOTH
def test_an_exception_comes_back_as_the_cause(method: str) -> None:
    with pytest.raises(ChildFailedError) as caught:
        elastic_launch(asked(method), jobs.fail_in_rank_1)()
    error = caught.value
    rank, failure = error.get_first_failure()
    assert (rank, failure.local_rank, failure.exitcode) == (1, 1, 1)
    assert {at: one.exitcode for at, one in error.failures.items()} == {1: 1, 0: -15}
    assert isinstance(error.__cause__, KeyError)
    assert "fail_in_rank_1" in error.__cause__.__notes__[0]
    assert os.path.isfile(failure.error_file)
    text = str(error)
    assert text.startswith('relight: job "')
    assert "first cause  rank 1" in text
    assert "Root Cause (first observed failure):\n[0]:" in text
    assert "relight/compat" not in failure.error_file_data["message"]["extraInfo"]["py_callstack"]


@BOTH
def test_an_exception_that_cannot_be_made_again_is_still_a_failure(method: str) -> None:
    with pytest.raises(ChildFailedError, match="Odd: this") as caught:
        elastic_launch(asked(method, 1), jobs.fail_oddly)()
    assert caught.value.__cause__ is None


@BOTH
def test_a_result_that_cannot_be_pickled_is_a_failure(method: str) -> None:
    with pytest.raises(ChildFailedError, match=r"pickle"):
        elastic_launch(asked(method, 1), jobs.unpicklable)()


@BOTH
def test_after_a_restart_the_results_are_the_last_rounds(method: str) -> None:
    assert elastic_launch(asked(method, max_restarts=1), jobs.second_time)() == {0: "1", 1: "1"}


@BOTH
def test_the_local_rank_is_filled_into_text(method: str) -> None:
    found = elastic_launch(asked(method), jobs.echo)("${local_rank}", "$$x", "$other")
    assert found == {0: ("0", "$x", "$other"), 1: ("1", "$x", "$other")}


def test_a_lambda_can_be_forked_and_not_spawned(tmp_path: Path) -> None:
    assert elastic_launch(asked("fork", 1), lambda: 7)() == {0: 7}
    with pytest.raises((pickle.PicklingError, AttributeError)):
        elastic_launch(asked("spawn", 1), lambda: 7)()
    assert glob.glob(f"{tmp_path}/relight_*") == []


def test_a_spawned_worker_is_given_a_queue() -> None:
    queue = multiprocessing.get_context("spawn").Queue()
    elastic_launch(asked(), jobs.put)(queue)
    assert {queue.get(timeout=5), queue.get(timeout=5)} == {0, 1}
    queue.close()
    queue.join_thread()


def test_a_forked_worker_holds_nothing_of_the_agents() -> None:
    before = set(jobs.descriptors())
    for held in elastic_launch(asked("fork"), jobs.descriptors)().values():
        assert len(set(held) - before) <= 3  # where its result goes, multiprocessing's pipe, and the listing itself


def test_a_spawned_worker_holds_only_the_file_of_its_own_result() -> None:
    for held in elastic_launch(asked("spawn", 3), jobs.descriptors)().values():
        assert len(held) == 2  # that, and the listing itself


@BOTH
def test_what_a_function_prints_goes_where_it_was_asked_to(method: str, tmp_path: Path) -> None:
    specs = DefaultLogsSpecs(str(tmp_path / "logs"), redirects=Std.OUT)
    elastic_launch(asked(method, logs_specs=specs), jobs.say)("hello")
    found = sorted(Path(path).read_text() for path in glob.glob(f"{tmp_path}/logs/*/attempt_0/*/stdout.log"))
    assert found == ["hello 0\n", "hello 1\n"]


@BOTH
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # this test forks beside a thread on purpose
def test_off_the_main_thread(method: str) -> None:
    found: dict[int, Any] = {}
    thread = threading.Thread(target=lambda: found.update(elastic_launch(asked(method), jobs.double)(1)))
    thread.start()
    thread.join(30)
    assert found == {0: (0, 2), 1: (1, 2)}


@BOTH
def test_inside_a_running_event_loop(method: str) -> None:
    async def cell() -> dict[int, Any]:
        heard = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, heard.set)
        found = elastic_launch(asked(method), jobs.double)(4)
        os.kill(os.getpid(), signal.SIGUSR1)
        await asyncio.wait_for(heard.wait(), 5)
        return found

    assert asyncio.run(cell()) == {0: (0, 8), 1: (1, 8)}


def test_the_caller_gets_its_world_back() -> None:
    environment = dict(os.environ)
    handlers = [signal.getsignal(number) for number in (1, 2, 3, 15, 20)]
    elastic_launch(asked("fork", 1), jobs.double)(1)
    elastic_launch(asked("spawn", 1), jobs.double)(1)
    assert dict(os.environ) == environment
    assert [signal.getsignal(number) for number in (1, 2, 3, 15, 20)] == handlers


SESSION = """
    import os, sys
    from relight.compat import LaunchConfig, elastic_launch
    def typed(x):
        return x + int(os.environ["RANK"])
    print(elastic_launch(LaunchConfig(1, 1, 2, start_method=sys.argv[1]), typed)(5))
"""


def session(method: str) -> subprocess.CompletedProcess[str]:
    """The function is typed into an interpreter that reads its program from a pipe, as a notebook's is."""
    return subprocess.run(
        [sys.executable, "-", method], input=textwrap.dedent(SESSION), capture_output=True, text=True, timeout=30
    )


def test_a_function_of_a_session_can_be_forked() -> None:
    assert session("fork").stdout == "{0: 5, 1: 6}\n"


def test_a_function_of_a_session_cannot_be_spawned_and_says_so() -> None:
    refused = session("spawn").stderr
    assert "typed was typed into this session" in refused


def test_a_function_of_a_script_can_be_spawned(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    body = textwrap.dedent(SESSION).replace("print(", "if __name__ == '__main__': print(")
    script.write_text(body)
    ran = subprocess.run([sys.executable, script, "spawn"], capture_output=True, text=True, timeout=30)
    assert ran.stdout == "{0: 5, 1: 6}\n", ran.stderr


WAITING = r"""
    import os, sys, time
    from relight.compat import LaunchConfig, SignalException, elastic_launch
    def wait():
        os.write(1, b"%d\n" % os.getpid())  # one write: lines of two workers never mix
        time.sleep(60)
    if __name__ == "__main__":
        try:
            elastic_launch(LaunchConfig(1, 1, 2, start_method=sys.argv[1]), wait)()
        except SignalException as stopped:
            print("stopped by", stopped.sigval.name, flush=True)
"""


def waiting(tmp_path: Path, method: str) -> tuple[subprocess.Popen[str], list[int]]:
    script = tmp_path / "waiting.py"
    script.write_text(textwrap.dedent(WAITING))
    agent = subprocess.Popen([sys.executable, script, method], stdout=subprocess.PIPE, text=True)
    assert agent.stdout is not None
    return agent, [int(agent.stdout.readline()) for _ in range(2)]


@BOTH
def test_a_signal_ends_the_workers_and_is_an_exception(tmp_path: Path, method: str) -> None:
    agent, workers = waiting(tmp_path, method)
    agent.terminate()
    said, _ = agent.communicate(timeout=20)
    assert said == "stopped by SIGTERM\n"
    assert not any(map(alive, workers))


@BOTH
def test_nothing_of_a_killed_agent_is_left(tmp_path: Path, method: str) -> None:
    agent, workers = waiting(tmp_path, method)
    agent.kill()
    agent.wait()
    assert agent.stdout is not None
    agent.stdout.close()
    until(lambda: not any(map(alive, workers)), "the end of a killed agent's workers")
    until(lambda: not glob.glob(f"{tmp_path}/relight_*"), "a killed agent's files to be gone")


def test_only_what_was_delivered_to_its_end_and_in_this_round_counts() -> None:
    with tempfile.TemporaryFile() as file:
        results = file.fileno()
        assert delivered(results, 0) == (NOTHING, b"")
        deliver(results, 0, RESULT, ["long"] * 100)
        assert delivered(results, 0) == (RESULT, pickle.dumps(["long"] * 100))
        assert delivered(results, 1) == (NOTHING, b"")
        with pytest.raises((pickle.PicklingError, AttributeError)):
            deliver(results, 1, RESULT, lambda: 0)
        assert delivered(results, 1) == (NOTHING, b"")
        deliver(results, 1, ERROR, KeyError("x"))
        kind, what = delivered(results, 1)
        assert (kind, repr(pickle.loads(what))) == (ERROR, "KeyError('x')")


def test_the_first_to_fail_is_named_though_it_ends_last() -> None:
    with pytest.raises(ChildFailedError) as caught:
        elastic_launch(asked(), jobs.fail_first_and_end_last)()
    rank, failure = caught.value.get_first_failure()
    assert rank == 0 and "the first" in str(failure.message)
    assert isinstance(caught.value.__cause__, KeyError)
    assert "first cause  rank 0" in str(caught.value)
