"""Other people's say about where output goes: classes of the entry-point group `torchrun.logs_specs`.

Knows such a class only by its shape: made with the command line's choices, asked by `reify` at every start of the
workers. Loading one may import whatever it likes, torch included, into the agent; nothing here does.
"""

from __future__ import annotations

import os
import sys

from relight.core.names import UsageError
from relight.core.streams import Route, Streams
from relight.shell.outlets import Layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from relight.core.launch import Output
    from relight.core.streams import StreamChoice

    Worlds = dict[int, dict[str, str]]  # each worker's environment, by local rank


def load_plug_in(name: str) -> type[Any]:
    """The class that an installed package offers under this name. Raises ValueError."""
    from importlib.metadata import entry_points

    for entry in entry_points(group="torchrun.logs_specs", name=name):
        found: type[Any] = entry.load()
        return found
    raise ValueError(f"no installed package offers --logs-specs {name} (entry-point group torchrun.logs_specs)")


def plugged_layout(output: Output) -> Callable[[Worlds], Layout]:
    """What a plug-in named on the command line says, made with the command line's own choices."""
    try:
        plug_in = load_plug_in(output.plug_in or "")
    except ValueError as error:
        raise UsageError(str(error), "--logs-specs default") from None
    specs = plug_in(
        log_dir=output.log_dir,
        redirects=as_std(output.redirects),
        tee=as_std(output.tee),
        local_ranks_filter=None if output.local_ranks is None else set(output.local_ranks),
    )
    return layout_of(specs)


def as_std(choice: StreamChoice) -> Any:
    """Streams as a plug-in expects them: torch's own Std, where the plug-in has imported it."""
    torchs = sys.modules.get("torch.distributed.elastic.multiprocessing.api")
    std = getattr(torchs, "Std", Streams)
    if choice.by_rank:
        return {local_rank: std(int(streams)) for local_rank, streams in choice.by_rank}
    return std(int(choice.everyone))


def layout_of(specs: Any) -> Callable[[Worlds], Layout]:
    """Asks at every start of the workers; the answer names each error file in the environments it is given."""

    def ask(worlds: Worlds) -> Layout:
        said = specs.reify(worlds)
        routes = {
            (local_rank, stream): _route(files.get(local_rank, ""), tees.get(local_rank, ""))
            for stream, files, tees in (
                (Streams.OUT, said.stdouts, said.tee_stdouts),
                (Streams.ERR, said.stderrs, said.tee_stderrs),
            )
            for local_rank in worlds
        }
        # Plug-ins of older days know nothing of filters.
        filtered = {
            Streams.OUT: getattr(said, "filtered_stdout", ""),
            Streams.ERR: getattr(said, "filtered_stderr", ""),
        }
        return Layout(routes, filtered)

    return ask


def _route(path: str, tee: str) -> tuple[Route, str]:
    if tee:
        return Route.TEE, str(tee)
    if path == os.devnull:
        return Route.HIDE, ""
    return (Route.FILE, str(path)) if path else (Route.INHERIT, "")
