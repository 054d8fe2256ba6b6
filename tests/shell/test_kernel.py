"""Out-of-memory kills as the kernel counts them: fake trees of every kind, and one real kill."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from relight.core.evidence import OomEvidence
from relight.shell.kernel import OomWatch, memory_groups, memory_limit, memory_total

V2_AT_ITS_USUAL_PLACE = "31 23 0:28 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
V1_WITH_V2_BESIDE = (
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
)


class FakeKernel:
    """A tree of files that looks like /proc and /sys."""

    def __init__(self, root: Path, cgroup: str, mountinfo: str) -> None:
        self.root = root
        self.write("proc/self/cgroup", cgroup)
        self.write("proc/self/mountinfo", mountinfo)

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def v2(self, folder: str, *, kills: int, refusals: int = 0, limit: str = "max", peak: int = 0) -> None:
        self.write(f"{folder}/memory.events", f"low 0\nhigh 0\nmax 9\noom {refusals}\noom_kill {kills}\n")
        self.write(f"{folder}/memory.events.local", f"oom {refusals}\noom_kill {kills}\noom_group_kill 0\n")
        self.write(f"{folder}/memory.max", f"{limit}\n")
        self.write(f"{folder}/memory.peak", f"{peak}\n")

    def v1(self, folder: str, *, kills: int, refusals: int = 0, limit: int, peak: int = 0) -> None:
        self.write(f"{folder}/memory.oom_control", f"oom_kill_disable 0\nunder_oom 0\noom_kill {kills}\n")
        self.write(f"{folder}/memory.failcnt", f"{refusals}\n")
        self.write(f"{folder}/memory.limit_in_bytes", f"{limit}\n")
        self.write(f"{folder}/memory.max_usage_in_bytes", f"{peak}\n")

    def watch(self) -> OomWatch:
        watch = OomWatch(str(self.root))
        watch.remember()
        return watch

    def folders(self) -> list[tuple[int, str]]:
        return [(version, os.path.relpath(folder, self.root)) for version, folder in memory_groups(str(self.root))]


def test_version_2_counts_from_the_own_cgroup_up(tmp_path: Path) -> None:
    kernel = FakeKernel(tmp_path, "0::/pod/job\n", V2_AT_ITS_USUAL_PLACE)
    kernel.v2("sys/fs/cgroup/pod/job", kills=1)
    kernel.v2("sys/fs/cgroup/pod", kills=1, refusals=1, limit="4294967296")
    assert kernel.folders() == [
        (2, "sys/fs/cgroup/pod/job"),
        (2, "sys/fs/cgroup/pod"),
        (2, "sys/fs/cgroup"),
    ]
    watch = kernel.watch()
    assert watch.since() is None
    kernel.v2("sys/fs/cgroup/pod/job", kills=2, peak=7)
    kernel.v2("sys/fs/cgroup/pod", kills=2, refusals=2, limit="4294967296", peak=4294963200)
    assert watch.since() == OomEvidence(1, "in this cgroup", 4294967296, 4294963200)
    assert memory_limit(str(tmp_path)) == 4294967296


def test_a_kill_explains_only_what_came_after_the_last_look(tmp_path: Path) -> None:
    kernel = FakeKernel(tmp_path, "0::/job\n", V2_AT_ITS_USUAL_PLACE)
    kernel.v2("sys/fs/cgroup/job", kills=0)
    watch = kernel.watch()
    kernel.v2("sys/fs/cgroup/job", kills=1)
    assert watch.since() is not None
    watch.remember()
    assert watch.since() is None


def test_version_1_counts_where_version_2_sits_beside_it(tmp_path: Path) -> None:
    kernel = FakeKernel(tmp_path, "9:name=systemd:/\n4:memory:/job\n0::/\n", V1_WITH_V2_BESIDE)
    kernel.v1("sys/fs/cgroup/memory/job", kills=0, limit=1 << 31)
    kernel.v1("sys/fs/cgroup/memory", kills=0, limit=0x7FFFFFFFFFFFF000)
    kernel.write("sys/fs/cgroup/unified/memory.pressure", "some\n")
    watch = kernel.watch()
    kernel.v1("sys/fs/cgroup/memory/job", kills=1, refusals=12, limit=1 << 31, peak=1 << 31)
    assert str(watch.since()) == (
        "the kernel counted 1 out-of-memory kill in this cgroup (limit 2.0 GiB, peak 2.0 GiB)"
    )
    assert memory_limit(str(tmp_path)) == 1 << 31


@pytest.mark.parametrize(
    ("cgroup", "mounted_from", "expected"),
    [
        ("0::/docker/abc/inner\n", "/docker/abc", ["sys/fs/cgroup/inner", "sys/fs/cgroup"]),
        ("0::/docker/abc\n", "/docker/abc", ["sys/fs/cgroup"]),
        ("0::/docker/abcdef\n", "/docker/abc", ["sys/fs/cgroup"]),
        ("0::/../elsewhere\n", "/", ["sys/fs/cgroup"]),
        ("0::/\n", "/", ["sys/fs/cgroup"]),
        ("4:memory:/\n", "/", []),
    ],
)
def test_what_a_container_sees_of_its_own_cgroup(
    tmp_path: Path, cgroup: str, mounted_from: str, expected: list[str]
) -> None:
    mountinfo = f"31 23 0:28 {mounted_from} /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n31 - cgroup\n"
    kernel = FakeKernel(tmp_path, cgroup, mountinfo)
    assert [folder for _, folder in kernel.folders()] == expected


def test_mount_points_with_blanks_are_found(tmp_path: Path) -> None:
    kernel = FakeKernel(tmp_path, "0::/\n", "31 23 0:28 / /my\\040groups rw - cgroup2 cgroup2 rw\n")
    assert kernel.folders() == [(2, "my groups")]


def test_without_cgroups_the_machines_own_count_is_left(tmp_path: Path) -> None:
    kernel = FakeKernel(tmp_path, "", "")
    kernel.write("proc/vmstat", "nr_free_pages 5\noom_kill 1\n")
    watch = kernel.watch()
    kernel.write("proc/vmstat", "nr_free_pages 5\noom_kill 3\n")
    assert str(watch.since()) == "the kernel counted 2 out-of-memory kills on this machine"


def test_a_machine_that_tells_nothing_hurts_nobody(tmp_path: Path) -> None:
    watch = OomWatch(str(tmp_path))
    assert watch.since() is None, "nothing was remembered"
    watch.remember()
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/vmstat").mkdir()  # opens, but cannot be read
    assert watch.since() is None
    assert memory_limit(str(tmp_path)) is None
    assert memory_total(str(tmp_path)) is None


def test_odd_numbers_count_as_unknown(tmp_path: Path) -> None:
    kernel = FakeKernel(tmp_path, "", "")
    kernel.write("proc/meminfo", "MemFree: 1 kB\nMemTotal:\n")
    assert memory_total(str(tmp_path)) is None
    kernel.write("proc/meminfo", "MemTotal:       24684100 kB\n")
    assert memory_total(str(tmp_path)) == 24684100 * 1024


EATS_MEMORY = """
import sys
with open(sys.argv[1] + "/cgroup.procs", "w") as file:
    file.write("0")
from relight.shell.kernel import OomWatch
import subprocess
watch = OomWatch()
watch.remember()
assert watch.since() is None
eater = subprocess.run([sys.executable, "-c", "held = [bytearray(1 << 20) for _ in range(512)]"])
print(eater.returncode, watch.since())
"""


@pytest.mark.slow
def test_a_real_kill_is_told_with_its_limit(tmp_path: Path) -> None:
    parent = next((folder for version, folder in memory_groups() if version == 1), None)
    if parent is None or not os.access(parent, os.W_OK):
        pytest.skip("needs a writable memory cgroup of version 1")
    group = os.path.join(parent, f"relight-test-{os.getpid()}")
    os.mkdir(group)
    try:
        Path(group, "memory.limit_in_bytes").write_text(str(64 << 20))
        Path(group, "memory.swappiness").write_text("0")
        ran = subprocess.run([sys.executable, "-c", EATS_MEMORY, group], capture_output=True, text=True, timeout=60)
    finally:
        _remove(group)
    assert ran.stdout == (
        "-9 the kernel counted 1 out-of-memory kill in this cgroup (limit 64.0 MiB, peak 64.0 MiB)\n"
    ), ran.stderr


def _remove(group: str) -> None:
    """Removes a cgroup as soon as the kernel has let go of its last process, waiting at most five seconds."""
    deadline = time.monotonic() + 5
    while True:
        try:
            os.rmdir(group)
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
