"""`install()` in a tree of modules that import each other as torch's do, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

TREE = {
    "torch/__init__.py": "",
    "torch/distributed/__init__.py": "",
    "torch/distributed/launcher/__init__.py": """
        from torch.distributed.launcher.api import elastic_launch, launch_agent
    """,
    "torch/distributed/launcher/api.py": """
        class elastic_launch: pass
        def launch_agent(): pass
        class LaunchConfig: pass
    """,
    "torch/distributed/run.py": """
        from torch.distributed.launcher.api import LaunchConfig, elastic_launch
        def get_args_parser(): pass
        def parse_args(args): pass
        def config_from_args(args): pass
        def run(args): pass
        def main(args=None): pass
        def determine_local_world_size(n): pass
    """,
    "torch/distributed/launch.py": """
        from torch.distributed.run import get_args_parser, run
    """,
}
CHECKS = """
    import sys
    from relight import compat
    from relight.compat.hook import REPLACED

    def ours():
        return {
            (module, name)
            for module, names in REPLACED.items() for name in names
            if getattr(sys.modules[module], name) is getattr(compat, name)
        }

    def load():
        import torch.distributed.launch
        import torch.distributed.launcher

    EVERY = {(module, name) for module, names in REPLACED.items() for name in names}
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in TREE.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return tmp_path


def holds(tree: Path, body: str) -> None:
    program = textwrap.dedent(CHECKS) + textwrap.dedent(body)
    subprocess.run([sys.executable, "-W", "error", "-c", program], cwd=tree, check=True, timeout=30)


def test_before_torch_is_imported(tree: Path) -> None:
    holds(
        tree,
        """
        compat.install()
        assert "torch" not in sys.modules and "relight.compat.launcher" not in sys.modules
        load()
        assert ours() == EVERY
        import torch.distributed.run
        assert not hasattr(compat, "LaunchConfigs")
        assert torch.distributed.run.LaunchConfig is not compat.LaunchConfig
        assert torch.distributed.run.determine_local_world_size is not compat.determine_local_world_size
        """,
    )


def test_after_torch_is_imported(tree: Path) -> None:
    holds(tree, "load(); compat.install(); assert ours() == EVERY")


def test_twice_is_once(tree: Path) -> None:
    holds(
        tree,
        """
        compat.install(); places = list(sys.meta_path); compat.install()
        assert sys.meta_path == places
        load(); compat.uninstall()
        assert ours() == set() and len(sys.meta_path) == len(places) - 1
        """,
    )


@pytest.mark.parametrize("order", ["load(); compat.install()", "compat.install(); load()"])
def test_uninstall_puts_everything_back(tree: Path, order: str) -> None:
    holds(
        tree,
        f"""
        {order}
        compat.uninstall()
        assert ours() == set()
        import torch.distributed.launcher as launcher, torch.distributed.run as run, torch.distributed.launch as launch
        assert launcher.elastic_launch is launcher.api.elastic_launch is run.elastic_launch
        assert run.elastic_launch.__module__ == "torch.distributed.launcher.api"
        assert launch.run is run.run and run.run.__module__ == "torch.distributed.run"
        compat.uninstall()
        compat.install()
        assert ours() == EVERY
        """,
    )


def test_what_is_imported_after_uninstall_is_torchs(tree: Path) -> None:
    holds(
        tree, "compat.install(); import torch.distributed.launcher; compat.uninstall(); load(); assert ours() == set()"
    )


def test_a_missing_torch_is_still_missing(tmp_path: Path) -> None:
    holds(
        tmp_path,
        """
        sys.path[:] = [place for place in sys.path if "site-packages" not in place]
        compat.install()
        try:
            import torch.distributed.run
        except ModuleNotFoundError as missing:
            assert missing.name == "torch"
        else:
            raise AssertionError
        """,
    )
