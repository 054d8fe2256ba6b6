"""Where nodes and workers meet: torchrun's words about backends, endpoints, ids and ports.

Decides the run id, where the workers' own store answers, and where a job of several nodes has its coordinator. Several
of torchrun's rules live here and nowhere else: what --standalone overrides, when a plain command is standalone without
saying so, and when a port given with --master-port is to be that very port.
"""

from __future__ import annotations

import os
import sys

from relight.cli.table import closest, shown
from relight.core.launch import C10D_PORT, Meeting, Store
from relight.core.names import UsageError
from relight.program import random_number, random_run_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from relight.cli.asked import Asked

BACKENDS = ("static", "c10d", "etcd-v2", "etcd")


MOST_TOKEN = 4096
# Where schedulers say which node of a job this is.
_PLACES = ("SLURM_NODEID", "OMPI_COMM_WORLD_NODE_RANK", "JOB_COMPLETION_INDEX", "PBS_NODENUM")


def meeting(asked: Asked, max_nodes: int, warn: Callable[[str], None]) -> tuple[str, Store, Meeting | None]:
    backend, endpoint = asked.text("rdzv_backend"), asked.text("rdzv_endpoint").strip()
    port = None if asked.value("master_port") is None else _port(asked)
    alone = bool(asked.value("standalone")) or (
        backend == "static" and not endpoint and port is None and max_nodes == 1
    )
    if alone:
        backend = "c10d"
    plugged = backend not in BACKENDS and _is_plugged_in(backend, asked, warn)
    conf = _conf(asked, backend, warn)
    run_id = random_run_id() if alone else asked.text("rdzv_id")
    place = None
    if max_nodes > 1:
        store, place = _several(asked, backend, endpoint, port, max_nodes, conf, warn)
    elif backend == "static":
        store = _static_store(asked, endpoint, port, max_nodes)
    else:
        if not (alone or plugged or conf.get("store_type", "").strip().lower() == "file"):
            _endpoint(asked, endpoint)
        _warn_of_static_words(asked, bool(alone or endpoint), warn)
        shared = backend != "etcd" and asked.environ.get("TORCH_DISABLE_SHARE_RDZV_TCP_STORE") != "1"
        address = asked.text("local_addr")
        store = Store(shared=shared, address=address) if address else Store(shared=shared)
    if not run_id:
        run_id = random_number()
        warn(f"{asked.name('rdzv_id')} is empty: this job is called {run_id}")
    return run_id, store, place


def _several(
    asked: Asked,
    backend: str,
    endpoint: str,
    port: int | None,
    max_nodes: int,
    conf: dict[str, str],
    warn: Callable[[str], None],
) -> tuple[Store, Meeting]:
    """Where the nodes of a job meet, and where this node's store is should the workers meet there."""
    from relight.cli.conf import hosts, patience

    waits: dict[str, Any] = patience(conf, backend)
    waits["fails_below_min"] = asked.text("on_node_loss") == "fail"
    token = _token(asked)
    if backend == "static":
        there = _static_store(asked, endpoint, port, max_nodes)
        rank = asked.number("node_rank")
        own = there if rank == 0 else Store(address=asked.text("local_addr"))
        return own, Meeting(there.address, there.port, rank == 0, True, token, rank, **waits)
    if backend != "c10d" or conf.get("store_type", "tcp").strip().lower() == "file":
        what = "store_type=file" if backend == "c10d" else asked.shown("rdzv_backend")
        raise UsageError(
            f"{what}: in this version several nodes meet by the c10d and the static backend only",
            "--rdzv-backend c10d --rdzv-endpoint HOST:29400, the same on every node",
        )
    host, found = _endpoint(asked, endpoint)
    if found == 0:
        raise asked.wrong("rdzv_endpoint", "is a port that only this node would know", f"--rdzv-endpoint {host}:29400")
    _warn_of_static_words(asked, bool(endpoint), warn, hint=True)
    shared = asked.environ.get("TORCH_DISABLE_SHARE_RDZV_TCP_STORE") != "1"
    store = Store(shared=shared, address=asked.text("local_addr"))
    at = C10D_PORT if found is None else found
    return store, Meeting(host, at, hosts(conf), False, token, _hint(asked), **waits)


def token_of(environ: Mapping[str, str]) -> str:
    """The job's secret, if the environment holds it."""
    return environ.get("RELIGHT_TOKEN", "").strip()


def _hint(asked: Asked) -> int | None:
    """The place this node is to have, if its user or its scheduler says so."""
    if asked.given("node_rank"):
        return asked.number("node_rank")
    words = (asked.environ.get(name, "") for name in _PLACES)
    return next((int(word) for word in words if word.isascii() and word.isdigit() and len(word) < 7), None)


def _token(asked: Asked) -> str:
    """The job's secret, from a file or the environment."""
    path = asked.text("token_file")
    if not path:
        return token_of(asked.environ)
    try:
        with open(os.path.expanduser(path), encoding="utf-8") as file:
            token = file.read(MOST_TOKEN).strip()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "holds no text"
        raise asked.wrong(
            "token_file", f"cannot be read: {why}", "--token-file FILE, with the same text on every node"
        ) from None
    if not token:
        raise asked.wrong("token_file", "is empty", "head -c 24 /dev/urandom | base64 > FILE, the same on every node")
    return token


def _static_store(asked: Asked, endpoint: str, port: int | None, max_nodes: int) -> Store:
    rank = asked.number("node_rank")
    if rank >= max_nodes:
        nodes = "node" if max_nodes == 1 else "nodes"
        raise asked.wrong("node_rank", f"has no place in a job of {max_nodes} {nodes}", "--node-rank 0")
    if not endpoint:
        host, _ = _split(asked, "master_addr", f"{asked.text('master_addr')}:0")
        return Store(address=host, port=29500 if port is None else port)
    host, found = _endpoint(asked, endpoint)
    if found is None:
        raise asked.wrong("rdzv_endpoint", "names no port", f"--rdzv-endpoint {endpoint}:29500")
    return Store(address=host, port=found)


def _port(asked: Asked) -> int:
    port = asked.number("master_port")
    if port > 65535:
        raise asked.wrong("master_port", "is above 65535, the last port there is")
    return port


def _endpoint(asked: Asked, endpoint: str) -> tuple[str, int | None]:
    return _split(asked, "rdzv_endpoint", endpoint) if endpoint else ("localhost", None)


def _split(asked: Asked, dest: str, endpoint: str) -> tuple[str, int | None]:
    """Host and port of `host`, `host:port`, `[v6]` or `[v6]:port`."""
    host, port = endpoint, None
    if not (endpoint.startswith("[") and endpoint.endswith("]")):
        host, colon, digits = endpoint.rpartition(":")
        if not colon:
            host = endpoint
        elif not (digits.isascii() and digits.isdigit() and len(digits) <= 5 and int(digits) < 65536):
            raise asked.wrong(dest, f"ends in {digits!r}, which is no port (0 to 65535)")
        else:
            port = int(digits)
    if len(host) > 1 and host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not host or not all(letter.isalnum() or letter in "_.:-" for letter in host):
        raise asked.wrong(dest, f"names no host: {shown(host)} is neither a name nor an address")
    return host, port


def _is_plugged_in(backend: str, asked: Asked, warn: Callable[[str], None]) -> bool:
    """Asks installed packages about a name that is not torchrun's own."""
    from importlib.metadata import entry_points

    plugged = {entry.name for group in ("torchrun.handlers", "relight.meetings") for entry in entry_points(group=group)}
    if backend not in plugged:
        words = (*BACKENDS, *sorted(plugged))
        meant = closest(backend, words)
        raise asked.wrong(
            "rdzv_backend", f"is not one of {', '.join(words)}", f"--rdzv-backend {meant}" if meant else ""
        )
    warn(f"{asked.shown('rdzv_backend')} is not asked: a job of one node meets nobody")
    return True


def _conf(asked: Asked, backend: str, warn: Callable[[str], None]) -> dict[str, str]:
    said = asked.text("rdzv_conf")
    if not said.strip():
        return {}
    from relight.cli.conf import check_conf, parse_conf

    conf = parse_conf(said, asked.name("rdzv_conf"))
    check_conf(conf, backend, asked.name("rdzv_conf"), warn)
    return conf


def _warn_of_static_words(asked: Asked, has_endpoint: bool, warn: Callable[[str], None], *, hint: bool = False) -> None:
    if asked.number("node_rank", -sys.maxsize) != 0 and not hint:
        warn(f"{asked.shown('node_rank')} is ignored: only the static backend reads it")
    unread = ("master_addr", "master_port") if not has_endpoint else ()
    for dest in unread:
        if asked.given(dest):
            warn(f"{asked.shown(dest)} is ignored: only the static backend reads it")
