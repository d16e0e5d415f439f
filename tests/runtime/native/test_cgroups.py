"""Control groups of version 2, in a folder that behaves as the kernel's; and of either version,
removed by one while another makes its own.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from transom.runtime.native import cgroups
from transom.runtime.native.cgroups import CgroupHierarchies
from transom.runtime.native.platform import CgroupLimits

CONTROLLERS = "cpuset cpu io memory hugetlb pids rdma misc"


class Kernel:
    """Folders have files in them when they are made, and go away with those. `before` is called
    before each is made.
    """

    def __init__(self, root: Path, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.version = root, version
        self.before: Callable[[Path], None] = lambda folder: None
        self._mkdir, self._rmdir = os.mkdir, os.rmdir
        root.mkdir()
        self._fill(root, CONTROLLERS)
        mounts = (
            {"": str(root)}
            if version == 2
            else {"cpu": str(root / "cpu"), "memory": str(root / "memory")}
        )
        for mount in mounts.values():
            os.makedirs(mount, exist_ok=True)
        cgroups_of_test = CgroupHierarchies(2 if version == 2 else 1, mounts)
        monkeypatch.setattr(cgroups, "cgroup_hierarchies", lambda: cgroups_of_test)
        monkeypatch.setattr(os, "mkdir", self.mkdir)
        monkeypatch.setattr(os, "rmdir", self.rmdir)

    def mkdir(self, path: str, mode: int = 0o777) -> None:
        folder = Path(path)
        self.before(folder)
        self._mkdir(folder, mode)
        if self.version == 2:
            self._fill(
                folder, (folder.parent / "cgroup.subtree_control").read_text().replace("+", "")
            )

    def _fill(self, folder: Path, controllers: str) -> None:
        (folder / "cgroup.controllers").write_text(controllers)
        (folder / "cgroup.subtree_control").write_text("")
        (folder / "cgroup.procs").write_text("")

    def rmdir(self, path: str) -> None:
        entries = list(Path(path).iterdir())
        if any(entry.is_dir() for entry in entries):
            raise OSError(errno.ENOTEMPTY, "not empty", path)
        for entry in entries:
            entry.unlink()
        self._rmdir(path)

    def texts(self, name: str) -> dict[str, str]:
        return {
            str(path.parent.relative_to(self.root)): path.read_text()
            for path in sorted(self.root.rglob(name))
        }


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return Kernel(tmp_path / "cgroup", 2, monkeypatch)


@pytest.fixture(params=[1, 2])
def kernel(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Kernel:
    return Kernel(tmp_path / "cgroup", request.param, monkeypatch)


def _mount(point: str, kind: str, options: str) -> str:
    return f"30 29 0:26 / {point} rw,nosuid shared:4 - {kind} {kind} {options}\n"


UNIFIED = _mount("/sys/fs/cgroup", "cgroup2", "rw,nsdelegate,memory_recursiveprot")
MEMORY, CPU = (
    _mount(f"/sys/fs/cgroup/{name}", "cgroup", f"rw,{name}") for name in ("memory", "cpu,cpuacct")
)
HYBRID = _mount("/sys/fs/cgroup/unified", "cgroup2", "rw")
OLD = {
    "memory": "/sys/fs/cgroup/memory",
    "cpu": "/sys/fs/cgroup/cpu,cpuacct",
    "cpuacct": "/sys/fs/cgroup/cpu,cpuacct",
}


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ([], CgroupHierarchies(0, {})),
        ([_mount("/", "ext4", "rw")], CgroupHierarchies(0, {})),
        ([UNIFIED], CgroupHierarchies(2, {"": "/sys/fs/cgroup"})),
        (
            [UNIFIED, _mount("/srv/box/sys/fs/cgroup", "cgroup2", "rw")],
            CgroupHierarchies(2, {"": "/sys/fs/cgroup"}),
        ),
        ([MEMORY, CPU], CgroupHierarchies(1, OLD)),
        (
            [HYBRID, MEMORY, CPU, _mount("/srv/box/memory", "cgroup", "rw,memory")],
            CgroupHierarchies(1, {**OLD, "": "/sys/fs/cgroup/unified"}),
        ),
        (
            [_mount("/sys/fs/cgroup/systemd", "cgroup", "rw,xattr,name=systemd"), HYBRID],
            CgroupHierarchies(2, {"": "/sys/fs/cgroup/unified"}),
        ),
    ],
)
def test_which_version_a_machine_has(lines: list[str], found: CgroupHierarchies) -> None:
    assert cgroups.mounted_cgroups(lines) == found


def test_every_level_but_the_last_has_controllers_for_the_next(two: Kernel) -> None:
    cgroups.claim_cgroup("/transom/c/node1")
    cgroups.make_cgroup("/transom/c/node1/kubepods/pod1", "pause")
    given = "+cpu +memory +pids +cpuset"
    assert two.texts("cgroup.subtree_control") == {
        ".": given,
        "transom": given,
        "transom/c": given,
        "transom/c/node1": given,
        "transom/c/node1/kubepods": given,
        "transom/c/node1/kubepods/pod1": given,
        "transom/c/node1/kubepods/pod1/pause": "",
    }


def test_controllers_that_are_there_are_not_asked_for_again(two: Kernel) -> None:
    control = two.root / "cgroup.subtree_control"
    control.write_text("cpuset memory pids")
    cgroups.claim_cgroup("/transom")
    assert control.read_text() == "+cpu"
    control.write_text("cpu cpuset memory pids")
    cgroups.claim_cgroup("/other")
    assert control.read_text() == "cpu cpuset memory pids"


@pytest.mark.parametrize(
    ("controllers", "problem"), [("memory pids", "no controller for cpu"), ("", "cpu and memory")]
)
def test_a_machine_without_controllers(two: Kernel, controllers: str, problem: str) -> None:
    (two.root / "cgroup.controllers").write_text(controllers)
    with pytest.raises(OSError, match=problem):
        cgroups.claim_cgroup("/transom/c/node1")
    assert not (two.root / "transom").exists()


def test_a_root_that_is_none_loses_its_processes(
    two: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container: its root may not have both processes and groups with controllers."""
    (two.root / "cgroup.procs").write_text("1\n17\n")
    moved: list[int | str] = []
    enable = cgroups._enable

    def refuse(folder: str, controllers: list[str]) -> None:
        if folder == str(two.root) and moved != [1, 17]:
            raise OSError(errno.EBUSY, "busy", folder)
        enable(folder, controllers)

    def write(path: str, value: int | str) -> bool:
        assert path == f"{two.root}/init/cgroup.procs"
        moved.append(value)
        return True

    monkeypatch.setattr(cgroups, "_enable", refuse)
    monkeypatch.setattr(cgroups, "_write", write)
    cgroups.claim_cgroup("/transom")
    assert (
        moved == [1, 17]
        and (two.root / "cgroup.subtree_control").read_text() == "+cpu +memory +pids +cpuset"
    )


WEIGHTS = [(0, "1"), (2, "1"), (102, "4"), (1024, "39"), (262144, "10000"), (1 << 30, "10000")]


@pytest.mark.parametrize(("shares", "weight"), WEIGHTS)
def test_weights(two: Kernel, shares: int, weight: str) -> None:
    cgroups.claim_cgroup("/pod")
    cgroups.set_cgroup_shares("/pod", shares)
    assert two.texts("cpu.weight") == {"pod": weight}


def test_a_node_is_as_large_as_its_machine(two: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    cgroups.claim_cgroup("/node1")
    cgroups.confine_cgroup("/node1", cpus=2, memory=4096)
    assert (two.texts("cpu.max"), two.texts("memory.max")) == (
        {"node1": "200000 100000"},
        {"node1": "4096"},
    )
    cgroups.claim_cgroup("/node2")
    cgroups.confine_cgroup("/node2", cpus=8, memory=1 << 60)
    assert list(two.texts("cpu.max")) == list(two.texts("memory.max")) == ["node1"]


def test_what_it_has_counted(two: Kernel) -> None:
    assert cgroups.cgroup_usage("/pod") is None
    cgroups.make_cgroup("/pod", "c")
    for name, text in {
        "cpu.stat": "usage_usec 1500\nuser_usec 1000\nnr_throttled 2\n",
        "memory.current": "5000\n",
        "pids.current": "3\n",
        "memory.stat": "anon 1000\nfile 3000\ninactive_file 1800\npgfault 7\npgmajfault 1\n",
    }.items():
        (two.root / "pod/c" / name).write_text(text)
    found = cgroups.cgroup_usage("/pod/c")
    assert found is not None
    assert (found.cpu_nanoseconds, found.usage, found.working_set, found.rss) == (
        1_500_000,
        5000,
        3200,
        1000,
    )
    assert (found.page_faults, found.major_page_faults, found.processes) == (7, 1, 3)


def test_names_of_files(two: Kernel) -> None:
    assert cgroups.processes_file("/a/b") == f"{two.root}/a/b/cgroup.procs"
    assert cgroups.oom_counter("/a/b") == f"{two.root}/a/b/memory.events"


def test_what_may_be_reclaimed_is_not_protected_instead(two: Kernel) -> None:
    """What version 1 calls a soft limit has no counterpart: runc would make memory.low of it, which
    is the opposite.
    """
    assert cgroups.cgroup_resources(CgroupLimits(memory_soft=1 << 20)) == {"cpu": {"shares": 2}}


def test_huge_pages_are_limited_where_there_is_a_controller(
    two: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    listdir, isdir = os.listdir, os.path.isdir
    folder = "/sys/kernel/mm/hugepages"
    monkeypatch.setattr(
        os, "listdir", lambda at: ["hugepages-2048kB"] if at == folder else listdir(at)
    )
    monkeypatch.setattr(os.path, "isdir", lambda at: at == folder or isdir(at))
    limits = CgroupLimits(hugepages={"2MB": 4096, "1GB": 1})
    assert cgroups.cgroup_resources(limits)["hugepageLimits"] == [
        {"pageSize": "2MB", "limit": 4096}
    ]
    (two.root / "cgroup.controllers").write_text("cpu memory")
    assert cgroups.cgroup_resources(limits)["hugepageLimits"] == []


def test_a_container_may_be_limited_to_some_cpus(
    two: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
    limits = CgroupLimits(cpuset="1-2")
    assert cgroups.cgroup_resources(limits)["cpu"] == {"shares": 2, "cpus": "1-2"}
    cgroups.claim_cgroup("/pod")
    cgroups.set_cgroup_limits("/pod", limits)
    assert two.texts("cpuset.cpus") == {"pod": "1-2"}
    # The node has more CPUs than this machine.
    assert cgroups.cgroup_resources(CgroupLimits(cpuset="3-4"))["cpu"] == {"shares": 2}
    (two.root / "cgroup.controllers").write_text("cpu memory")
    assert cgroups.cgroup_resources(limits)["cpu"] == {"shares": 2}


def test_the_group_above_is_removed_while_one_is_made(kernel: Kernel) -> None:
    """Every cluster removes /transom when it finds it empty; another one may just be about to make
    its own group there.
    """
    removals: list[Path] = []

    def remove_empty_parent(folder: Path) -> None:
        if folder.name == "b" and len(removals) < 3:
            removals.append(folder)
            cgroups.remove_empty_cgroup(["/transom"])

    cgroups.claim_cgroup("/transom/a/node1")
    kernel.before = remove_empty_parent
    cgroups.kill_and_remove_cgroup("/transom/a")
    cgroups.claim_cgroup("/transom/b/node1")
    assert len(removals) == 3
    cgroups.remove_empty_cgroup(["/transom/b", "/transom"])  # in use
    for mount in cgroups.cgroup_hierarchies().mounts.values():
        assert Path(mount, "transom/b/node1").is_dir()
    assert cgroups.kill_and_remove_cgroup("/transom/b")
    cgroups.remove_empty_cgroup(["/transom"])
    assert not list(kernel.root.rglob("transom"))


def test_a_group_that_can_never_be_made(kernel: Kernel) -> None:
    def vanish(folder: Path) -> None:
        if folder.name == "b":
            raise FileNotFoundError(errno.ENOENT, "gone", str(folder))

    kernel.before = vanish
    with pytest.raises(FileNotFoundError):
        cgroups.claim_cgroup("/transom/b/node1")


def test_files_of_version_2_are_left_out_on_version_1(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = CgroupLimits(unified={"memory.high": "4096"})
    for version, expected in ((2, {"memory.high": "4096"}), (1, None)):
        found = CgroupHierarchies(version, {"": "/nowhere"})
        monkeypatch.setattr(cgroups, "cgroup_hierarchies", lambda found=found: found)
        assert cgroups.cgroup_resources(wanted).get("unified") == expected
