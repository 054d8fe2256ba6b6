"""What was seen in a run, as plain JSON in which nothing is left to chance: no pids, ports, dates, folders.

The words are the same for both launchers, so that two observations can be compared leaf by leaf.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import stat
import sys
import sysconfig
from typing import Any

from .case import Case
from .running import BIN, Run

SAID = re.compile(r"~\d")  # the mark on every line that a case's worker says
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


class Names:
    """Turns what changes from run to run into words that do not."""

    def __init__(self, happened: Run) -> None:
        self.happened = happened
        self.uuids: dict[str, str] = {}
        self.ports: dict[str, str] = {str(happened.port): "<free-port>"}
        self.run_ids: set[str] = set()
        site = sysconfig.get_paths()["purelib"]
        self.places = [
            (happened.root, "<run>"),
            (sys.executable, "<python>"),
            (BIN, "<bin>"),
            (site, "<site>"),
            (sysconfig.get_paths()["stdlib"], "<stdlib>"),
        ]

    def text(self, text: str) -> str:
        for place, word in self.places:
            text = text.replace(place, word)
        text = UUID.sub(self._uuid, text)
        text = re.sub(r"<python>[0-9.]*", "<python>", text)
        text = re.sub(r"(torchelastic|relight)_[a-z0-9_]{8}(?![a-z0-9_])", r"\1_<random>", text)
        for run_id in self.run_ids:
            text = re.sub(rf"(?<=/){re.escape(run_id)}_[A-Za-z0-9_]{{8}}(?=/|$)", f"{run_id}_<random>", text)
        text = re.sub(r"(<uuid-\d+>)_[A-Za-z0-9_]{8}(?=/)", r"\1_<random>", text)
        text = re.sub(r"(?<![0-9A-Za-z])\d{5,10}_(?:<random>)", "<number>_<random>", text)
        text = re.sub(r"\b(tracker_fd|pipe_handle)=\d+", r"\1=<n>", text)
        text = re.sub(r"pytorch-errorfile-\w{8}", "pytorch-errorfile-<random>", text)
        text = re.sub(r"\bpid: \d+", "pid: <pid>", text)
        text = re.sub(r"\bPID \d+", "PID <pid>", text)
        return re.sub(rf"\b{self.happened.port}\b", "<free-port>", text)

    def texts(self, texts: list[str]) -> list[str]:
        return [self.text(text) for text in texts]

    def port(self, port: str) -> str:
        return self.ports.setdefault(port, f"<port-{len(self.ports)}>")

    def _uuid(self, found: re.Match[str]) -> str:
        return self.uuids.setdefault(found[0], f"<uuid-{len(self.uuids) + 1}>")


def observe(case: Case, happened: Run) -> dict[str, Any]:
    """Everything both launchers must agree on."""
    raw = _raw_worlds(happened.place("out"))
    names = Names(happened)
    for world in raw.values():
        if (run_id := world["env"].get("TORCHELASTIC_RUN_ID", "")) != "":
            names.run_ids.add(names.text(run_id))
    seen: dict[str, Any] = {
        "exit": happened.exits,
        "world": {key: _world(world, happened, names) for key, world in raw.items()},
        "inner": {key: _world(world, happened, names) for key, world in _inner(happened).items()},
        "notes": _notes(happened),
        "left_running": names.texts(happened.left_running),
        "logs": _tree(happened.place("logs"), names),
        "made": _made(case, happened, names),
        "tmp": _tree(happened.place("tmp"), names),
        "parent": _parent(happened, names),
    }
    stderr = happened.read("stderr")
    stdout = names.texts(_lines(happened.read("stdout")))
    alone = len(raw) + len(_inner(happened)) <= 1
    seen["stdout"] = stdout if alone else sorted(stdout)
    seen["stderr"] = [line for line in names.texts(_lines(stderr)) if SAID.search(line)]
    if not alone:
        seen["stderr"].sort()
    seen["report"] = _reports(names.texts(_lines(stderr)))
    seen["manner"] = _manner(stderr, bool(raw))
    return dict(brief(seen))


def brief(node: Any) -> Any:
    """The same with very long texts and lists told by their length and a digest."""
    if isinstance(node, dict):
        return {name: brief(inner) for name, inner in node.items()}
    if isinstance(node, list):
        inner = [brief(each) for each in node]
        return inner if len(inner) <= 200 else [inner[0], _digest(inner), inner[-1]]
    if isinstance(node, str) and len(node) > 2000:
        return node[:20] + _digest(node)
    return node


def _digest(node: Any) -> str:
    told = hashlib.sha256(json.dumps(node).encode()).hexdigest()[:12]
    return f"<{len(node)} in all, sha256 {told}>"


def _lines(text: str) -> list[str]:
    """The lines of a text; a last line that is not ended says so."""
    *lines, rest = text.split("\n")
    return [*lines, f"{rest}<no end of line>"] if rest else lines


def _raw_worlds(folder: str) -> dict[str, dict[str, Any]]:
    worlds = {}
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        if name.endswith(".json") and re.fullmatch(r"-?\d+\.-?\d+\.json", name):
            with open(f"{folder}/{name}") as file:
                worlds[name.removesuffix(".json")] = json.load(file)
    return worlds


def _inner(happened: Run) -> dict[str, dict[str, Any]]:
    return _raw_worlds(happened.place("out/inner"))


def _world(world: dict[str, Any], happened: Run, names: Names) -> dict[str, Any]:
    """One worker's world; its parent is named by its part, its port by its order."""
    env = {name: names.text(text) for name, text in world["env"].items()}
    if "MASTER_PORT" in env:
        env["MASTER_PORT"] = names.port(world["env"]["MASTER_PORT"])
    if re.fullmatch(r"\d{5,}", env.get("TORCHELASTIC_RUN_ID", "")):
        env["TORCHELASTIC_RUN_ID"] = "<number>"
    if (address := env.get("MASTER_ADDR")) is not None and address == socket.getfqdn():
        env["MASTER_ADDR"] = "<fqdn>"
    return {
        **{key: names.texts(world[key]) for key in ("argv", "command")},
        "main": [names.text(str(word)) for word in world["main"]],
        "path0": names.text(world["path0"]),
        "env": env,
        "cwd": names.text(world["cwd"]),
        "descriptors": {fd: names.text(where) for fd, where in world["descriptors"].items()},
        "parent": "launcher" if world["parent"] in happened.launcher_pids else "another process",
        "stdin": world["stdin"],
        **{key: world[key] for key in ("umask", "signals", "leads_group", "leads_session", "nice")},
    }


def _notes(happened: Run) -> dict[str, list[str]]:
    folder = happened.place("out")
    return {
        name.removesuffix(".notes"): _lines(happened.read(f"out/{name}"))
        for name in sorted(os.listdir(folder))
        if name.endswith(".notes")
    }


def _tree(root: str, names: Names) -> dict[str, Any]:
    """Every folder and file below `root`: its mode and its lines, or the fields of an error file."""
    found: dict[str, Any] = {}
    for folder, _, files in os.walk(root):
        inside = folder[len(root) :]
        short = re.sub(r"^/([^/]+)_[A-Za-z0-9_]{8}(?=/|$)", r"/\1_<random>", inside)
        short = re.sub(r"^(/(?:torchelastic|relight)_<random>/[^/]+)_[A-Za-z0-9_]{8}(?=/|$)", r"\1_<random>", short)
        short = re.sub(r"(?<=/)\d{5,}(?=_<random>)", "<number>", names.text(short))
        found[short + "/"] = {"mode": _mode(folder)}
        for name in files:
            path = f"{folder}/{name}"
            found[f"{short}/{names.text(name)}"] = {"mode": _mode(path), **_file(path, names)}
    return found


def _mode(path: str) -> str:
    return oct(stat.S_IMODE(os.lstat(path).st_mode))


def _file(path: str, names: Names) -> dict[str, Any]:
    if stat.S_ISSOCK(os.lstat(path).st_mode):
        return {"kind": "socket"}
    with open(path, "rb") as file:
        content = file.read()
    if path.endswith("error.json"):
        return {"error": _error_file(content, names)}
    lines = names.texts(content.decode("utf-8", "backslashreplace").split("\n"))
    # several workers write into a filtered file: its order is theirs
    return {"lines": sorted(lines) if "filtered" in path else lines}


def _error_file(content: bytes, names: Names) -> Any:
    try:
        return _calm(json.loads(content), names)
    except ValueError:
        return names.text(content.decode("utf-8", "backslashreplace"))


def _calm(node: Any, names: Names, key: str = "") -> Any:
    """The JSON of an error file without dates; the type of a date stays visible."""
    if isinstance(node, dict):
        return {name: _calm(inner, names, name) for name, inner in node.items()}
    if "timestamp" in key:
        return f"<{type(node).__name__}>" if str(node) not in ("0", "1", "7") else node
    if isinstance(node, str):
        return _traceback(names.texts(node.split("\n")))
    return node


def _traceback(lines: list[str]) -> list[str]:
    """A traceback without what belongs to one version of Python or torch: carets, numbers in libraries."""
    kept = [line for line in lines if not re.fullmatch(r"\s*[~^]+\s*", line)]
    return [re.sub(r'(File "<(?:site|stdlib)>.*), line \d+', r"\1, line <n>", line) for line in kept]


def _made(case: Case, happened: Run, names: Names) -> dict[str, Any]:
    """What appeared in the working folder, the scripts aside."""
    ours = {"look.py", "plain.py", "job.py", "pkg", *(name.split("/")[0] for name in case.files)}
    root = happened.place("work")
    found: dict[str, Any] = {}
    for name in sorted(set(os.listdir(root)) - ours):
        path = f"{root}/{name}"
        found[name] = _tree(path, names) if os.path.isdir(path) else _file(path, names)
    return found


def _parent(happened: Run, names: Names) -> Any:
    path = happened.place("out/parent.json")
    if not os.path.exists(path):
        return None
    with open(path, "rb") as file:
        return _error_file(file.read(), names)


def _is_rule(line: str, of: str) -> bool:
    return len(line) >= 10 and set(line) == {of}


def _reports(lines: list[str]) -> list[list[str]]:
    """The report blocks: from a rule of = followed by `NAME FAILED` to the next such rule."""
    blocks = []
    for start, line in enumerate(lines[:-1]):
        if not (_is_rule(line, "=") and lines[start + 1].endswith(" FAILED")):
            continue
        block = []
        for inside in lines[start + 1 :]:
            if _is_rule(inside, "="):
                break
            block.append(_calm_line(inside.rstrip()))
        blocks.append(_traceback(block))
    return sorted(blocks)


def _calm_line(line: str) -> str:
    if _is_rule(line, "-"):
        return "---"
    line = re.sub(r"^(  time +: )\d{4}-\d\d-\d\d_\d\d:\d\d:\d\d$", r"\1<time>", line)
    line = re.sub(rf"^(  host +: ){re.escape(socket.getfqdn())}$", r"\1<fqdn>", line)
    return re.sub(rf"^(  host +: ){re.escape(socket.gethostname())}$", r"\1<hostname>", line)


def _manner(stderr: str, workers: bool) -> dict[str, bool]:
    """How the launcher itself spoke on stderr."""
    launcher = re.search(r"^\S*(?:ChildFailedError|SignalException)\b", stderr, re.MULTILINE)
    return {
        "usage": bool(re.search(r"^usage:", stderr, re.MULTILINE | re.IGNORECASE)),
        "traceback": bool(launcher) or (not workers and "Traceback (most recent call last)" in stderr),
    }


def flat(seen: Any, path: str = "") -> dict[str, Any]:
    """Leaves by their path, `world/0.1/env/RANK`; a list is a leaf, an empty dict is nothing."""
    if not isinstance(seen, dict):
        return {path: seen}
    leaves: dict[str, Any] = {}
    for key, inner in seen.items():
        leaves.update(flat(inner, f"{path}/{key}" if path else str(key)))
    return leaves
