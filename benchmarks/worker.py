"""What the benchmarks' workers do. The first statement takes the time."""

import time

BORN = time.monotonic_ns()

import os  # noqa: E402
import signal  # noqa: E402
import sys  # noqa: E402

RANK, COUNT = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
WORLD = int(os.environ["WORLD_SIZE"])


def note(name: str, at: int | None = None) -> None:
    """One event: one write, so that lines never mix."""
    line = f"{name} {RANK} {COUNT} {at or time.monotonic_ns()}\n"
    fd = os.open(os.environ["BENCH_EVENTS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, line.encode())
    os.close(fd)


def everyone_is_here() -> None:
    while True:
        with open(os.environ["BENCH_EVENTS"]) as file:
            here = [line for line in file if line.startswith("start ") and line.split()[2] == str(COUNT)]
        if len(here) >= WORLD:
            return
        time.sleep(0.005)


def die_once() -> None:
    """Rank 1 dies at a random phase; the others are found asleep. The second time everybody finishes."""
    everyone_is_here()
    if COUNT:
        return
    if RANK == 1:
        time.sleep(0.3 + os.urandom(1)[0] / 255 * 0.3)
        note("die")
        os._exit(1)
    while True:  # a sleep that a signal handler may interrupt
        time.sleep(60)


def main(mode: str) -> None:
    note("start", BORN)
    if mode == "plain":
        note("end")
    elif mode == "rest":
        time.sleep(4)
    elif mode == "die":
        die_once()
    elif mode == "stubborn":
        if not COUNT:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        die_once()
    elif mode == "tick":
        for _ in range(200):
            print(f"TICK {'y' * 60} {time.monotonic_ns()}", flush=True)
            time.sleep(0.01)
    elif mode == "flood":
        chunk = (b"x" * 99 + b"\n") * 655
        for _ in range(3000):
            os.write(1, chunk)
    elif mode == "gloo":
        import torch
        import torch.distributed as dist

        dist.init_process_group("gloo")
        dist.all_reduce(torch.ones(1))
        note("group")
        dist.barrier()
        if RANK == 1 and not COUNT:
            note("die")
            os._exit(1)
        if not COUNT:
            time.sleep(600)
        dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
