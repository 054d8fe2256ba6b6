"""The grammar of the command line: which words mean what, and what is said when they mean nothing."""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

import pytest

from relight.cli.options import Choices, Parser, build_parser, parse
from relight.cli.printing import error_text
from relight.cli.table import BY_DEST, GROUPS, OPTIONS
from relight.core.names import UsageError

TORCHRUN_DESTS = re.findall(
    r"\w+",
    """
    nnodes nproc_per_node rdzv_backend rdzv_endpoint rdzv_id rdzv_conf standalone max_restarts monitor_interval
    start_method event_log_handler role module no_python run_path log_dir redirects tee local_ranks_filter
    duplicate_stdout_filters duplicate_stderr_filters node_rank master_addr master_port local_addr logs_specs
    numa_binding signals_to_handle shutdown_timeout virtual_local_rank log_line_prefix_template training_script
    training_script_args
    """,
)


def read(line: str | list[str], **environ: str) -> Choices:
    return parse(line.split() if isinstance(line, str) else line, environ)


def refused(line: str | list[str], **environ: str) -> UsageError:
    with pytest.raises(UsageError) as caught:
        read(line, **environ)
    return caught.value


def test_the_names_are_those_that_other_programs_read() -> None:
    chosen = vars(read("train.py"))
    assert [dest for dest in TORCHRUN_DESTS if dest not in chosen] == []
    assert "said" not in chosen


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.dest)
def test_both_spellings_mean_the_same(option: Any) -> None:
    value = [] if option.flag else ["3/7" if option.dest == "restart_rate" else option.example]
    meanings = [getattr(read([spelling, *value, "train.py"]), option.dest) for spelling in option.spellings]
    assert len({repr(meaning) for meaning in meanings}) == 1
    assert meanings[0] != getattr(read("train.py"), option.dest) or option.example == str(option.default)
    assert option.group in GROUPS


@pytest.mark.parametrize("option", [o for o in OPTIONS if o.has_variable], ids=lambda option: option.dest)
def test_an_option_wins_over_its_variable_and_the_variable_over_the_default(option: Any) -> None:
    said = "1" if option.flag else option.example
    argument = [option.long] if option.flag else [option.long, said]
    typed = getattr(read([*argument, "train.py"]), option.dest)
    assert getattr(read("train.py", **{option.variable: said}), option.dest) == typed
    assert getattr(read([*argument, "train.py"], **{option.variable: "0"}), option.dest) == typed


@pytest.mark.parametrize("name", ["PET_LOGS_SPECS", "PET_NUMA_BINDING", "PET_T", "PET_R", "PET_M"])
def test_variables_that_are_none(name: str) -> None:
    assert vars(read("train.py", **{name: "3"})) == vars(read("train.py"))


@pytest.mark.parametrize(
    ("line", "dest", "meaning"),
    [
        ("--nproc-per 1 s.py", "nproc_per_node", "1"),
        ("--nproc_p 1 s.py", "nproc_per_node", "1"),
        ("--nproc 2 s.py", "nproc_per_node", "2"),
        ("--nproc=2 s.py", "nproc_per_node", "2"),
        ("--max-r 1 s.py", "max_restarts", 1),
        ("--stand s.py", "standalone", True),
        ("--rdzv-b c10d s.py", "rdzv_backend", "c10d"),
        ("--no-p ./x", "no_python", True),
        ("--no- ./x", "no_python", True),
        ("--re 3 s.py", "redirects", "3"),
        ("--ro x s.py", "role", "x"),
        ("--v s.py", "virtual_local_rank", True),
        ("--e console s.py", "event_log_handler", "console"),
        ("--restart 1/2 s.py", "restart_rate", "1/2"),
        ("--exit detailed s.py", "exit_codes", "detailed"),
        ("-r3 s.py", "redirects", "3"),
        ("-r=3 s.py", "redirects", "3"),
        ("-r 0:1,10:3 s.py", "redirects", "0:1,10:3"),
        ("-t3 s.py", "tee", "3"),
        ("-mr 3 pkg", "redirects", "3"),
        ("-mr3 pkg", "module", True),
        ("--max-restarts -1 s.py", "max_restarts", -1),
        ("--max-restarts=-1 s.py", "max_restarts", -1),
        ("--tee 1 -t 2 s.py", "tee", "2"),
        ("--duplicate-stdout-filters a,b s.py", "duplicate_stdout_filters", ["a", "b"]),
        ("--duplicate-stdout-filters a,,b,c s.py", "duplicate_stdout_filters", ["a,b", "c"]),
    ],
)
def test_one_word_in_many_shapes(line: str, dest: str, meaning: object) -> None:
    assert getattr(read(line), dest) == meaning


@pytest.mark.parametrize(
    ("line", "script", "rest"),
    [
        ("s.py --nproc-per-node 2 --help", "s.py", ["--nproc-per-node", "2", "--help"]),
        ("-- s.py a -- b", "s.py", ["a", "--", "b"]),
        ("s.py -- --x", "s.py", ["--x"]),
        ("s.py -- -- y", "s.py", ["--", "y"]),
        ("s.py a -- --x", "s.py", ["a", "--", "--x"]),
        ("--tee 3 -- s.py --tee 1", "s.py", ["--tee", "1"]),
        ("s.py --log x --rdzv y --n", "s.py", ["--log", "x", "--rdzv", "y", "--n"]),
        ("-m pkg.mod -m -r3", "pkg.mod", ["-m", "-r3"]),
        ("s.py -1 --lr=-0.5", "s.py", ["-1", "--lr=-0.5"]),
        ("s.py -r", "s.py", ["-r"]),
    ],
)
def test_what_the_script_receives(line: str, script: str, rest: list[str]) -> None:
    chosen = read(line)
    assert (chosen.training_script, chosen.training_script_args) == (script, rest)


@pytest.mark.parametrize("word", ["1", "2", "true", "True", "yes", "on"])
def test_a_flag_that_a_variable_turns_on(word: str) -> None:
    assert read("s.py", PET_STANDALONE=word).standalone is True


@pytest.mark.parametrize("word", ["0", "false", "no", "off", "", " "])
def test_a_flag_that_a_variable_leaves_off(word: str) -> None:
    assert read("s.py", PET_STANDALONE=word).standalone is False
    assert read("--standalone s.py", PET_STANDALONE=word).standalone is True


@pytest.mark.parametrize(
    ("variable", "word", "line"),
    [
        ("PET_MAX_RESTARTS", "abc", "--max-restarts 1 s.py"),
        ("PET_STANDALONE", "perhaps", "--standalone s.py"),
        ("PET_MONITOR_INTERVAL", "", "--monitor-interval 1 s.py"),
    ],
)
def test_a_bad_variable_is_only_looked_at_when_it_is_needed(variable: str, word: str, line: str) -> None:
    read(line, **{variable: word})
    wrong = refused("s.py", **{variable: word})
    assert wrong.what.startswith(f"{variable}=")
    assert variable in wrong.remedy


def test_a_start_method_from_a_variable_is_not_checked() -> None:
    assert read("s.py", PET_START_METHOD="bogus").start_method == "bogus"


@pytest.mark.parametrize(
    ("line", "what", "remedy"),
    [
        ("", "no script was named", "relight [options] train.py [its arguments]"),
        ("--standalone", "no script was named", "relight [options] train.py [its arguments]"),
        ("--", "no script was named", "relight [options] train.py [its arguments]"),
        ("--hlep", "there is no option --hlep", "--help, or relight --help"),
        ("--standalone --nnodes 1 -q", "there is no option -q", "relight --help"),
        ("--nope s.py", "there is no option --nope", "relight --help for all options"),
        ("-x s.py", "there is no option -x", "relight --help for all options"),
        ("--nproc-pernode 2 s.py", "there is no option --nproc-pernode", "--nproc-per-node, or"),
        ("--nproc_pernode=2 s.py", "there is no option --nproc_pernode", "--nproc-per-node, or"),
        ("--max-restart-s=2 s.py", "there is no option --max-restart-s", "--max-restarts, or"),
        ("-np 4 s.py", "there is no option -np", "--nproc-per-node, or"),
        ("--num_processes 4 s.py", "there is no option --num_processes", "--nproc-per-node, or"),
        (
            "--rdzv c10d s.py",
            "--rdzv could be --rdzv-backend or --rdzv-endpoint or --rdzv-id or --rdzv-conf",
            "--rdzv-b",
        ),
        ("--log=x s.py", "--log could be --log-dir or --logs-specs or --log-line-prefix-template", "--log-dir"),
        (
            "--start-method thread s.py",
            "--start-method thread is not one of spawn, fork, forkserver",
            "--start-method s",
        ),
        ("--numa-binding=none s.py", "--numa-binding none is not one of node", "--numa-binding node"),
        ("--exit-codes=all s.py", "--exit-codes all is not one of torchrun, detailed", "--exit-codes detailed"),
        ("--max-restarts many s.py", "--max-restarts many is not a whole number", "--max-restarts 3"),
        ("--max_restarts 1.5 s.py", "--max-restarts 1.5 is not a whole number", "--max-restarts 3"),
        ("--max-restarts= s.py", "--max-restarts '' is not a whole number", "--max-restarts 3"),
        ("--monitor-interval often s.py", "--monitor-interval often is not a number", "--monitor-interval 0.1"),
        ("--node-rank first s.py", "--node-rank first is not a whole number", "--node-rank 0"),
        ("--master-port http s.py", "--master-port http is not a whole number", "--master-port 29500"),
        ("--shutdown-timeout 1.5 s.py", "--shutdown-timeout 1.5 is not a whole number", "--shutdown-timeout 30"),
        ("--nproc-per-node", "--nproc-per-node needs a value", "--nproc-per-node 4"),
        ("-r", "--redirects needs a value", "--redirects 3"),
        ("--standalone=1 s.py", "--standalone takes no value", "--standalone"),
        ("--module=x pkg", "--module takes no value", "--module"),
        ("--print-completion tcsh", "--print-completion tcsh is not one of bash, zsh, fish", "--print-completion bash"),
    ],
)
def test_a_complaint_says_what_is_wrong_and_what_to_type(line: str, what: str, remedy: str) -> None:
    wrong = refused(line)
    assert wrong.what.startswith(what)
    assert wrong.remedy.startswith(remedy)
    assert error_text(wrong) == f"relight: error: {wrong.what}\n  try: {wrong.remedy}\n"


def test_other_programs_get_an_exit_with_2_and_two_lines() -> None:
    told = io.StringIO()
    with redirect_stderr(told), pytest.raises(SystemExit) as ended:
        build_parser({}).parse_args(["--nope", "s.py"])
    assert ended.value.code == 2
    assert told.getvalue().splitlines() == [
        "relight: error: there is no option --nope",
        "  try: relight --help for all options",
    ]


def test_the_spelling_is_remembered_beside_the_choice() -> None:
    chosen = read("--nproc 2 -r 3 --log_dir x s.py")
    assert chosen.said == {"nproc_per_node": "--nproc-per-node", "redirects": "-r", "log_dir": "--log_dir"}
    assert "said" not in vars(chosen)


def test_a_list_inside_argv_reaches_the_script_as_accelerate_needs_it() -> None:
    argv: list[Any] = ["--training_script", "s.py", "--training_script_args", ["--lr", "1"]]
    chosen, rest = build_parser({}).parse_known_args(argv)
    assert chosen.training_script == "s.py"
    assert chosen.training_script_args == ["--training_script_args", ["--lr", "1"]]
    assert rest == ["--training_script"]


def test_the_actions_work_in_another_parser_as_torchtune_needs_it() -> None:
    other = argparse.ArgumentParser(prog="tune")
    for action in build_parser({"PET_NPROC_PER_NODE": "2", "PET_MAX_RESTARTS": "3"})._actions:
        if action.dest == "help":
            continue
        if action.dest == "training_script":
            action.dest = "recipe"
        if action.dest == "training_script_args":
            action.dest = "recipe_args"
        other._add_action(action)
    chosen = other.parse_args(["--tee", "3", "lora", "--config", "c"])
    assert (chosen.recipe, chosen.recipe_args, chosen.tee) == ("lora", ["--config", "c"], "3")
    assert (chosen.nproc_per_node, chosen.max_restarts, chosen.standalone) == ("2", 3, False)
    assert "--nproc-per-node" in other.format_help()


def test_a_bad_variable_is_named_in_another_parser_too() -> None:
    other = argparse.ArgumentParser(prog="tune")
    for action in build_parser({"PET_MAX_RESTARTS": "abc"})._actions:
        if action.dest != "help":
            other._add_action(action)
    told = io.StringIO()
    with redirect_stderr(told), pytest.raises(SystemExit):
        other.parse_args(["s.py"])
    assert "PET_MAX_RESTARTS=abc is not a whole number" in told.getvalue()


def test_options_may_be_added_and_abbreviations_forbidden_as_dlrover_does() -> None:
    parser = build_parser({})
    parser.allow_abbrev = False
    parser.add_argument("--network-check", "--network_check", action="store_true")
    assert parser.parse_args(["--network-check", "s.py"]).network_check is True
    with pytest.raises(SystemExit), redirect_stderr(io.StringIO()):
        parser.parse_args(["--netw", "s.py"])
    assert "--network-check" in parser.format_help()


def test_the_parser_is_fresh_each_time() -> None:
    first = read("--duplicate-stdout-filters a s.py")
    first.duplicate_stderr_filters.append("x")
    assert read("s.py").duplicate_stderr_filters == []
    assert isinstance(build_parser({}), Parser)
    assert build_parser({}) is not build_parser({})


@pytest.mark.parametrize(
    ("argv", "start"),
    [
        (["--version"], "relight "),
        (["--help"], "usage: relight "),
        (["--print-completion", "bash"], "# bash completion"),
    ],
)
def test_words_that_print_and_end(argv: list[str], start: str) -> None:
    told = io.StringIO()
    with redirect_stdout(told), pytest.raises(SystemExit) as ended:
        read(argv)
    assert ended.value.code in (0, None)
    assert told.getvalue().startswith(start)


def test_every_line_of_help_survives_argparse() -> None:
    plain = argparse.ArgumentParser()
    for action in build_parser({})._actions[1:]:
        plain._add_action(action)
    assert BY_DEST["nnodes"].line.split()[0] in plain.format_help()


def test_reading_the_words_imports_nothing_heavy() -> None:
    program = (
        "import argparse, sys, relight.core.names\n"
        "from relight.cli import options\n"
        "loaded = set(sys.modules)\n"
        "options.parse(['--nproc-per-node', '2', '-r3', 'train.py', '--lr', '1'], {'PET_TEE': '3'})\n"
        "print(*sorted(set(sys.modules) - loaded))\n"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert set(told.stdout.split()) <= {"locale", "_locale", "encodings.aliases", "errno"}


@pytest.mark.parametrize("forbidden", ["shutil", "typing", "dataclasses", "difflib", "inspect", "importlib.metadata"])
def test_a_good_command_line_never_imports(forbidden: str) -> None:
    program = (
        "import sys, relight.cli.options as o, relight.cli.plan as p\n"
        "class F:\n    slots = numa_cpus = None\n"
        f"before = {forbidden!r} in sys.modules\n"
        "p.plan(o.parse(['--nproc-per-node', '2', '-t3', '--max-restarts=2', 'train.py'], {}), {}, F())\n"
        f"print(before, {forbidden!r} in sys.modules)\n"
    )
    told = subprocess.run(
        [sys.executable, "-S", "-c", program],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert told.stdout.split()[-1] == "False", told.stdout


SAME_LINES = [
    *["s.py", "s.py a b", "-- s.py a -- b", "s.py -- --x", "s.py -- -- y", "s.py a -- --x", "--tee 3 -- s.py --tee 1"],
    *["--nproc-per-node 2 s.py", "--nproc_per_node=2 s.py", "--nproc-per 1 s.py", "--nproc_p 1 s.py", "--max-r 1 s.py"],
    *["--stand s.py", "--rdzv-b c10d s.py", "--rdzv-b c10d --rdzv-e localhost:0 --rdzv-i abc s.py", "--no-p ./x"],
    *["--log-d x -r 3 s.py", "-r3 s.py", "-r=3 s.py", "-mr 3 pkg --flag", "-mr3 pkg", "-t 0:1,1:2 s.py", "--ro x s.py"],
    *["--re 3 s.py", "--mod pkg", "--nn 1:2 s.py", "--max-restarts -1 s.py", "--max-restarts=-1 s.py"],
    *["--monitor-interval 1e-1 s.py", "--monitor_interval=5 s.py", "--start-method=fork s.py", "--role= s.py"],
    *["--event-log-handler=console s.py", "--module pkg x", "--no_python sh -c true", "--run-path s.py", "-m pkg -m b"],
    *["--local-ranks-filter 0,1 s.py", "--duplicate-stdout-filters a,,b,c s.py", "--duplicate_stderr_filters= s.py"],
    *["--node-rank 3 s.py", "--node_rank=-1 s.py", "--master-addr ::1 --master-port 5 s.py", "--local_addr=h s.py"],
    *[
        "--logs-specs x s.py",
        "--numa-binding core-complex s.py",
        "--signals-to-handle=SIGTERM s.py",
        "s.py -1 --x=-0.5",
    ],
    *["--shutdown-timeout 5 s.py", "--virtual-local-rank s.py", "--standalone --rdzv_id=a --rdzv_conf=b=c s.py"],
    *["s.py --nproc-per-node 2 --help -r 3", "--tee=3 --tee=1 s.py", "--sh 3 s.py", "--nope s.py", "-x s.py", ""],
    *["--standalone", "--rdzv c10d s.py", "--start-method=thread s.py", "--max-restarts=many s.py", "--nproc-per-node"],
    *["--max-restarts= s.py", "--node-rank=a s.py", "--shutdown-timeout=1.5 s.py", "--standalone=1 s.py", "-mx pkg"],
]
SAME_ENVIRONMENTS = [
    {"PET_NPROC_PER_NODE": "2", "PET_STANDALONE": "1", "PET_MAX_RESTARTS": "3", "PET_TEE": "1"},
    {"PET_MAX_RESTARTS": "abc"},
    {"PET_MAX_RESTARTS": ""},
    {"PET_START_METHOD": "bogus", "PET_ROLE": "", "PET_DUPLICATE_STDOUT_FILTERS": "", "PET_MODULE": "2"},
    {"PET_LOGS_SPECS": "x", "PET_NUMA_BINDING": "node", "PET_T": "3", "PET_RUN_PATH": "0"},
]
# Refused by torchrun 2.13 although they can only mean one thing: accepted here.
ACCEPTED_HERE = ["--nproc 2 s.py", "--sh 3 s.py", "s.py --log x"]

TORCHRUN_READS = """
import contextlib, io, json, os, sys
from torch.distributed import run
answers = []
for line, environ in json.load(sys.stdin):
    for name in [name for name in os.environ if name.startswith("PET_")]:
        del os.environ[name]
    os.environ.update(environ)
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            answers.append(vars(run.parse_args(line.split())))
    except SystemExit as ended:
        answers.append(ended.code)
json.dump(answers, sys.stdout)
"""


@pytest.mark.slow
def test_torchrun_reads_the_same_words_the_same_way() -> None:
    pytest.importorskip("torch")
    asked: list[tuple[str, dict[str, str]]] = [(line, {}) for line in SAME_LINES]
    asked += [(line, environ) for line in ("s.py", "--max-restarts 1 s.py") for environ in SAME_ENVIRONMENTS]
    told = subprocess.run(
        [sys.executable, "-c", TORCHRUN_READS],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    for (line, environ), theirs in zip(asked, json.loads(told.stdout), strict=True):
        try:
            ours: Any = vars(parse(line.split(), environ))
        except UsageError:
            ours = 2
        if line in ACCEPTED_HERE:
            assert theirs == 2 and ours != 2
        elif theirs == 2 or ours == 2:
            assert ours == theirs, (line, environ)
        else:
            assert {name: ours[name] for name in theirs} == theirs, (line, environ)
