from __future__ import annotations

import dataclasses
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from relight.compat import ChildFailedError, LaunchConfig, elastic_launch
from relight.compat.launcher import get_entrypoint_name, launch_of
from relight.core.launch import Budget, How, Meeting, Store
from relight.core.names import JobFailed, UsageError


def asked(**more: Any) -> LaunchConfig:
    return LaunchConfig(**{"min_nodes": 1, "max_nodes": 1, "nproc_per_node": 2, "rdzv_backend": "c10d", **more})


def test_the_defaults_are_torchs() -> None:
    made = asked(rdzv_timeout=7)
    assert made.rdzv_configs == {"timeout": 7}
    assert asked().rdzv_configs == {"timeout": 900}
    assert (made.max_restarts, made.role, made.shutdown_timeout) == (3, "default_role", 30)


def test_the_shutdown_timeout_comes_from_the_environment_or_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "7")
    assert launch_of(asked(), "x", ()).shutdown_timeout_s == 7.0
    assert launch_of(asked(shutdown_timeout=3), "x", ()).shutdown_timeout_s == 3.0
    with pytest.raises(ValueError, match="below zero"):
        asked(shutdown_timeout=-1)


@dataclasses.dataclass
class OtherLaunchConfig(LaunchConfig):
    """As dlrover extends it."""

    network_check: bool = False
    node_unit: int = 1

    def auto_configure(self) -> None:
        self.max_restarts = 5
        self.rdzv_backend = "dlrover-master"


def test_a_subclass_with_fields_of_its_own_is_taken() -> None:
    config = OtherLaunchConfig(1, 1, 2, node_unit=3)
    config.auto_configure()
    launch = launch_of(config, "true", ())
    assert launch.budget == Budget(5)
    assert [field.name for field in dataclasses.fields(config)][-2:] == ["network_check", "node_unit"]


def test_an_older_config_that_lacks_newer_attributes_is_taken() -> None:
    old = SimpleNamespace(
        min_nodes=1,
        max_nodes="1",
        nproc_per_node="2",
        logs_specs=None,
        run_id="x",
        role="trainer",
        rdzv_endpoint="",
        rdzv_backend="c10d",
        max_restarts="2",
        log_line_prefix_template=None,
    )
    launch = launch_of(old, "true", ())
    assert (launch.nproc_per_node, launch.budget, launch.signals) == (2, Budget(2), (15, 2, 1, 3))


@pytest.mark.parametrize(
    ("entrypoint", "args", "how", "entry", "rest"),
    [
        (sys.executable, ["-u", "s.py", "--x"], How.SCRIPT, "s.py", ("--x",)),
        (sys.executable, ["-u", "-m", "pkg", 1], How.MODULE, "pkg", ("1",)),
        (sys.executable, ["-u", "-c", "pass"], How.PROGRAM, sys.executable, ("-u", "-c", "pass")),
        (sys.executable, ["s.py"], How.PROGRAM, sys.executable, ("s.py",)),
        ("/bin/echo", ["a"], How.PROGRAM, "/bin/echo", ("a",)),
    ],
)
def test_a_command_is_recognised(entrypoint: str, args: list[Any], how: How, entry: str, rest: tuple[str]) -> None:
    launch = launch_of(asked(), entrypoint, args)
    assert (launch.how, launch.entrypoint, launch.args) == (how, entry, rest)


@pytest.mark.parametrize(
    ("backend", "endpoint", "more", "store"),
    [
        ("static", "127.0.0.1:29512", {}, Store(address="127.0.0.1", port=29512)),
        ("static", "[::1]:29512", {}, Store(address="::1", port=29512)),
        ("c10d", "localhost:0", {}, Store()),
        ("c10d", "", {"local_addr": "10.0.0.4"}, Store(address="10.0.0.4")),
        ("etcd", "", {}, Store(shared=False)),
        ("a-backend-of-ones-own", "where:ever", {}, Store()),
    ],
)
def test_of_the_rendezvous_the_store_is_left(backend: str, endpoint: str, more: dict[str, Any], store: Store) -> None:
    assert launch_of(asked(rdzv_backend=backend, rdzv_endpoint=endpoint, **more), "true", ()).store == store


@pytest.mark.parametrize("endpoint", ["", "localhost", "localhost:", "localhost:70000"])
def test_a_static_endpoint_without_a_port_is_refused(endpoint: str) -> None:
    with pytest.raises(UsageError, match="needs an address and a port"):
        launch_of(asked(rdzv_backend="static", rdzv_endpoint=endpoint), "true", ())


@pytest.mark.parametrize(
    ("names", "why"),
    [
        ("SIGFOO", "SIGFOO, which is no signal"),
        ("SIGTERM,SIGKILL", "SIGKILL, which no program can handle"),
        ("SIGCHLD", "SIGCHLD, which tells relight something else"),
    ],
)
def test_a_signal_that_cannot_be_handled_is_refused(names: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        launch_of(asked(signals_to_handle=names), "true", ())


def test_a_binding_that_fails_may_be_forgone(monkeypatch: pytest.MonkeyPatch) -> None:
    from relight.shell.machine import Machine

    def refuse(self: Machine, mode: str, nproc: int) -> tuple[tuple[int, ...], ...]:
        raise UsageError(f"no accelerator for {mode}")

    monkeypatch.setattr(Machine, "numa_cpus", refuse)
    options = SimpleNamespace(affinity_mode=SimpleNamespace(value="node"), should_fall_back_if_binding_fails=True)
    assert launch_of(asked(numa_options=options), "true", ()).cpus == ()
    options.should_fall_back_if_binding_fails = False
    with pytest.raises(UsageError, match="no accelerator for node"):
        launch_of(asked(numa_options=options), "true", ())


def test_commands_run_and_their_results_are_none(tmp_path: Any) -> None:
    config = asked()
    code = "import os, sys; open(sys.argv[1] + os.environ['RANK'], 'w').write(sys.argv[2])"
    found = elastic_launch(config, sys.executable)("-c", code, f"{tmp_path}/", "${local_rank}")
    assert found == {0: None, 1: None}
    assert [(tmp_path / name).read_text() for name in "01"] == ["0", "1"]
    assert config.run_id.isdigit()


def test_a_failed_command_is_named_by_its_script() -> None:
    with pytest.raises(ChildFailedError, match=r"\nmissing\.py FAILED\n"):
        elastic_launch(asked(max_restarts=0), sys.executable)("-u", "missing.py")


def test_a_command_that_cannot_be_started_is_said_so() -> None:
    with pytest.raises(JobFailed, match="No such file"):
        elastic_launch(asked(max_restarts=0), "/no/such/program")()


def test_names() -> None:
    assert get_entrypoint_name(test_names, ()) == "test_names"
    assert get_entrypoint_name(SimpleNamespace, ()) == "SimpleNamespace"
    assert get_entrypoint_name(sys.executable, ["-u", "s.py"]) == "s.py"
    assert get_entrypoint_name("prog", ["x"]) == "prog"
    assert get_entrypoint_name(None, []) == ""


@pytest.mark.parametrize(
    ("more", "store", "meeting"),
    [
        ({"rdzv_endpoint": "head:5"}, Store(address=""), Meeting("head", 5)),
        ({"rdzv_endpoint": "head"}, Store(address=""), Meeting("head", 29400)),
        ({"rdzv_endpoint": "[::1]:7"}, Store(address=""), Meeting("::1", 7)),
        ({"rdzv_endpoint": "[::1]"}, Store(address=""), Meeting("::1", 29400)),
        ({"rdzv_endpoint": "", "local_addr": "me"}, Store(address="me"), Meeting("localhost", 29400)),
        (
            {"rdzv_endpoint": "h:5", "rdzv_configs": {"is_host": True, "join_timeout": 60}},
            Store(address=""),
            Meeting("h", 5, True, join_timeout_s=60.0),
        ),
        (
            {"rdzv_backend": "static", "rdzv_endpoint": "h:5", "rdzv_configs": {"rank": 0}},
            Store(address="h", port=5),
            Meeting("h", 5, True, True, "", 0, 900.0),
        ),
        (
            {"rdzv_backend": "static", "rdzv_endpoint": "h:5", "rdzv_configs": {"rank": 1, "timeout": 60}},
            Store(address=""),
            Meeting("h", 5, False, True, "", 1, 60.0),
        ),
    ],
)
def test_several_nodes_meet_as_on_the_command_line(more: dict[str, Any], store: Store, meeting: Meeting) -> None:
    launch = launch_of(asked(max_nodes=2, **more), "true", ())
    assert (launch.store, launch.meeting) == (store, meeting)
    assert launch.min_nodes == (2 if meeting.on_store else 1)


def test_several_nodes_do_not_meet_in_etcd() -> None:
    with pytest.raises(UsageError, match="rdzv_backend='etcd'"):
        launch_of(asked(max_nodes=2, rdzv_backend="etcd"), "true", ())


def test_the_token_is_read_as_the_command_line_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELIGHT_TOKEN", " secret\n")
    meeting = launch_of(asked(max_nodes=2, rdzv_endpoint="h:5"), "true", ()).meeting
    assert meeting is not None and meeting.token == "secret"
