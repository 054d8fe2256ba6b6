from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from relight.compat import ChildFailedError, DefaultLogsSpecs, LaunchConfig, LogsDest, LogsSpecs, Std, elastic_launch
from relight.compat.commandline import config_from_args, main, parse_args
from relight.compat.logs import logs_specs_class, output_of
from relight.core.launch import Output
from relight.core.streams import StreamChoice, Streams

from . import jobs


class Flat(LogsSpecs):
    """Everything in one folder, named by rank and attempt: a plug-in of somebody's own."""

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        said = LogsDest()
        for local_rank, world in envs.items():
            name = f"{self.root_log_dir}/{world['TORCHELASTIC_RESTART_COUNT']}-{world['RANK']}"
            said.stdouts[local_rank] = f"{name}.out"
            said.stderrs[local_rank] = f"{name}.err"
            if local_rank == 0:
                said.tee_stdouts[local_rank] = f"{name}.out"
            world["TORCHELASTIC_ERROR_FILE"] = said.error_files[local_rank] = f"{name}.json"
        return said

    @property
    def root_log_dir(self) -> str:
        return str(self._root_log_dir)


def asked(specs: LogsSpecs, **more: Any) -> LaunchConfig:
    return LaunchConfig(1, 1, 2, rdzv_backend="c10d", max_restarts=0, logs_specs=specs, **more)


def test_a_logs_specs_of_ones_own_is_asked(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    elastic_launch(asked(Flat(str(tmp_path))), jobs.say)("hello")
    assert {name: (tmp_path / name).read_text() for name in os.listdir(tmp_path) if name.endswith("out")} == {
        "0-0.out": "hello 0\n",
        "0-1.out": "hello 1\n",
    }
    assert capfd.readouterr().out == "[default_role0]:hello 0\n"


def test_its_error_files_are_read(tmp_path: Path) -> None:
    with pytest.raises(ChildFailedError) as caught:
        elastic_launch(asked(Flat(str(tmp_path))), jobs.fail_in_rank_1)()
    assert caught.value.get_first_failure()[1].error_file == f"{tmp_path}/0-1.json"


class Entry:
    """An installed package's entry point."""

    @staticmethod
    def load() -> type[LogsSpecs]:
        return Flat


def test_a_plug_in_named_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.metadata

    Entry.name = "flat"  # type: ignore[attr-defined]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **asked: [Entry])
    script = tmp_path / "script.py"
    script.write_text("print('hello')")
    main(["--logs-specs=flat", f"--log-dir={tmp_path}", str(script)])
    assert (tmp_path / "0-0.out").read_text() == "hello\n"
    config, _, _ = config_from_args(parse_args(["--logs-specs=flat", f"--log-dir={tmp_path}", str(script)]))
    assert isinstance(config.logs_specs, Flat)


def test_a_plug_in_that_nobody_offers() -> None:
    assert logs_specs_class(None) is logs_specs_class("default") is DefaultLogsSpecs
    with pytest.raises(ValueError, match="no installed package offers --logs-specs nope"):
        logs_specs_class("nope")


class Elsewhere(DefaultLogsSpecs):
    """Changes one detail of the default."""

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        said = super().reify(envs)
        said.stderrs = dict.fromkeys(envs, os.devnull)
        return said


def test_a_detail_of_the_default_can_be_changed(tmp_path: Path) -> None:
    specs = Elsewhere(str(tmp_path), redirects=Std.ALL)
    elastic_launch(asked(specs, run_id="x/y"), jobs.say)("hello")
    found = sorted(str(path.relative_to(tmp_path)).partition("/")[2] for path in tmp_path.glob("x_y_*/*/*/*"))
    assert found == ["attempt_0/0/stdout.log", "attempt_0/1/stdout.log"]


def test_the_default_in_a_table(tmp_path: Path) -> None:
    specs = DefaultLogsSpecs(str(tmp_path), redirects={0: Std.ERR}, tee=Std.OUT, local_ranks_filter={0})
    envs: dict[int, dict[str, str]] = {0: {}, 1: {}}
    said = specs.reify(envs)
    folder = os.path.dirname(os.path.dirname(said.stdouts[0]))
    assert said.stdouts == {0: f"{folder}/0/stdout.log", 1: f"{folder}/1/stdout.log"}
    assert said.tee_stdouts == {0: f"{folder}/0/stdout.log"}
    assert said.stderrs == {0: f"{folder}/0/stderr.log", 1: os.devnull}
    assert said.filtered_stderr == f"{folder}/filtered_stderr.log"
    assert envs[1]["TORCHELASTIC_ERROR_FILE"] == said.error_files[1] == f"{folder}/1/error.json"


def test_no_files_at_all() -> None:
    envs: dict[int, dict[str, str]] = {0: {}}
    said = DefaultLogsSpecs(os.devnull, redirects=Std.ALL).reify(envs)
    assert (said.stdouts, said.error_files, envs[0]["TORCHELASTIC_ERROR_FILE"]) == ({0: ""}, {0: ""}, "")


def test_a_folder_is_made_only_when_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    specs = DefaultLogsSpecs()
    assert specs == DefaultLogsSpecs()
    assert os.listdir(tmp_path) == []
    folder = specs.root_log_dir
    assert os.listdir(tmp_path) == [os.path.basename(folder)]
    assert "redirects=" in repr(specs)
    DefaultLogsSpecs(str(tmp_path / "made"))
    assert (tmp_path / "made").is_dir()


def test_the_choices_are_carried_over(tmp_path: Path) -> None:
    specs = DefaultLogsSpecs(str(tmp_path), redirects={10: Std.ALL}, tee=Std.ERR, local_ranks_filter={2, 1})
    assert output_of(specs) == Output(
        log_dir=str(tmp_path),
        redirects=StreamChoice(Streams.NONE, ((10, Streams.BOTH),)),
        tee=StreamChoice(Streams.ERR),
        local_ranks=(1, 2),
    )
    assert output_of(None) == Output()
