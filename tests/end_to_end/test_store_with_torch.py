"""PyTorch's own client against our store: every call it has, and whole training processes."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator

import pytest

from relight.core.rollcall import arrived, counted
from relight.shell.loop import Loop
from relight.shell.storehost import StoreHost

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
pytest.importorskip("torch", reason="the workers' side of the store is PyTorch")

DEADLINE_S = 90.0


@pytest.fixture
def host(loop: Loop) -> Iterator[StoreHost]:
    host = StoreHost(loop, "localhost")
    yield host
    host.close()


def run_all(loop: Loop, commands: list[tuple[str, dict[str, str]]]) -> list[str]:
    """Runs Python programs beside the loop; what each printed. Every one must end well before the deadline."""
    surroundings = {name: value for name, value in os.environ.items() if not name.startswith("TORCH")}
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(program)],
            env={**surroundings, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", **more},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for program, more in commands
    ]
    end = time.monotonic() + DEADLINE_S
    try:
        while any(worker.poll() is None for worker in workers):
            assert time.monotonic() < end, f"waited {DEADLINE_S} s for {len(workers)} programs to end"
            loop.wait(time.monotonic() + 0.02)
    finally:
        for worker in workers:
            worker.kill()
        printed = [worker.communicate()[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * len(workers), "\n".join(printed)
    return printed


EVERY_CALL = """
    from datetime import timedelta
    from torch.distributed import DistStoreError, PrefixStore, TCPStore
    import torch.distributed as dist

    def store(**more):
        return TCPStore("localhost", PORT, is_master=False,
                        wait_for_workers=False, timeout=timedelta(seconds=20), **more)

    def fails(error, call, *given):
        try:
            call(*given)
        except error:
            return True
        raise SystemExit(f"{call} did not raise {error}")

    one, two = store(), store()
    one.set("a", "1")
    assert two.get("a") == b"1"
    assert one.add("n", 5) == 5 and two.add("n", -7) == -2 and one.get("n") == b"-2"
    assert one.compare_set("c", "", "x") == b"x" and one.compare_set("c", "y", "z") == b"x"
    assert two.compare_set("c", "x", "z") == b"z" and two.compare_set("none", "y", "z") == b"y"
    one.append("a", "2"); one.append("fresh", "3")
    one.num_keys()  # what stores is not answered, so only a question shows that it has been carried out
    assert two.get("a") == b"12" and two.get("fresh") == b"3"
    one.multi_set(["m1", "m2"], ["v1", "v2"])
    assert two.multi_get(["m2", "m1"]) == [b"v2", b"v1"]
    assert one.check(["m1", "m2"]) and not one.check(["m1", "missing"])
    one.wait(["m1", "m2"]); one.wait(["m1"], timedelta(seconds=1))
    assert one.num_keys() == 6, one.num_keys()
    assert sorted(one.list_keys()) == ["a", "c", "fresh", "m1", "m2", "n"], one.list_keys()
    assert one.delete_key("m1") and not one.delete_key("m1") and not one.check(["m1"])
    fails(DistStoreError, one.wait, ["missing"], timedelta(milliseconds=100))
    one.set_timeout(timedelta(milliseconds=100))
    fails(DistStoreError, one.get, "missing")
    one.set_timeout(timedelta(seconds=20))
    assert one.get("c") == b"z"  # the connection has survived both
    one.queue_push("q", "first"); one.num_keys()
    two.queue_push("q", "second"); two.num_keys()
    assert one.queue_len("q") == 2 and two.queue_pop("q") == b"first" and one.queue_pop("q", False) == b"second"
    assert one.queue_len("q") == 0
    fails(dist.QueueEmptyError, one.queue_pop, "q", False)
    one.barrier("alone", 1)
    assert one.clone().get("a") == b"12"
    big = bytes(range(256)) * (8 << 12)
    assert len(big) == 8 << 20
    one.set("big", big)
    assert two.get("big") == big
    fails(RuntimeError, lambda: (two.set("big", big + b"x"), two.get("big")))
    assert one.get("a") == b"12"
    nested = PrefixStore("p", PrefixStore("q", one))
    nested.set("k", "v")
    assert nested.get("k") == b"v" and one.get("q/p/k") == b"v"
    assert one.has_extended_api() and one.port > 0 and one.host == "localhost"

    import threading, time
    three = store()
    got = []
    waiting = [threading.Thread(target=lambda: got.append(three.get("later"))),
               threading.Thread(target=lambda: one.barrier("pair", 2))]
    for thread in waiting:
        thread.start()
    time.sleep(0.2)
    four = store()
    four.set("later", "now"); four.barrier("pair", 2)
    for thread in waiting:
        thread.join()
    assert got == [b"now"]
    print("all calls:", sorted(name for name in dir(TCPStore) if not name.startswith("_")))
"""
CALLS = {
    "add", "append", "barrier", "check", "clone", "compare_set", "delete_key", "get", "has_extended_api", "host",
    "libuvBackend", "list_keys", "multi_get", "multi_set", "num_keys", "port", "queue_len", "queue_pop", "queue_push",
    "set", "set_timeout", "timeout", "wait",
}  # fmt: skip


def test_every_call_of_the_installed_client(loop: Loop, host: StoreHost) -> None:
    (printed,) = run_all(loop, [(EVERY_CALL.replace("PORT", str(host.port)), {})])
    assert "all calls:" in printed


def test_the_installed_client_has_no_call_that_is_not_tried_here() -> None:
    """Read through a child, so that this test process does not import PyTorch."""
    show = "from torch.distributed import TCPStore as T; print(*[n for n in dir(T) if n[0] != '_'])"
    printed = subprocess.run(
        [sys.executable, "-c", show], capture_output=True, text=True, check=True, timeout=DEADLINE_S
    )
    assert set(printed.stdout.split()) <= CALLS


WORKER = """
    import os
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    rank = torch.tensor([float(dist.get_rank())])
    dist.all_reduce(rank)
    dist.barrier()
    pair = dist.new_group([0, 1])
    print(int(rank), os.environ["ROUND"])
    dist.destroy_process_group()
"""


def test_four_workers_meet_here_round_after_round(loop: Loop, host: StoreHost) -> None:
    for round_ in range(2):
        host.renew()
        common = {
            "MASTER_ADDR": "localhost",
            "MASTER_PORT": str(host.port),
            "WORLD_SIZE": "4",
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "TORCHELASTIC_RESTART_COUNT": str(round_),
            "ROUND": str(round_),
        }
        printed = run_all(loop, [(WORKER, {**common, "RANK": str(rank)}) for rank in range(4)])
        assert [text.split() for text in printed] == [["6", str(round_)]] * 4
        assert arrived(4, host.store) == {0, 1, 2, 3}
        assert counted(host.store) == 4


def test_who_has_not_arrived_can_be_named(loop: Loop, host: StoreHost) -> None:
    missing = """
        import os, torch.distributed as dist
        from datetime import timedelta
        try:
            dist.init_process_group("gloo", timeout=timedelta(seconds=3))
        except RuntimeError:
            print("gave up")
    """
    common = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(host.port),
        "WORLD_SIZE": "3",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }
    printed = run_all(loop, [(missing, {**common, "RANK": rank}) for rank in ("0", "2")])
    assert ["gave up" in text for text in printed] == [True, True]
    assert arrived(3, host.store) == {0, 2}
    assert counted(host.store) == 2
