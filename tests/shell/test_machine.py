"""What this machine has, seen through fake device nodes, fake /sys trees and fake children; some children real."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from relight.core.affinity import spell_cpus
from relight.core.names import UsageError
from relight.shell.accelerators import (
    NVML_PROGRAM,
    TORCH_PROGRAM,
    Answer,
    ask_child,
    chosen,
    device_signs,
    parse_mask,
    torch_build,
)
from relight.shell.machine import Machine

END = "relight\tend\n"
NO_LIBRARY = Answer("relight\ttrouble\tlibnvidia-ml.so.1: cannot open shared object file\n", "exit status 1")
NO_TORCH = Answer("", "ModuleNotFoundError: No module named 'torch'")
HUNG = Answer("", "no answer", hung=True)


def nvml(*names: str) -> Answer:
    lines = [
        f"relight\tdevice\tGPU-{index:x}fade\t0000:{index + 1:02x}:00.0\t{name}\n" for index, name in enumerate(names)
    ]
    return Answer("".join(lines) + END)


EIGHT = nvml(*["NVIDIA H200"] * 8)


def torch_says(*lines: str) -> Answer:
    return Answer("a warning of the user's site\n" + "".join(f"relight\t{line}\n" for line in lines) + END)


class Children:
    """Answers for the children, and what they were asked."""

    def __init__(self, *, nvml: Answer | None = None, torch: Answer | None = None) -> None:
        self._answers = {"nvml": nvml, "torch": torch}
        self.asked: list[str] = []

    def __call__(self, words: Sequence[str], environ: Mapping[str, str], deadline_s: float) -> Answer:
        which = "nvml" if NVML_PROGRAM in words else "torch"
        self.asked.append(which if which == "nvml" else f"{which} {words[0]} {words[-1]}")
        answer = self._answers[which]
        assert answer is not None, f"{which} was asked without need"
        return answer


class FakeBox:
    """A file system with device nodes, /sys, and a torch to be found by its note on what it was built for."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.nodes("null", "tty0")

    def nodes(self, *names: str) -> FakeBox:
        for name in names:
            self.write(f"dev/{name}", "")
        return self

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def torch(self, *, cuda: str = "None", hip: str = "None", xpu: str = "None") -> FakeBox:
        self.write(
            "site/torch/version.py",
            f"from typing import Optional\n__version__ = '2.13.0'\ncuda: Optional[str] = {cuda}\n"
            f"hip: Optional[str] = {hip}\nxpu: Optional[str] = {xpu}\n",
        )
        return self

    def machine(
        self, children: Children, python: str = "", allowed: frozenset[int] = frozenset(range(32)), **environ: str
    ) -> Machine:
        return Machine(
            {**environ, **({"PYTHON_EXEC": python} if python else {})},
            root=str(self.root),
            ask=children,
            affinity=lambda: allowed,
            import_path=["", str(self.root / "site")],
        )


@pytest.fixture
def box(tmp_path: Path) -> FakeBox:
    return FakeBox(tmp_path)


def with_eight(box: FakeBox) -> FakeBox:
    return box.nodes("nvidiactl", "nvidia-uvm", *[f"nvidia{n}" for n in range(8)])


def refusal(machine: Machine, word: str) -> tuple[str, str]:
    with pytest.raises(UsageError) as refused:
        machine.slots(word)
    return refused.value.what, refused.value.remedy


def test_a_box_without_accelerators_asks_nobody(box: FakeBox) -> None:
    children = Children()
    machine = box.machine(children, allowed=frozenset({0, 5, 6}))
    assert machine.slots("auto") == machine.slots("cpu") == 3
    what, remedy = refusal(machine, "gpu")
    assert what == "--nproc-per-node gpu counts GPUs that CUDA or ROCm can use, and there are none"
    assert remedy == "--nproc-per-node auto, cpu, gpu, xpu or a number"
    assert refusal(machine, "xpu")[0] == "--nproc-per-node xpu counts XPUs, and there are none"
    assert children.asked == []


def test_this_box_is_counted_by_its_cpus() -> None:
    if device_signs():
        pytest.skip("needs a machine without accelerators")
    assert Machine({}).slots("auto") == len(os.sched_getaffinity(0))


def test_cpu_never_looks_for_accelerators(box: FakeBox) -> None:
    assert with_eight(box).machine(Children()).slots("cpu") == 32


@pytest.mark.parametrize("word", ["gpu", "auto"])
@pytest.mark.parametrize("cuda", [None, "'13.0'"])
def test_eight_gpus_are_counted_by_nvml_alone(box: FakeBox, word: str, cuda: str | None) -> None:
    if cuda is not None:
        box.torch(cuda=cuda)
    children = Children(nvml=EIGHT)
    assert with_eight(box).machine(children).slots(word) == 8
    assert children.asked == ["nvml"]


@pytest.mark.parametrize(
    ("mask", "count"),
    [
        ("0", 1),
        ("3,1,2", 3),
        (" 3 , 1 ", 2),
        ("0,2,-1,1", 2),
        ("0,8,1", 1),
        ("8", None),
        ("1gpu2,2ampere", 2),
        ("+1", 1),
        ("1,1", None),
        ("", None),
        ("-1", None),
        ("NoDevFiles", None),
        ("all", None),
        ("GPU-3fade", 1),
        ("GPU-3,GPU-4f", 2),
        ("GPU-3,9", 1),
        ("GPU-dead", None),
        ("GPU-", None),
        ("GPU-3,GPU-3f", None),
        ("0,GPU-3", 1),
    ],
)
def test_cuda_visible_devices_means_what_the_driver_takes_it_for(box: FakeBox, mask: str, count: int | None) -> None:
    machine = with_eight(box).machine(Children(nvml=EIGHT), CUDA_VISIBLE_DEVICES=mask)
    if count is not None:
        assert machine.slots("gpu") == machine.slots("auto") == count
    else:
        assert machine.slots("auto") == 32
        assert refusal(machine, "gpu")[0].endswith(f"there are none (CUDA_VISIBLE_DEVICES={mask!r})")


@pytest.mark.parametrize("mask", ["", "-1", "NoDevFiles"])
def test_a_mask_that_hides_all_costs_no_child(box: FakeBox, mask: str) -> None:
    children = Children()
    assert with_eight(box).machine(children, CUDA_VISIBLE_DEVICES=mask).slots("auto") == 32
    assert children.asked == []


def test_only_the_workers_torch_can_count_parts_of_a_gpu(box: FakeBox) -> None:
    children = Children(nvml=EIGHT, torch=torch_says("count\tcuda\t1", "current\tcuda\t1"))
    machine = with_eight(box).machine(children, CUDA_VISIBLE_DEVICES="MIG-1,MIG-2")
    assert machine.slots("gpu") == 1
    assert children.asked == ["nvml", f"torch {sys.executable} count"]


@pytest.mark.parametrize(
    "answer",
    [
        NO_LIBRARY,
        Answer("relight\ttrouble\ta GPU is split by MIG; counting failed with NVML error -1\n", "exit status 1"),
        Answer("relight\tdevice\tGPU-0\t0000:01:00.0\tH200\n", "exit status -11"),
        Answer(END),
    ],
    ids=["missing", "mig", "crashed half way", "nodes without devices"],
)
def test_where_nvml_is_no_help_torch_is_asked_once(box: FakeBox, answer: Answer) -> None:
    children = Children(nvml=answer, torch=torch_says("count\tcuda\t4", "current\tcuda\t4"))
    machine = with_eight(box).machine(children, python="/venv/bin/python")
    assert machine.slots("gpu") == machine.slots("auto") == 4
    assert children.asked == ["nvml", "torch /venv/bin/python count"]


def test_a_hung_driver_is_named(box: FakeBox) -> None:
    children = Children(nvml=HUNG)
    machine = with_eight(box).machine(children)
    assert refusal(machine, "auto") == (
        "the NVIDIA driver did not say within 30 s how many GPUs there are",
        "give the number itself: --nproc-per-node 8 (and see whether `nvidia-smi` hangs as well)",
    )
    assert children.asked == ["nvml"]


@pytest.mark.parametrize(
    ("answer", "why"),
    [(NO_TORCH, NO_TORCH.trouble), (HUNG, "did not answer within 120 s"), (Answer("", "exit status -6"),) * 2],
)
def test_gpus_that_nobody_can_count_are_not_guessed(box: FakeBox, answer: Answer, why: str | Answer) -> None:
    machine = with_eight(box).machine(Children(nvml=NO_LIBRARY, torch=answer), python="/venv/bin/python")
    what, remedy = refusal(machine, "auto")
    assert what.startswith("cannot tell how many accelerators there are: /venv/bin/python, asked for its torch, ")
    assert what.endswith(why if isinstance(why, str) else why.trouble)
    assert remedy == "give the number itself: --nproc-per-node 8"


def test_a_container_without_gpus_on_a_gpu_host_has_none(box: FakeBox) -> None:
    box.write("sys/module/nvidia/version", "595.1")
    children = Children(nvml=NO_LIBRARY)
    assert box.machine(children).slots("auto") == 32
    assert children.asked == ["nvml"]


def test_gpus_whose_nodes_are_made_at_first_use_are_found(box: FakeBox) -> None:
    box.write("sys/module/nvidia/version", "595.1")
    assert box.machine(Children(nvml=EIGHT)).slots("gpu") == 8


def test_a_torch_without_cuda_does_not_use_gpus(box: FakeBox) -> None:
    children = Children()
    machine = with_eight(box).torch().machine(children)
    assert machine.slots("auto") == 32
    assert "because the torch here was built without CUDA and ROCm" in refusal(machine, "gpu")[0]
    assert children.asked == []


def test_rocm_is_counted_by_torch(box: FakeBox) -> None:
    children = Children(torch=torch_says("count\thip\t2", "current\tcuda\t2"))
    machine = box.nodes("kfd", "dri/renderD128").torch(hip="'7.1'").machine(children)
    assert machine.slots("gpu") == machine.slots("auto") == 2
    assert len(children.asked) == 1


@pytest.mark.parametrize("variable", ["HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"])
def test_masks_that_hide_every_amd_gpu_cost_no_child(box: FakeBox, variable: str) -> None:
    root = str(box.nodes("kfd").root)
    machine = Machine({variable: ""}, root=root, ask=Children(), affinity=lambda: frozenset(range(32)), import_path=[])
    assert machine.slots("auto") == 32
    assert f"({variable}='')" in refusal(machine, "gpu")[0]


def test_hips_own_mask_comes_before_cudas(box: FakeBox) -> None:
    children = Children(torch=torch_says("count\thip\t1"))
    machine = box.nodes("kfd").machine(children, HIP_VISIBLE_DEVICES="0", CUDA_VISIBLE_DEVICES="")
    assert machine.slots("gpu") == 1


def test_xpus_are_counted_by_torch(box: FakeBox) -> None:
    children = Children(torch=torch_says("count\txpu\t6", "current\txpu\t6"))
    machine = box.nodes("dri/card0", "dri/renderD128").torch(xpu="'20260101'").machine(children)
    assert machine.slots("xpu") == machine.slots("auto") == 6
    assert refusal(machine, "gpu")[0].endswith("and there are none")


@pytest.mark.parametrize("torch", [True, False])
def test_a_laptops_own_graphics_are_no_accelerator(box: FakeBox, torch: bool) -> None:
    box.nodes("dri/renderD128")
    if torch:
        box.torch(cuda="'13.0'")
    children = Children(torch=NO_TORCH)
    assert box.machine(children).slots("auto") == 32
    assert len(children.asked) == (0 if torch else 1)


@pytest.mark.parametrize("node", ["accel/accel0", "davinci0"])
def test_another_backend_counts_by_auto_and_by_its_own_name(box: FakeBox, node: str) -> None:
    children = Children(torch=torch_says("count\tnpu\t8", "current\tnpu\t8"))
    machine = box.nodes(node).torch().machine(children)
    assert machine.slots("auto") == machine.slots("npu") == 8


def test_a_backend_that_only_auto_knows_counts_too(box: FakeBox) -> None:
    machine = box.nodes("accel/accel0").machine(Children(torch=torch_says("current\thpu\t8")))
    assert machine.slots("auto") == 8


def test_unknown_words_are_refused(box: FakeBox) -> None:
    children = Children(torch=NO_TORCH)
    machine = box.machine(children)
    for word in ("4.5", "", "GPU", "8 "):
        assert refusal(machine, word)[0] == f"--nproc-per-node {word!r} is neither a number nor a known word"
    assert children.asked == []
    assert refusal(machine, "foo")[0] == "--nproc-per-node foo names no kind of accelerator that torch finds here"


def test_masks_are_parsed_as_lists_of_one_kind() -> None:
    assert parse_mask("007,8") == ("7", "8")
    assert parse_mask("GPU-a, GPU-b,MIG-c") == ("GPU-a", "GPU-b")
    assert chosen(("MIG-a",), ["GPU-a"]) is None
    assert chosen((), ["GPU-a"]) == ()


def test_torchs_note_is_read_without_importing_it(box: FakeBox) -> None:
    box.torch(cuda="'13.0'", hip="None")
    site = str(box.root / "site")
    assert torch_build(["", str(box.root), site]) == frozenset({"cuda"})
    assert torch_build([str(box.root)]) is None
    (box.root / "site/torch/version.py").write_text("cuda = None\nhip = '7'\n__version__ = 'own build'\n")
    assert torch_build([site]) == frozenset({"hip"})


# CPUs near accelerators


def draw_sockets(box: FakeBox, gpu_nodes: Sequence[int], *, caches: bool = True) -> FakeBox:
    """2 packages of 2 NUMA nodes, 4 cores each, 2 threads a core (n and n + 16), a cache for every 2 cores."""
    home = "sys/devices/system"
    for node in range(4):
        first = node * 4
        box.write(f"{home}/node/node{node}/cpulist", f"{first}-{first + 3},{first + 16}-{first + 19}\n")
    for cpu in range(32):
        core, pair = cpu % 16, cpu % 16 // 2 * 2
        box.write(f"{home}/cpu/cpu{cpu}/topology/physical_package_id", f"{core // 8}\n")
        box.write(f"{home}/cpu/cpu{cpu}/topology/thread_siblings_list", f"{core},{core + 16}\n")
        shared = f"{pair}-{pair + 1},{pair + 16}-{pair + 17}\n"
        for index, level, kind, cpus in (
            (0, 1, "Data", f"{core},{core + 16}\n"),
            (1, 4, "Instruction", f"{core}\n"),
            (3, 3, "Unified", shared),
        ):
            if caches:
                folder = f"{home}/cpu/cpu{cpu}/cache/index{index}"
                box.write(f"{folder}/level", f"{level}\n")
                box.write(f"{folder}/type", f"{kind}\n")
                box.write(f"{folder}/shared_cpu_list", cpus)
    for index, node in enumerate(gpu_nodes):
        box.write(f"sys/bus/pci/devices/0000:{index + 1:02x}:00.0/numa_node", f"{node}\n")
    return with_eight(box)


def spelled(machine: Machine, mode: str, nproc: int) -> list[str]:
    return [spell_cpus(cpus) for cpus in machine.numa_cpus(mode, nproc)]


ON_EVERY_NODE = (0, 0, 1, 1, 2, 2, 3, 3)


@pytest.mark.parametrize(
    ("mode", "first", "last"),
    [
        ("node", "0-3,16-19", "12-15,28-31"),
        ("socket", "0-7,16-23", "8-15,24-31"),
        ("exclusive", "0-1,16-17", "14-15,30-31"),
        ("core-complex", "0-1,16-17", "14-15,30-31"),
    ],
)
def test_workers_are_bound_near_their_gpu(box: FakeBox, mode: str, first: str, last: str) -> None:
    sets = spelled(draw_sockets(box, ON_EVERY_NODE).machine(Children(nvml=EIGHT)), mode, 8)
    assert (len(sets), sets[0], sets[7]) == (8, first, last)


def test_the_order_of_the_mask_is_the_order_of_the_ranks(box: FakeBox) -> None:
    machine = draw_sockets(box, ON_EVERY_NODE).machine(Children(nvml=EIGHT), CUDA_VISIBLE_DEVICES="7,0,GPU-")
    assert spelled(machine, "node", 2) == ["12-15,28-31", "0-3,16-19"]


def test_an_unknown_node_is_the_first_one(box: FakeBox) -> None:
    machine = draw_sockets(box, (-1, 3)).machine(Children(nvml=nvml("H200", "H200")))
    assert spelled(machine, "node", 2) == ["0-3,16-19", "12-15,28-31"]


def test_only_what_the_launcher_may_use_is_given(box: FakeBox) -> None:
    allowed = frozenset({1, 2, 20})
    machine = draw_sockets(box, ON_EVERY_NODE).machine(Children(nvml=EIGHT), allowed=allowed)
    assert spelled(machine, "socket", 3) == ["1-2,20"] * 3


def test_without_cache_facts_a_node_is_one_complex(box: FakeBox) -> None:
    machine = draw_sockets(box, ON_EVERY_NODE, caches=False).machine(Children(nvml=EIGHT))
    assert spelled(machine, "core-complex", 2) == ["0-3,16-19"] * 2


def test_a_kernel_without_numa_is_one_node(box: FakeBox) -> None:
    box.write("sys/devices/system/cpu/online", "0-3\n")
    machine = box.nodes("nvidia0").machine(Children(nvml=nvml("H200")))
    assert spelled(machine, "node", 1) == spelled(machine, "socket", 1) == ["0-3"]


def test_cpus_that_sysfs_spells_oddly_are_left_out(box: FakeBox) -> None:
    box.write("sys/devices/system/node/node0/cpulist", "what?\n")
    machine = box.nodes("nvidia0").machine(Children(nvml=nvml("H200")))
    with pytest.raises(UsageError, match="of whose CPUs this process may use none"):
        machine.numa_cpus("node", 1)


def test_where_cuda_may_order_differently_torch_tells_the_addresses(box: FakeBox) -> None:
    torch = torch_says(
        "count\tcuda\t2",
        "device\tcuda\t0000:02:00.0\tH200",
        "device\tcuda\t0000:01:00.0\tT4",
        "current\tcuda\t2",
    )
    children = Children(nvml=nvml("T4", "H200"), torch=torch)
    draw_sockets(box, (0, 3))
    assert spelled(box.machine(children), "node", 2) == ["12-15,28-31", "0-3,16-19"]
    assert children.asked == ["nvml", f"torch {sys.executable} located"]
    by_address = box.machine(Children(nvml=nvml("T4", "H200")), CUDA_DEVICE_ORDER="PCI_BUS_ID")
    assert spelled(by_address, "node", 2) == ["0-3,16-19", "12-15,28-31"]


def test_xpus_are_found_on_the_bus_when_torch_does_not_say_where(box: FakeBox) -> None:
    draw_sockets(box, (1, 2))
    for number in range(8):
        (box.root / f"dev/nvidia{number}").unlink()
    box.nodes("dri/renderD128", "dri/renderD129")
    for minor, pci, driver in ((128, "0000:02:00.0", "xe"), (129, "0000:01:00.0", "xe"), (130, "0000:09:00.0", "ast")):
        device = box.root / "sys/bus/pci/devices" / pci
        device.mkdir(exist_ok=True)
        (device / "driver").symlink_to(box.root / f"sys/bus/pci/drivers/{driver}")
        box.write(f"sys/class/drm/renderD{minor}/dev", f"226:{minor}\n")
        (box.root / f"sys/class/drm/renderD{minor}/device").symlink_to(device)
    children = Children(torch=torch_says("count\txpu\t2", "device\txpu\t\tMax", "device\txpu\t\tMax"))
    assert spelled(box.machine(children), "node", 2) == ["4-7,20-23", "8-11,24-27"]
    with pytest.raises(UsageError, match="nobody can tell where the 2 accelerators sit"):
        box.machine(children, ZE_AFFINITY_MASK="1").numa_cpus("node", 2)


def test_binding_without_accelerators_is_refused(box: FakeBox) -> None:
    with pytest.raises(UsageError) as refused:
        box.machine(Children()).numa_cpus("node", 2)
    assert refused.value.what == (
        "--numa-binding node binds workers to the CPUs near their GPU, and this machine has none"
    )
    assert refused.value.remedy == "leave --numa-binding out"


# the report


def test_the_description_names_what_is_there(box: FakeBox) -> None:
    draw_sockets(box, ON_EVERY_NODE)
    box.write("proc/meminfo", "MemTotal: 1024 kB\n")
    told = box.machine(Children(nvml=EIGHT), allowed=frozenset({0, 1, 9}), CUDA_VISIBLE_DEVICES="1,2").describe()
    assert told["accelerators"] == {
        "kind": "CUDA GPU",
        "count": 2,
        "names": ["NVIDIA H200"] * 2,
        "told_by": "NVML",
    }
    assert told["affinity"] == "0-1,9"
    assert told["visible"] == {"CUDA_VISIBLE_DEVICES": "1,2"}
    assert told["memory_total_bytes"] == 1 << 20
    assert told["numa_nodes"] == {
        "0": "0-3,16-19",
        "1": "4-7,20-23",
        "2": "8-11,24-27",
        "3": "12-15,28-31",
    }
    assert told["host"] == os.uname().nodename


def test_the_description_says_why_it_cannot_tell(box: FakeBox) -> None:
    told = with_eight(box).machine(Children(nvml=HUNG)).describe()
    assert told["accelerators"] == {"unknown": "the NVIDIA driver did not say within 30 s how many GPUs there are"}
    assert Machine({}, root=str(box.root / "nowhere")).describe()["accelerators"] == {"count": 0}


# real children


def test_a_child_that_hangs_is_left_at_the_deadline() -> None:
    began = time.monotonic()
    answer = ask_child((sys.executable, "-S", "-c", "import time; time.sleep(60)"), os.environ, 0.3)
    assert answer.hung
    assert time.monotonic() - began < 5


def test_a_child_that_cannot_start_or_fails_says_why() -> None:
    assert "No such file" in ask_child(("/no/such/python",), os.environ, 5).trouble
    failed = ask_child((sys.executable, "-S", "-c", "print('so far'); raise OSError('torn')"), os.environ, 30)
    assert failed == Answer("so far\n", "OSError: torn")
    silent = ask_child((sys.executable, "-S", "-c", "import os; os._exit(3)"), os.environ, 30)
    assert silent.trouble == "exit status 3"


FAKE_NVML = """
#include <string.h>
#include <unistd.h>
#include <stdlib.h>
typedef struct { char legacy[16]; unsigned domain, bus, device, ids[2]; char text[32]; } Pci;
int nvmlInit_v2(void) { if (getenv("HANG")) pause(); return getenv("SICK") ? 999 : 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 3; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    if (index == 1) return 4;
    if (getenv("CRASH") && index == 2) abort();
    *handle = (void *)(long)(0x100000000 + index);
    return 0;
}
int nvmlDeviceGetUUID(void *handle, char *text, unsigned size) {
    strcpy(text, (long)handle == 0x100000000 ? "GPU-aa" : "GPU-bb"); return 0;
}
int nvmlDeviceGetName(void *handle, char *text, unsigned size) { strcpy(text, "Fake 9000"); return 0; }
int nvmlDeviceGetPciInfo_v3(void *handle, Pci *pci) {
    memset(pci, 0, sizeof *pci); pci->domain = 0; pci->bus = 0xdc; pci->device = (long)handle & 0xff; return 0;
}
int nvmlDeviceGetMigMode(void *handle, unsigned *now, unsigned *later) {
    *now = getenv("MIG") ? 1 : 0; return getenv("MIG") ? 0 : 3;
}
"""


@pytest.fixture(scope="module")
def fake_nvml(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with a library that answers as NVML does: three GPUs, one of which belongs to somebody else."""
    folder = tmp_path_factory.mktemp("nvml")
    (folder / "nvml.c").write_text(FAKE_NVML)
    library = folder / "libnvidia-ml.so.1"
    try:
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, folder / "nvml.c"], check=True, timeout=60)
    except FileNotFoundError:
        pytest.skip("needs a C compiler")
    return str(folder)


def ask_fake_nvml(folder: str, *, deadline_s: float = 60, **environ: str) -> Answer:
    words = (sys.executable, "-I", "-S", "-c", NVML_PROGRAM)
    return ask_child(words, {**os.environ, "LD_LIBRARY_PATH": folder, **environ}, deadline_s)


def test_a_real_library_is_asked_by_a_real_child(fake_nvml: str, box: FakeBox) -> None:
    assert ask_fake_nvml(fake_nvml).text == (
        "relight\tdevice\tGPU-aa\t0000:dc:00.0\tFake 9000\nrelight\tdevice\tGPU-bb\t0000:dc:02.0\tFake 9000\n" + END
    )
    machine = Machine({**os.environ, "LD_LIBRARY_PATH": fake_nvml}, root=str(with_eight(box).root), import_path=[])
    assert machine.slots("gpu") == 2


def test_a_real_library_may_be_sick_crash_or_hang(fake_nvml: str) -> None:
    assert ask_fake_nvml(fake_nvml, SICK="1").text == "relight\ttrouble\tnvmlInit failed with NVML error 999\n"
    assert "split by MIG" in ask_fake_nvml(fake_nvml, MIG="1").text
    crashed = ask_fake_nvml(fake_nvml, CRASH="1")
    assert crashed.trouble and END not in crashed.text
    assert ask_fake_nvml(fake_nvml, deadline_s=0.5, HANG="1").hung


FAKE_TORCH = """
class Properties:
    name, pci_domain_id, pci_bus_id, pci_device_id = "Fake 9000", 0, 0x3b, 0
class version:
    hip = None
class cuda:
    is_available = staticmethod(lambda: True)
    device_count = staticmethod(lambda: 2)
    get_device_properties = staticmethod(lambda index: Properties)
class npu:
    is_available = staticmethod(lambda: True)
    device_count = staticmethod(lambda: 1)
class _C:
    _get_privateuse1_backend_name = staticmethod(lambda: "npu")
class accelerator:
    is_available = staticmethod(lambda: True)
    device_count = staticmethod(lambda: 2)
    current_accelerator = staticmethod(lambda: type("Device", (), {"type": "cuda"}))
print("torch is chatty", end="\\n")
"""


def test_the_workers_torch_is_asked_by_a_real_child(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(FAKE_TORCH)
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
    counted = ask_child((sys.executable, "-c", TORCH_PROGRAM, "count"), environ, 60)
    assert counted.text == (
        "torch is chatty\nrelight\tcount\tcuda\t2\nrelight\tcount\tnpu\t1\nrelight\tcurrent\tcuda\t2\n" + END
    )
    (tmp_path / "torch.py").write_text(FAKE_TORCH.replace("hip = None", "hip = '7.1'").replace('"npu"', '"x"'))
    located = ask_child((sys.executable, "-c", TORCH_PROGRAM, "located"), environ, 60)
    assert located.text == (
        "torch is chatty\nrelight\tcount\thip\t2\n"
        + "relight\tdevice\thip\t0000:3b:00.0\tFake 9000\n" * 2
        + "relight\tcurrent\tcuda\t2\n"
        + END
    )


@pytest.mark.slow
def test_the_real_torch_can_be_asked(box: FakeBox) -> None:
    answer = ask_child((sys.executable, "-c", TORCH_PROGRAM, "located"), os.environ, 110)
    if "No module named 'torch'" in answer.trouble:
        pytest.skip("needs torch")
    assert answer.text.endswith(END) and not answer.trouble
