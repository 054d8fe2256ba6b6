"""Counts accelerators without importing torch and without letting a sick driver touch the agent.

Device nodes say whether there can be any; on a box without them nothing more is done. NVIDIA's management
library is asked in a short-lived child with a deadline, because its first call may hang and any C library may
crash. What it cannot answer (MIG, ROCm, XPU, other backends) is asked of the workers' torch, also in a child.
"""

from __future__ import annotations

import os
import sys

from relight.core.names import UsageError
from relight.core.values import value

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Mapping, Sequence

NVML_DEADLINE_S = 30.0  # without persistence mode the driver takes a second or two for each GPU
TORCH_DEADLINE_S = 120.0  # a cold import of torch from a network file system

# What the children run. They write lines of tab-separated words that begin with "relight", the last of them
# "end", so that what a library prints by itself, or a crash half way, is told apart from an answer.
NVML_PROGRAM = """
import ctypes, os, sys
def say(*words):
    print("relight", *words, sep="\\t", flush=True)
def must(result, call):
    if result:
        say("trouble", "%s failed with NVML error %d" % (call, result))
        os._exit(1)
class Pci(ctypes.Structure):
    _fields_ = [("legacy", ctypes.c_char * 16), ("domain", ctypes.c_uint), ("bus", ctypes.c_uint),
                ("device", ctypes.c_uint), ("ids", ctypes.c_uint * 2), ("text", ctypes.c_char * 32)]
try:
    nvml = ctypes.CDLL("libnvidia-ml.so.1")
except OSError as error:
    say("trouble", error)
    os._exit(1)
must(nvml.nvmlInit_v2(), "nvmlInit")
count = ctypes.c_uint()
must(nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)), "nvmlDeviceGetCount")
for index in range(count.value):
    handle, pci, mig, later = ctypes.c_void_p(), Pci(), ctypes.c_uint(), ctypes.c_uint()
    uuid, name = ctypes.create_string_buffer(96), ctypes.create_string_buffer(96)
    result = nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle))
    if result == 4:  # no permission: not one of ours
        continue
    must(result, "nvmlDeviceGetHandleByIndex")
    must(nvml.nvmlDeviceGetUUID(handle, uuid, 96), "nvmlDeviceGetUUID")
    nvml.nvmlDeviceGetName(handle, name, 96)
    located = nvml.nvmlDeviceGetPciInfo_v3(handle, ctypes.byref(pci)) == 0
    if nvml.nvmlDeviceGetMigMode(handle, ctypes.byref(mig), ctypes.byref(later)) == 0 and mig.value:
        must(-1, "a GPU is split by MIG; counting")
    address = "%04x:%02x:%02x.0" % (pci.domain, pci.bus, pci.device) if located else ""
    say("device", uuid.value.decode(), address, name.value.decode("utf-8", "replace"))
say("end")
os._exit(0)
"""

TORCH_PROGRAM = """
import sys
sys.path[:] = [folder for folder in sys.path if folder]  # not what lies in the current directory
import torch
def say(*words):
    print("relight", *words, sep="\\t", flush=True)
def address(device):
    try:
        return "%04x:%02x:%02x.0" % (device.pci_domain_id, device.pci_bus_id, device.pci_device_id)
    except Exception:
        return ""
private = torch._C._get_privateuse1_backend_name()
for kind in dict.fromkeys(("cuda", "xpu", private)):
    module = getattr(torch, kind, None)
    if module is None or not module.is_available():
        continue
    say("count", "hip" if kind == "cuda" and torch.version.hip else kind, module.device_count())
    for index in range(module.device_count() if sys.argv[1:] == ["located"] else 0):
        device = module.get_device_properties(index)
        say("device", "hip" if kind == "cuda" and torch.version.hip else kind, address(device), device.name)
accelerator = getattr(torch, "accelerator", None)
if accelerator is not None and accelerator.is_available():
    say("current", accelerator.current_accelerator().type, accelerator.device_count())
say("end")
"""

_NUMBER = "give the number itself: --nproc-per-node 8"


@value
class Device:
    """One accelerator. `pci` is its address as /sys names it; what is unknown is empty."""

    name: str
    uuid: str = ""
    pci: str = ""


@value
class Accelerators:
    """What the workers will see, in their order. `devices` is empty where only the count is known."""

    kind: str  # cuda, hip, xpu, or torch's name of another backend
    count: int
    devices: tuple[Device, ...] = ()
    told_by: str = ""


@value
class Answer:
    """What a child wrote, and what went wrong with it (empty if nothing did)."""

    text: str
    trouble: str = ""
    hung: bool = False


def ask_child(words: Sequence[str], environ: Mapping[str, str], deadline_s: float) -> Answer:
    """Runs a program of ours and waits for what it says, no longer than the deadline, in whatever state."""
    import subprocess

    nothing, pipe = subprocess.DEVNULL, subprocess.PIPE
    try:
        child = subprocess.Popen(words, env=environ, stdin=nothing, stdout=pipe, stderr=pipe, start_new_session=True)
    except OSError as error:
        return Answer("", str(error))
    try:
        out, err = child.communicate(timeout=deadline_s)
    except subprocess.TimeoutExpired:
        return Answer("", "no answer", hung=True)
    finally:
        _be_done_with(child)
    last = (err.decode("utf-8", "replace").strip().splitlines() or [f"exit status {child.returncode}"])[-1]
    return Answer(out.decode("utf-8", "replace"), last if child.returncode else "")


def _be_done_with(child: subprocess.Popen[bytes]) -> None:
    """Ends a child that is still there, and waits for it no longer than a moment."""
    import subprocess

    child.kill()
    try:
        child.wait(0.5)
    except subprocess.TimeoutExpired:
        pass  # stuck inside the driver, where no signal reaches it; it ends when the driver lets go
    for pipe in (child.stdout, child.stderr):
        if pipe is not None:
            pipe.close()


class Search:
    """Looks for accelerators as the workers will see them: with their environment, with their Python."""

    def __init__(
        self,
        environ: Mapping[str, str],
        *,
        python: str = sys.executable,
        root: str = "/",
        ask: Callable[[Sequence[str], Mapping[str, str], float], Answer] = ask_child,
        import_path: Sequence[str] | None = None,
    ) -> None:
        self._environ = environ
        self._python = python
        self._ask = ask
        self._signs = device_signs(root)
        where = sys.path if import_path is None else import_path
        self._built_for = torch_build(where) if self._signs and python == sys.executable else None
        self._nvml: Answer | None = None
        self._told: dict[bool, tuple[dict[str, Accelerators], str]] = {}  # torch's answers, located or not

    def find(self, word: str) -> Accelerators | None:
        """What `gpu`, `xpu`, `auto` or another backend's name stands for here; None for nothing.

        UsageError when there are signs of some but nobody can tell how many.
        """
        match word:
            case "gpu":
                return self._nvidia() or self._amd()
            case "xpu":
                return self._intel()
            case "auto":
                return self._nvidia() or self._amd() or self._intel() or self._other()
            case _:
                return self._torch_says(word)

    def located(self) -> Accelerators | None:
        """As `find("auto")`, with the devices wherever anybody can tell them."""
        found = self.find("auto")
        if found is None or found.devices:
            return found
        return self._torch_says(found.kind, located=True)

    def obstacle(self) -> str:
        """Why GPUs that are there do not count, for the one who is told that there are none; else empty."""
        built_for = self._built_for
        if built_for is not None and self._signs & {"nvidia", "amd"} and not built_for & {"cuda", "hip"}:
            return ", because the torch here was built without CUDA and ROCm"
        return ""

    def _nvidia(self) -> Accelerators | None:
        mask = self._environ.get("CUDA_VISIBLE_DEVICES")
        if not self._possible("cuda", "nvidia", "nvidia module") or _hides_all(mask):
            return None
        if self._nvml is None:
            words = (sys.executable, "-I", "-S", "-c", NVML_PROGRAM)
            self._nvml = self._ask(words, self._environ, NVML_DEADLINE_S)
        if self._nvml.hung:
            raise UsageError(
                f"the NVIDIA driver did not say within {NVML_DEADLINE_S:g} s how many GPUs there are",
                f"{_NUMBER} (and see whether `nvidia-smi` hangs as well)",
            )
        devices = _nvml_devices(self._nvml)
        if not devices:
            # without device nodes the driver is not for us: a container that was given no GPU
            return self._torch_says("cuda") if "nvidia" in self._signs else None
        seen: tuple[int, ...] | None = tuple(range(len(devices)))
        if mask is not None:
            seen = chosen(parse_mask(mask), [device.uuid for device in devices])
        if seen is None:
            return self._torch_says("cuda")
        if not seen:
            return None
        by_address = self._environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"  # otherwise the fastest is first
        ordered = by_address or len({device.name for device in devices}) == 1
        return Accelerators("cuda", len(seen), tuple(devices[i] for i in seen) if ordered else (), "NVML")

    def _amd(self) -> Accelerators | None:
        environ = self._environ
        # HIP reads CUDA's variable where its own is missing
        masks = (
            environ.get("ROCR_VISIBLE_DEVICES"),
            environ.get("HIP_VISIBLE_DEVICES", environ.get("CUDA_VISIBLE_DEVICES")),
        )
        if not self._possible("hip", "amd") or any(_hides_all(mask) for mask in masks):
            return None
        return self._torch_says("hip")

    def _intel(self) -> Accelerators | None:
        return self._torch_says("xpu") if self._possible("xpu", "render") else None

    def _other(self) -> Accelerators | None:
        return self._torch_says("current") if self._signs & {"accel", "other"} else None

    def _possible(self, kind: str, *signs: str) -> bool:
        return not self._signs.isdisjoint(signs) and (self._built_for is None or kind in self._built_for)

    def _torch_says(self, kind: str, *, located: bool = False) -> Accelerators | None:
        if located not in self._told:
            words = (self._python, "-c", TORCH_PROGRAM, "located" if located else "count")
            answer = self._ask(words, self._environ, TORCH_DEADLINE_S)
            if ["end"] not in _lines(answer.text) and not self._is_plainly_absent(answer):
                raise UsageError(
                    f"cannot tell how many accelerators there are: {self._python}, asked for its torch, "
                    + (f"did not answer within {TORCH_DEADLINE_S:g} s" if answer.hung else answer.trouble),
                    _NUMBER,
                )
            self._told[located] = _torch_words(answer.text)
        counts, current = self._told[located]
        return counts.get(current if kind == "current" else kind)

    def _is_plainly_absent(self, answer: Answer) -> bool:
        """No torch, and no more than signs that any laptop shows: then there is nothing to count."""
        return "No module named 'torch'" in answer.trouble and self._signs.isdisjoint(("nvidia", "amd"))


def device_signs(root: str = "/") -> frozenset[str]:
    """What the device nodes suggest. Empty on a box with CPUs only, at the cost of one listing."""
    signs = set()
    for name in _names(os.path.join(root, "dev")):
        if (name.startswith("nvidia") and name[6:].isdecimal()) or name in ("dxg", "nvhost-gpu", "nvgpu"):
            signs.add("nvidia")
        elif name == "kfd":
            signs.add("amd")
        elif name == "dri" and any(node.startswith("renderD") for node in _names(os.path.join(root, "dev/dri"))):
            signs.add("render")
        elif name.startswith("accel"):
            signs.add("accel")
        elif name.startswith("davinci") and name[7:].isdecimal():
            signs.add("other")
    if "nvidia" not in signs and os.path.isdir(os.path.join(root, "sys/module/nvidia")):
        signs.add("nvidia module")  # the nodes are made at first use
    return frozenset(signs)


def torch_build(import_path: Sequence[str]) -> frozenset[str] | None:
    """What the first torch on this path was built for (cuda, hip, xpu), not importing it; None: unknown."""
    for folder in filter(None, import_path):
        try:
            with open(os.path.join(folder, "torch", "version.py"), encoding="utf-8") as file:
                lines = file.read().splitlines()
        except (OSError, ValueError):
            continue
        named = [(line.partition("=")[0].partition(":")[0].strip(), line.rpartition("=")[2].strip()) for line in lines]
        return frozenset(name for name, text in named if name in ("cuda", "hip", "xpu") and text != "None")
    return None


def parse_mask(mask: str) -> tuple[str, ...]:
    """The entries of CUDA_VISIBLE_DEVICES as the driver reads them; empty if it hides everything.

    A list is all indices or all identifiers, as its first entry says. The first entry that is neither ends it
    (`0,-1,2` is `0`), one that is named twice makes it void, and `1gpu` counts as 1.
    """
    given = [entry.strip() for entry in mask.split(",")]
    prefix = given[0][:4] if given[0].startswith(("GPU-", "MIG-")) else ""
    entries: list[str] = []
    for entry in given:
        digits = _leading_digits(entry)
        if (prefix and not entry.startswith(prefix)) or not (prefix or digits):
            break
        entries.append(entry if prefix else str(int(digits)))
    return tuple(entries) if len(set(entries)) == len(entries) else ()


def _hides_all(mask: str | None) -> bool:
    return mask is not None and not parse_mask(mask)


def chosen(entries: Sequence[str], uuids: Sequence[str]) -> tuple[int, ...] | None:
    """Which devices a mask names, in its order; None where only the driver knows (parts of a MIG device)."""
    indices: list[int] = []
    for entry in entries:
        if entry.startswith("MIG-"):
            return None
        if entry.isdecimal():
            matches = [index for index in range(len(uuids)) if index == int(entry)]
        else:
            matches = [index for index, uuid in enumerate(uuids) if uuid.startswith(entry)]
        if len(matches) != 1:  # unknown or ambiguous: the list ends here
            break
        indices += matches
    return tuple(indices) if len(set(indices)) == len(indices) else ()


def _leading_digits(entry: str) -> str:
    """As C's strtoul reads a number, but nothing for a negative one."""
    entry = entry.removeprefix("+")
    rest = entry.lstrip("0123456789")
    return entry[: len(entry) - len(rest)]


def _nvml_devices(answer: Answer) -> tuple[Device, ...]:
    """The devices in NVML's order; empty when it has none or could not say."""
    lines = _lines(answer.text)
    if ["end"] not in lines:
        return ()
    return tuple(Device(words[3], words[1], words[2]) for words in lines if words[0] == "device" and len(words) == 4)


def _torch_words(text: str) -> tuple[dict[str, Accelerators], str]:
    """What torch counted, by kind, and which kind it would use."""
    counts: dict[str, int] = {}
    devices: dict[str, list[Device]] = {}
    current = ""
    for words in _lines(text):
        match words:
            case ["count", kind, number] if number.isdecimal():
                counts[kind] = int(number)
            case ["current", kind, number] if number.isdecimal():
                current = "hip" if kind == "cuda" and "hip" in counts else kind
                counts.setdefault(current, int(number))
            case ["device", kind, pci, name]:
                devices.setdefault(kind, []).append(Device(name, pci=pci))
    found = {
        kind: Accelerators(kind, count, tuple(devices.get(kind, ())), "torch")
        for kind, count in counts.items()
        if count
    }
    return found, current


def _lines(text: str) -> list[list[str]]:
    lines = [line.split("\t") for line in text.splitlines()]
    return [words[1:] for words in lines if words[0] == "relight" and len(words) > 1]


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
