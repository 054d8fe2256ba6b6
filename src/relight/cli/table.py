"""The table of options: spelling, variable, reader, default, group and one line of help; a row for each.

Owns how a single word is read and what is said when it cannot be. Everything else that speaks of options (parser,
help, completion, documentation) is made from these rows. What the words mean together is decided in `cli.plan`.
"""

from __future__ import annotations

import argparse

from relight.core.values import value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SHELLS = ("bash", "zsh", "fish")


class BadValue(argparse.ArgumentTypeError):
    """A word that an option cannot read. `source` is the variable it came from, if it came from one."""

    def __init__(self, text: str, complaint: str) -> None:
        self.source = text.variable if isinstance(text, FromEnvironment) else ""
        self.shown = shown(text)
        self.complaint = complaint
        super().__init__(f"{self.source + '=' if self.source else ''}{self.shown} {complaint}")


class FromEnvironment(str):
    """Text that a variable supplied, so that a complaint about it can name the variable."""

    variable: str

    def __new__(cls, text: str, variable: str) -> FromEnvironment:
        made = super().__new__(cls, text)
        made.variable = variable
        return made


def shown(text: object) -> str:
    """A word as it would be typed: quoted only where it has to be."""
    word = str(text)
    return word if word and not set(word) & set(" \t\n'\"$\\;&|<>()*?") else repr(word)


def closest(word: str, words: Sequence[str]) -> str:
    """The one of `words` that was probably meant, or nothing."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(word, words, 1, 0.65)), "")


def text(word: str) -> str:
    return str(word)


def whole(word: str) -> int:
    try:
        return int(word)
    except ValueError:
        raise BadValue(word, "is not a whole number") from None


def seconds(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        raise BadValue(word, "is not a number of seconds") from None


def listed(word: str) -> list[str]:
    """`a,b` as two words; `,,` is a comma inside one."""
    return [part.replace("\0", ",") for part in word.replace(",,", "\0").split(",")]


def switch(word: str) -> bool:
    """Whether a flag's variable is on. Empty counts as unset, because schedulers write PET_STANDALONE=\"\"."""
    if word.strip().lower() in ("", "0", "false", "no", "off", "n", "f"):
        return False
    if word.strip().lower() in ("true", "yes", "on", "y", "t"):
        return True
    try:
        return bool(int(word))
    except ValueError:
        raise BadValue(word, "is neither yes nor no") from None


def one_of(*words: str, variable_too: bool = True) -> Callable[[str], str]:
    """Reads one of `words`. torchrun never checks its choices where they come from a variable."""

    def choice(word: str) -> str:
        if word not in words and (variable_too or not isinstance(word, FromEnvironment)):
            raise BadValue(word, f"is not one of {', '.join(words)}")
        return str(word)

    return choice


@value
class Option:
    """One row of the table."""

    dest: str
    group: str
    line: str
    metavar: str = ""
    example: str = ""
    reader: Callable[[str], object] = text
    default: object = None
    short: str = ""
    choices: tuple[str, ...] = ()
    suggestions: tuple[str, ...] = ()  # words worth offering by completion, where others are possible too
    files: str = ""  # what completion offers: "folder", "file"
    has_variable: bool = True
    ours: bool = False  # torchrun has no such option: an abbreviation never means it where it could mean another

    @property
    def flag(self) -> bool:
        return self.reader is switch

    @property
    def long(self) -> str:
        return "--" + self.dest.replace("_", "-")

    @property
    def spellings(self) -> tuple[str, ...]:
        both = (self.long,) if "_" not in self.dest else (self.long, "--" + self.dest)
        return (self.short, *both) if self.short else both

    @property
    def variable(self) -> str:
        return "PET_" + self.dest.upper() if self.has_variable else ""


# fmt: off
WORKERS, SCRIPT, ENDING = "how many workers", "what they run", "failures, restarts and the end"
OUTPUT, MEETING, BEYOND = "what they print", "one node among others", "beyond torchrun"
GROUPS = (WORKERS, SCRIPT, ENDING, OUTPUT, MEETING, BEYOND)

OPTIONS = (
    Option("nnodes", MEETING, "nodes in the job: a number, or at least and at most", "N|MIN:MAX", "1", default="1:1"),
    Option("nproc_per_node", WORKERS, "workers on this node: a number, or one per accelerator or CPU",
           "N|auto|gpu|cpu|xpu", "4", default="1", suggestions=("auto", "gpu", "cpu", "xpu")),
    Option("rdzv_backend", MEETING, "how nodes find each other", "NAME", "c10d", default="static",
           suggestions=("static", "c10d", "etcd-v2", "etcd")),
    Option("rdzv_endpoint", MEETING, "where they meet", "HOST[:PORT]", "localhost:29400", default=""),
    Option("rdzv_id", MEETING, "the job's own name, the same on every node", "NAME", "my-job", default="none"),
    Option("rdzv_conf", MEETING, "more about the meeting", "KEY=VALUE,...", "join_timeout=600", default=""),
    Option("standalone", MEETING, "a job of its own on this node, whatever the other meeting options say",
           reader=switch, default=False),
    Option("max_restarts", ENDING, "restarts of all workers before giving up", "N", "3", whole, 0),
    Option("monitor_interval", ENDING, "accepted for torchrun's sake: relight notices an exit at once",
           "SECONDS", "0.1", seconds, 0.1),
    Option("event_log_handler", OUTPUT, "where torchrun's events go: null or console", "NAME", "console",
           default="null", suggestions=("null", "console")),
    Option("role", WORKERS, "what the workers are, for prefixes and for ROLE_RANK", "NAME", "trainer",
           default="default"),
    Option("module", SCRIPT, "the script is a module, as in python -m", reader=switch, default=False, short="-m"),
    Option("no_python", SCRIPT, "the script is a program of its own: run it without python",
           reader=switch, default=False),
    Option("run_path", SCRIPT, "run the script as a function in a Python child (wins over --no-python and -m)",
           reader=switch, default=False),
    Option("start_method", SCRIPT, "how processes begin that run a function", "METHOD", "spawn",
           one_of("spawn", "fork", "forkserver", variable_too=False), "spawn", choices=("spawn", "fork", "forkserver")),
    Option("log_dir", OUTPUT, "where log and error files go", "FOLDER", "logs", files="folder"),
    Option("redirects", OUTPUT, "to files only: 1 stdout, 2 stderr, 3 both; or by local rank, 0:3,1:2",
           "STREAMS", "3", default="0", short="-r", suggestions=("0", "1", "2", "3")),
    Option("tee", OUTPUT, "to files and to the console, with a prefix; written as for -r",
           "STREAMS", "3", default="0", short="-t", suggestions=("0", "1", "2", "3")),
    Option("local_ranks_filter", OUTPUT, "show only these local ranks on the console", "RANK,...", "0", default=""),
    Option("duplicate_stdout_filters", OUTPUT, "copy tee'd stdout lines that contain one of these to a file",
           "WORD,...", "loss,lr", listed, ()),
    Option("duplicate_stderr_filters", OUTPUT, "the same for stderr", "WORD,...", "Error", listed, ()),
    Option("node_rank", MEETING, "this node's place (static backend only)", "N", "0", whole, 0),
    Option("master_addr", MEETING, "where the first node is (static backend only)", "HOST", "127.0.0.1",
           default="127.0.0.1"),
    Option("master_port", MEETING, "the port of the workers' store there; given alone: that very port here",
           "PORT", "29500", whole),
    Option("local_addr", MEETING, "the address this node is known by", "HOST", "10.0.0.4"),
    Option("logs_specs", OUTPUT, "a plug-in that says where output goes", "NAME", "default", has_variable=False),
    Option("numa_binding", WORKERS, "keep each worker on CPUs near its accelerator", "MODE", "node",
           one_of("node", "socket", "exclusive", "core-complex"), has_variable=False,
           choices=("node", "socket", "exclusive", "core-complex")),
    Option("signals_to_handle", ENDING, "signals that end the job cleanly", "NAME,...", "SIGTERM,SIGINT",
           default="SIGTERM,SIGINT,SIGHUP,SIGQUIT"),
    Option("shutdown_timeout", ENDING, "how long a worker may take to end before it is killed (30)",
           "SECONDS", "30", whole),
    Option("virtual_local_rank", WORKERS, "every worker sees one accelerator and has LOCAL_RANK 0",
           reader=switch, default=False),
    Option("log_line_prefix_template", OUTPUT, "the prefix, from ${role_name} ${local_rank} ${rank} ${hostname}",
           "TEXT", "[${rank}]: ", default=""),
    Option("restart_rate", BEYOND, "besides --max-restarts, at most R restarts within any SECONDS",
           "R/SECONDS", "5/600", default="", ours=True),
    Option("exit_codes", BEYOND, "exit as torchrun does (0, 1, 2), or say more", "KIND", "detailed",
           one_of("torchrun", "detailed"), "torchrun", choices=("torchrun", "detailed"), ours=True),
    Option("on_node_loss", BEYOND, "when a loss leaves too few nodes: wait for another one, or fail at once",
           "WHAT", "fail", one_of("wait", "fail"), "wait", choices=("wait", "fail"), ours=True),
    Option("token_file", BEYOND, "a file with the job's secret: only nodes that know it may join (or RELIGHT_TOKEN)",
           "FILE", "~/.relight-token", default="", files="file", ours=True),
    Option("no_forgive_teardown", BEYOND, "a worker that aborts after its main module has returned has failed",
           reader=switch, default=False, ours=True),
)
USE_ENV = Option("use_env", SCRIPT, "do not pass --local-rank=N to the script: it reads LOCAL_RANK",
                 reader=switch, default=False, has_variable=False)
# fmt: on

BY_DEST = {option.dest: option for option in (*OPTIONS, USE_ENV)}
