"""Workers that misbehave on the agent's socket: they lose their own conversation and nobody else's."""

from __future__ import annotations

import time
from pathlib import Path

from .running import Runs

CONNECT = """
    import socket, struct
    from relight.worker.room import voice_from_environment
    def connect(hello=None):
        guest = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        guest.connect(os.environ["RELIGHT_SOCKET"])
        if hello is not None: guest.sendall(b'{"relight": 1, "local_rank": %d, "round": %d}\\n' % hello)
        return guest
    def hung_up(guest):
        guest.settimeout(10)
        try:
            while guest.recv(1 << 16): pass
        except ConnectionResetError:
            pass
        return True
"""


def test_guests_who_speak_nonsense_are_shown_the_door(relight: Runs) -> None:
    job = relight.script(
        CONNECT
        + r"""
    for nonsense in (b"GET / HTTP/1.1\r\n\r\n", b"\x00\xff" * 1000 + b"\n", b"[" * 60000 + b"\n", b'{"relight": 2}\n',
                     b'{"relight": 1, "local_rank": -1, "round": 0}\n', b"x" * 70000):
        guest = connect()
        guest.sendall(nonsense)
        tell("out", hung_up(guest))
    polite = voice_from_environment()
    tell("polite", polite is not None and polite.tell(step=1) and polite.tell(step=2))
    """
    )
    run = relight.finish(job)
    assert run.process.returncode == 0, run.story()
    assert run.events == ["out True"] * 6 + ["polite True"]
    assert run.err == ""


def test_a_flood_and_a_crowd_do_not_hold_up_a_failure(relight: Runs) -> None:
    """Rank 0 floods with facts and never reads, rank 1 opens a thousand conversations, rank 2 fails."""
    job = relight.script(
        CONNECT
        + """
    if RANK == 0:
        flood = connect((0, 0))
        tell("floods")
        number = 0
        while True:
            numbers = range(number, number + 500)
            flood.sendall(b"".join(b'{"closed": "remark %d"}\\n{"step": %d}\\n' % (n, n) for n in numbers))
            number += 500
    if RANK == 1:
        crowd = [connect((1, 0)) for _ in range(500)]
        tell("crowds")
        while True:
            connect()
    told("floods")
    told("crowds")
    time.sleep(0.5)
    tell("fails")
    sys.exit(1)
    """
    )
    run = relight("--nproc-per-node=3", job)
    run.happened("fails")
    begin = time.monotonic()
    assert run.ends() == 1
    assert time.monotonic() - begin < 5
    run.nothing_is_left()
    assert "rank 2 (local rank 2" in run.err
    assert run.err.count("remark") <= 8, "what a flood says is bounded, in memory and on the console"


def test_a_flood_does_not_fill_the_launchers_memory(relight: Runs) -> None:
    job = relight.script(
        CONNECT
        + """
    flood = connect((0, 0))
    text = "y" * 190
    for number in range(60):
        numbers = range(number * 1000, number * 1000 + 1000)
        flood.sendall(b"".join(b'{"closed": "%d %s"}\\n' % (n, text.encode()) for n in numbers))
    tell("flooded")
    told("seen")
    """
    )
    run = relight(job)
    run.happened("flooded")
    (rss,) = [line for line in Path(f"/proc/{run.pid}/status").read_text().splitlines() if line.startswith("VmRSS")]
    run.tell("seen")
    assert run.ends() == 0
    assert int(rss.split()[1]) < 30_000, rss


def test_a_guest_of_another_round_is_not_heard(relight: Runs) -> None:
    job = relight.script(
        CONNECT
        + """
    for hello in ((0, 7), (99, 0)):
        guest = connect(hello)
        guest.sendall(b'{"closed": "is not to be believed"}\\n')
        guest.close()
    guest = connect((0, 0))
    guest.sendall(b'{"closed": "is to be believed"}\\n')
    """
    )
    run = relight.finish(job)
    assert run.process.returncode == 0
    assert run.err == "relight: local rank 0 is to be believed\n"
