"""Facts about this machine: its name, its CPUs, its accelerators, and which CPUs are near which of them.

Nothing is looked up, or imported, before it is asked for: a plain number of workers costs none of it.
"""

from __future__ import annotations

import os
import sys

from relight.core.names import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from relight.shell.accelerators import Accelerators, Answer, Search

_MASKS = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")
_WORDS = ("auto", "cpu", "gpu", "xpu")
_CHOICES = "--nproc-per-node auto, cpu, gpu, xpu or a number"
_TITLES = {"cuda": "CUDA GPU", "hip": "ROCm GPU", "xpu": "XPU"}


class Machine:
    """This machine as the workers find it: `environ` is what they inherit, PYTHON_EXEC there their interpreter."""

    def __init__(
        self,
        environ: Mapping[str, str],
        *,
        root: str = "/",
        ask: Callable[[Sequence[str], Mapping[str, str], float], Answer] | None = None,
        affinity: Callable[[], frozenset[int]] | None = None,
        import_path: Sequence[str] | None = None,
    ) -> None:
        self._environ = environ
        self._python = environ.get("PYTHON_EXEC") or sys.executable
        self._root = root
        self._ask = ask
        self._affinity = affinity or own_affinity
        self._import_path = import_path
        self._searched: Search | None = None

    def host_name(self) -> str:
        """The name this host gives itself."""
        return os.uname().nodename

    def cpus(self) -> frozenset[int]:
        """The CPUs this process may use."""
        return self._affinity()

    def slots(self, word: str) -> int:
        """How many workers `auto`, `cpu`, `gpu`, `xpu` or a torch backend's own name stands for here."""
        if word == "cpu":
            return len(self.cpus())
        if not word.isidentifier() or (word not in _WORDS and word.lower() in _WORDS):
            raise UsageError(f"--nproc-per-node {word!r} is neither a number nor a known word", _CHOICES)
        search = self._search()
        found = search.find(word)
        if found is not None:
            return found.count
        if word == "auto":
            return len(self.cpus())
        if word in ("gpu", "xpu"):
            why = search.obstacle() + self._masked()
            what = "GPUs that CUDA or ROCm can use" if word == "gpu" else "XPUs"
            raise UsageError(f"--nproc-per-node {word} counts {what}, and there are none{why}", _CHOICES)
        raise UsageError(f"--nproc-per-node {word} names no kind of accelerator that torch finds here", _CHOICES)

    def numa_cpus(self, mode: str, nproc: int) -> tuple[tuple[int, ...], ...]:
        """For each local rank the CPUs that `--numa-binding MODE` gives it."""
        from relight.core.affinity import Topology, cpu_sets, parse_binding
        from relight.shell.numa import node_of_device, read_cpus

        binding = parse_binding(mode)
        found = self._search().located()
        if found is None:
            raise UsageError(
                f"--numa-binding {mode} binds workers to the CPUs near their GPU, "
                f"and this machine has none{self._masked()}",
                "leave --numa-binding out",
            )
        nodes = tuple(node_of_device(self._root, pci) for pci in self._addresses(found, mode))
        return cpu_sets(binding, Topology(read_cpus(self._root, binding), self.cpus(), nodes), nproc)

    def describe(self) -> dict[str, object]:
        """What a bug report should say about this machine; what cannot be told says why."""
        from relight.core.affinity import spell_cpus
        from relight.shell.kernel import memory_groups, memory_limit, memory_total
        from relight.shell.numa import numa_nodes

        system = os.uname()
        groups = memory_groups(self._root)
        return {
            "host": self.host_name(),
            "kernel": f"{system.sysname} {system.release} {system.machine}",
            "cpus": os.cpu_count() or 0,
            "affinity": spell_cpus(self.cpus()),
            "memory_total_bytes": memory_total(self._root),
            "memory_limit_bytes": memory_limit(self._root),
            "accelerators": self._described_accelerators(),
            "visible": {name: self._environ[name] for name in _MASKS if name in self._environ},
            "numa_nodes": {str(node): spell_cpus(cpus) for node, cpus in numa_nodes(self._root).items()},
            "cgroups": [
                {"version": version, "path": folder, "writable": os.access(folder, os.W_OK)}
                for version, folder in groups
            ],
        }

    def _described_accelerators(self) -> dict[str, object]:
        try:
            found = self._search().find("auto")
        except UsageError as error:
            return {"unknown": f"{error}"}
        if found is None:
            return {"count": 0}
        names = [device.name for device in found.devices]
        return {
            "kind": _TITLES.get(found.kind, found.kind),
            "count": found.count,
            "names": names,
            "told_by": found.told_by,
        }

    def _search(self) -> Search:
        """One search for the life of this object: what a child said once is not asked again."""
        from relight.shell.accelerators import Search, ask_child

        if self._searched is None:
            self._searched = Search(
                self._environ,
                python=self._python,
                root=self._root,
                ask=self._ask or ask_child,
                import_path=self._import_path,
            )
        return self._searched

    def _addresses(self, found: Accelerators, mode: str) -> list[str]:
        from relight.shell.numa import render_devices

        addresses = [device.pci for device in found.devices if device.pci]
        if len(addresses) < found.count and found.kind == "xpu" and "ZE_AFFINITY_MASK" not in self._environ:
            addresses = render_devices(self._root, ("i915", "xe"))
        if len(addresses) != found.count:
            raise UsageError(
                f"--numa-binding {mode}: nobody can tell where the {found.count} accelerators sit",
                "leave it out",
            )
        return addresses

    def _masked(self) -> str:
        """Names a variable that hides devices, for it is the likeliest reason for finding none."""
        masks = [f"{name}={self._environ[name]!r}" for name in _MASKS if name in self._environ]
        return f" ({', '.join(masks)})" if masks else ""


def own_affinity() -> frozenset[int]:
    """The CPUs in this process's affinity mask."""
    return frozenset(os.sched_getaffinity(0))
