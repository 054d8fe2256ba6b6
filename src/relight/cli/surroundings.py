"""What `relightctl env` says: the machine, torch, names, ports and variables that a bug report needs.

torch is never imported: its own files say what it is. Every question that could take long has a deadline, what
cannot be told says why, and what looks like a secret is hidden.
"""

from __future__ import annotations

import os
import re
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

PORTS = {29500: "master port of the static backend", 29400: "rendezvous port of c10d"}
RESOLVE_S = 2.0  # a resolver that knows nothing may take half a minute to say so

_SECRET = re.compile(r"TOKEN|KEY|SECRET|PASSW|CREDENTIAL|AUTH", re.IGNORECASE)
_ASSIGNED = re.compile(rf"([^\s,;&=]*(?:{_SECRET.pattern})[^\s,;&=]*=)[^\s,;&]+", re.IGNORECASE)
_USERINFO = re.compile(r"(?<=://)[^/@\s]+(?=@)")
_RELEVANT = re.compile(
    r"^(PET_|TORCH|PYTORCH|NCCL_|RCCL_|GLOO_|UCC_|UCX_|FI_|CUDA|NVIDIA_|HIP_|HSA_|ROCR_|ROCM|ZE_|ONEAPI_|CCL_|OMP_|"
    r"MKL_|KMP_|PYTHON|VIRTUAL_ENV|CONDA_|SLURM_|KUBERNETES_|HOSTNAME|HF_|ACCELERATE_|RELIGHT|USE_LIBUV|LD_|TMPDIR|"
    r"LOGLEVEL|LANG$|LC_|TERM$|NO_COLOR|FORCE_COLOR|PATH$|(RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|GROUP_RANK|"
    r"MASTER_ADDR|MASTER_PORT)$|(https?|no|all)_proxy$)",
    re.IGNORECASE,
)
HIDDEN = "(hidden)"


def versions() -> dict[str, str]:
    """relight, Python and torch; torch without importing it."""
    from relight import __version__

    return {
        "relight": __version__,
        "python": f"{sys.version.split()[0]} ({sys.implementation.name}), {sys.executable}",
        "torch": torch_version(),
    }


def torch_version() -> str:
    """What torch's own version file says, with the CUDA, ROCm or XPU it was built for."""
    from importlib.util import find_spec

    try:
        spec = find_spec("torch")
    except (ImportError, ValueError):
        spec = None
    if spec is None or not spec.submodule_search_locations:
        return "not installed for this Python"
    folder = next(iter(spec.submodule_search_locations))
    try:
        with open(os.path.join(folder, "version.py"), encoding="utf-8", errors="replace") as file:
            said = dict(re.findall(r"^(\w+)(?::[^=]*)? *= *['\"]([^'\"]+)['\"]", file.read(20_000), re.MULTILINE))
    except OSError as error:
        return f"in {folder}, but {error.strerror}"
    built = [f"{kind} {said[kind]}" for kind in ("cuda", "hip", "xpu") if kind in said]
    return ", ".join([said.get("__version__", "of unknown version"), *built, folder])


def surroundings(environ: Mapping[str, str], root: str = "/") -> dict[str, object]:
    """The whole report, in sections."""
    return {
        "versions": versions(),
        "machine": _machine(environ, root),
        "container": _container(environ, root),
        "limits": _limits(),
        "names": names(os.uname().nodename),
        "ports": {str(port): f"{_port(port, root)} ({what})" for port, what in PORTS.items()},
        "variables": variables(environ),
    }


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that matter to a launch, without their secrets."""
    return {name: hidden(name, environ[name]) for name in sorted(environ) if _RELEVANT.match(name)}


def hidden(name: str, said: str) -> str:
    """A variable's value, unless its name speaks of a secret; a URL loses its user and password, a pair its value."""
    if said and _SECRET.search(name):
        return HIDDEN
    return _ASSIGNED.sub(lambda found: found[1] + HIDDEN, _USERINFO.sub(HIDDEN, said))


def names(host: str, resolve: Callable[[str], str] | None = None, wait_s: float = RESOLVE_S) -> dict[str, str]:
    """How the names that workers may be told resolve here. A resolver that is silent is left alone."""
    import threading
    import time

    answers: dict[str, str] = {}

    def ask(name: str) -> None:
        started = time.monotonic()
        answer = (resolve or _resolve)(name)
        answers[name] = f"{answer} (in {(time.monotonic() - started) * 1000:.0f} ms)"

    asked = list(dict.fromkeys((host, "localhost")))
    threads = [threading.Thread(target=ask, args=(name,), daemon=True) for name in asked]
    for thread in threads:
        thread.start()
    until = time.monotonic() + wait_s
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    return {name: answers.get(name, f"no answer within {wait_s:g} s") for name in asked}


def as_text(report: Mapping[str, Any]) -> str:
    """The report for people."""
    lines: list[str] = []
    for title, section in report.items():
        lines += [title, *_indented(section, "  "), ""]
    return "\n".join(lines)


def _indented(section: object, indent: str) -> list[str]:
    if not isinstance(section, dict):
        return [f"{indent}{_plain(section)}"]
    lines = []
    for name, entry in section.items():
        if isinstance(entry, dict) and entry:
            lines += [f"{indent}{name}", *_indented(entry, indent + "  ")]
        else:
            lines.append(f"{indent}{name:<28} {_plain(entry, name)}")
    return lines


def _plain(entry: object, name: str = "") -> str:
    if entry is None:
        return "none"
    if isinstance(entry, (list, tuple)):
        return ", ".join(_plain(part) for part in entry) or "none"
    if isinstance(entry, dict):
        return " ".join(f"{key}={_plain(part)}" for key, part in entry.items()) or "none"
    if name.endswith("_bytes") and isinstance(entry, int):
        return f"{entry / 2**30:.1f} GiB"
    return str(entry)


def _resolve(name: str) -> str:
    import socket

    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM, flags=socket.AI_CANONNAME)
    except OSError as error:
        return f"does not resolve: {error.strerror or error}"
    addresses = ", ".join(dict.fromkeys(str(entry[4][0]) for entry in found))
    canonical = found[0][3]
    return addresses + (f", canonical name {canonical}" if canonical and canonical != name else "")


def _machine(environ: Mapping[str, str], root: str) -> dict[str, object]:
    from relight.shell.machine import Machine

    release = _read(os.path.join(root, "etc/os-release"))
    named = re.search(r'^PRETTY_NAME="?([^"\n]+)', release, re.MULTILINE)
    return {"system": named.group(1) if named else "unknown", **Machine(environ, root=root).describe()}


def _container(environ: Mapping[str, str], root: str) -> dict[str, object]:
    from relight.shell.kernel import memory_groups

    signs = [name for name in (".dockerenv", "run/.containerenv") if os.path.exists(os.path.join(root, name))]
    if "KUBERNETES_SERVICE_HOST" in environ:
        signs.append("Kubernetes")
    found: dict[str, object] = {"signs": signs, "process_id": os.getpid(), "parent": os.getppid()}
    for _version, folder in memory_groups(root)[:1]:
        for name in ("cpu.max", "pids.max", "pids.current", "memory.max", "memory.high", "memory.limit_in_bytes"):
            said = _read(os.path.join(folder, name)).strip()
            if said:
                found[name] = said
    try:
        shm = os.statvfs(os.path.join(root, "dev/shm"))
        found["dev_shm_bytes"] = shm.f_blocks * shm.f_frsize
    except OSError as error:
        found["dev_shm_bytes"] = f"unknown: {error.strerror}"
    return found


def _limits() -> dict[str, str]:
    import resource

    kinds = {"open files": "RLIMIT_NOFILE", "processes": "RLIMIT_NPROC", "core file": "RLIMIT_CORE"}
    kinds |= {"locked memory": "RLIMIT_MEMLOCK", "address space": "RLIMIT_AS", "stack": "RLIMIT_STACK"}
    found = {}
    for what, name in kinds.items():
        if hasattr(resource, name):
            soft, hard = (
                "unlimited" if limit == resource.RLIM_INFINITY else str(limit)
                for limit in resource.getrlimit(getattr(resource, name))
            )
            found[what] = f"{soft} (at most {hard})"
    return found


def _port(port: int, root: str) -> str:
    """Whether something listens on a TCP port, from the kernel's table: nothing is bound or connected to."""
    listening = re.compile(rf"^ *\d+: [0-9A-F]+:{port:04X} [0-9A-F]+:0000 0A ", re.MULTILINE)
    tables = [_read(os.path.join(root, "proc/net", name)) for name in ("tcp", "tcp6")]
    if not any(tables):
        return "unknown: this system has no /proc/net/tcp"
    return "in use" if any(listening.search(table) for table in tables) else "free"


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(4_000_000)
    except OSError:
        return ""
