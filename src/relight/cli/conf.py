"""The words inside --rdzv-conf: their grammar, and which of them each backend reads.

Imported only when the option is given. torchrun ignores a key it does not know; here it is named.
"""

from __future__ import annotations

from relight.cli.table import closest
from relight.core.names import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Reader = Callable[[str], bool]

SHORTEST_LEASE_S = 1.0  # what a busy machine may keep a process waiting for is less

# What other options say already.
_ELSEWHERE = {
    "backend": "--rdzv-backend",
    "endpoint": "--rdzv-endpoint",
    "run_id": "--rdzv-id",
    "min_nodes": "--nnodes",
    "max_nodes": "--nnodes",
    "local_addr": "--local-addr",
}


def _whole(word: str) -> bool:
    digits = word.strip().removeprefix("-").removeprefix("+")
    return digits.isascii() and digits.isdigit()


def _positive(word: str) -> bool:
    return _whole(word) and int(word) > 0


_YES, _NO = ("1", "true", "t", "yes", "y"), ("0", "false", "f", "no", "n")


def _yes_or_no(word: str) -> bool:
    return word.lower() in (*_YES, *_NO)


def _not_negative(word: str) -> bool:
    try:
        return float(word) >= 0
    except ValueError:
        return False


def _store_type(word: str) -> bool:
    return word.strip().lower() in ("tcp", "file")


def _protocol(word: str) -> bool:
    return word.strip().lower() in ("http", "https")


def _any(_word: str) -> bool:
    return True


_MEANS: dict[Reader, tuple[str, str]] = {
    _whole: ("a whole number", "5"),
    _positive: ("a whole number above zero", "60"),
    _yes_or_no: ("yes or no", "true"),
    _not_negative: ("a number of seconds, zero or more", "0.5"),
    _store_type: ("tcp or file", "tcp"),
    _protocol: ("http or https", "https"),
}

_DYNAMIC: dict[str, Reader] = {
    "join_timeout": _positive,
    "last_call_timeout": _positive,
    "close_timeout": _positive,
    "heartbeat_timeout": _positive,
    "keep_alive_interval": _whole,
    "keep_alive_max_attempt": _whole,
    "cas_backoff_max_seconds": _not_negative,
    "read_timeout": _positive,
    "settle_timeout": _not_negative,
}

KEYS: dict[str, dict[str, Reader]] = {
    "static": {"timeout": _whole, "rank": _whole},
    "c10d": {**_DYNAMIC, "store_type": _store_type, "is_host": _yes_or_no},
    "etcd-v2": {**_DYNAMIC, "protocol": _protocol, "ssl_cert": _any, "ssl_cert_key": _any, "ca_cert": _any},
    "etcd": {
        "timeout": _whole,
        "last_call_timeout": _whole,
        "protocol": _protocol,
        "cert": _any,
        "key": _any,
        "cacert": _any,
        "etcd_prefix": _any,
    },
}


def patience(conf: dict[str, str], backend: str) -> dict[str, float]:
    """What the keys say of how long nodes wait for each other, in the words of a Meeting."""
    if backend == "static":
        return {"join_timeout_s": float(conf.get("timeout", 900))}
    found = {
        field: float(conf[key])
        for key, field in (
            ("join_timeout", "join_timeout_s"),
            ("last_call_timeout", "last_call_s"),
            ("settle_timeout", "settle_s"),
        )
        if key in conf
    }
    if "keep_alive_interval" in conf or "keep_alive_max_attempt" in conf:
        lease_s = float(conf.get("keep_alive_interval", 5)) * float(conf.get("keep_alive_max_attempt", 3))
        found["lease_s"] = max(SHORTEST_LEASE_S, lease_s)
    return found


def hosts(conf: dict[str, str]) -> bool | None:
    """Whether this node is to run the coordinator; None if nothing is said of it."""
    return conf["is_host"].lower() in _YES if "is_host" in conf else None


def parse_conf(text: str, name: str) -> dict[str, str]:
    """`a=1,b=2` as a dictionary. `name` is where the text came from."""
    conf: dict[str, str] = {}
    if not text.strip():
        return conf
    for part in text.split(","):
        key, _, said = part.partition("=")
        if not key.strip() or not said.strip():
            raise UsageError(f"{name}: {part.strip()!r} is not KEY=VALUE", "--rdzv-conf join_timeout=600,is_host=true")
        conf[key.strip()] = said.strip()
    return conf


def check_conf(conf: dict[str, str], backend: str, name: str, warn: Callable[[str], None]) -> None:
    """Refuses what cannot be meant, warns of what nobody reads. A plug-in's own keys are its own affair."""
    known = KEYS.get(backend)
    for key, said in conf.items():
        if key in _ELSEWHERE:
            raise UsageError(
                f"{name}: {key}={said} repeats what {_ELSEWHERE[key]} says", f"{_ELSEWHERE[key]} {said}, without {key}="
            )
        if known is None:
            continue
        reads = known.get(key)
        if reads is None:
            warn(_unread(key, backend, name))
        elif not reads(said):
            meaning, example = _MEANS[reads]
            raise UsageError(f"{name}: {key}={said} is not {meaning}", f"--rdzv-conf {key}={example}")


def _unread(key: str, backend: str, name: str) -> str:
    readers = [other for other, keys in KEYS.items() if key in keys]
    if readers:
        return f"{name}: the {backend} backend does not read {key} ({' and '.join(readers)} would)"
    meant = closest(key, sorted(KEYS[backend]))
    return f"{name}: nobody reads {key}" + (f"; did you mean {meant}?" if meant else "")
