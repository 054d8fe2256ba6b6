"""What each worker of a round is started with: its folder, its environment, its streams and its command."""

from __future__ import annotations

import os

from relight.core.environment import Round, worker_command, worker_environment
from relight.shell.guardian import MARK
from relight.shell.processes import Order

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from relight.core.launch import Launch
    from relight.core.node import StartWorkers
    from relight.core.roster import Place
    from relight.shell.logfiles import RunFolder
    from relight.shell.outlets import Layout, Outlets
    from relight.shell.processes import Commands


class Orders:
    """Makes them, and the folders and streams that they name. `commands` run instead of the launch's own command;
    `layout` says where output and error files go instead of the run's own folder."""

    def __init__(
        self,
        launch: Launch,
        environ: Mapping[str, str],
        python: str,
        folder: RunFolder,
        outlets: Outlets,
        commands: Commands | None = None,
        layout: Callable[[dict[int, dict[str, str]]], Layout] | None = None,
    ) -> None:
        self._launch = launch
        self._environ = environ
        self._python = launch.python or python
        self._folder = folder
        self._outlets = outlets
        self._commands = commands
        self._layout = layout
        self.error_files: dict[int, str] = {}  # of this round's workers, by local rank

    def of(self, asked: StartWorkers, mark: str, socket: str) -> list[Order]:
        """One order for each place. Raises OSError where a folder or a stream cannot be made."""
        round_ = Round(asked.round, asked.restarts, asked.part)
        places = asked.part.places()
        self._folder.make(asked.round, len(places))
        worlds = {place.local_rank: self._world(round_, place, mark, socket) for place in places}
        layout = self._layout(worlds) if self._layout else None
        # A layout of somebody else's names error files of its own.
        self.error_files = {rank: world.get("TORCHELASTIC_ERROR_FILE", "") for rank, world in worlds.items()}
        self._outlets.begin(self._folder.round_folder(asked.round), layout)
        return [self._order(round_, place, worlds[place.local_rank]) for place in places]

    def _world(self, round_: Round, place: Place, mark: str, socket: str) -> dict[str, str]:
        """What one worker finds in os.environ."""
        folder = self._folder.worker_folder(round_.number, place.local_rank)
        error_file = os.path.join(folder, "error.json") if folder else ""
        environment = worker_environment(self._environ, self._launch, round_, place, error_file)
        environment[MARK] = mark
        environment["RELIGHT_LOCAL_RANK"] = str(place.local_rank)
        environment["RELIGHT_ROUND"] = str(round_.number)
        environment["RELIGHT_SOCKET"] = socket
        if self._launch.forgives_teardown:
            environment["RELIGHT_TIDY_EXIT"] = str(os.getpid())
        return environment

    def _order(self, round_: Round, place: Place, environment: dict[str, str]) -> Order:
        launch, commands, local_rank = self._launch, self._commands, place.local_rank
        stdout, stderr = self._outlets.streams(place, self._folder.worker_folder(round_.number, local_rank))
        return Order(
            local_rank=local_rank,
            command=commands.of(round_.number, local_rank) if commands else worker_command(launch, place, self._python),
            environment=environment,
            stdout=stdout,
            stderr=stderr,
            cpus=launch.cpus[local_rank] if launch.cpus else (),
            keeps=commands.keeps if commands else (),
        )
