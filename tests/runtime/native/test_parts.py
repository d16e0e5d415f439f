"""The parts of a native runtime that need neither root nor runc."""

from __future__ import annotations

import errno
import os
import platform
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transom.network.api import DnsConfig, PortMapping
from transom.runtime import saved
from transom.runtime.api import (
    ContainerConfig,
    LinuxContainer,
    LinuxResources,
    LinuxSandbox,
    Mount,
    SandboxConfig,
)
from transom.runtime.native import cgroups, pause, runc, runtime, snapshots
from transom.runtime.native.monitor.logfile import LogFile
from transom.runtime.native.platform import CgroupLimits
from transom.runtime.oci import capabilities, seccomp, users
from transom.runtime.signals import signal_name, signal_number

# ---- records ----

_text = st.text(max_size=8)
_table = st.dictionaries(_text, _text, max_size=3)


def _configs() -> st.SearchStrategy[object]:
    linux = st.builds(
        LinuxContainer,
        resources=st.builds(
            LinuxResources,
            memory_limit=st.integers(0, 1 << 40),
            hugepages=_table.map(lambda names: dict.fromkeys(names, 1)),
        ),
        run_as_user=st.none() | st.integers(0, 1 << 32),
        supplemental_groups=st.lists(st.integers(0, 99)).map(tuple),
        selinux=st.none() | _table,
    )
    mounts = st.lists(st.builds(Mount, _text, _text, st.booleans()), max_size=3).map(tuple)
    container = st.builds(
        ContainerConfig,
        name=_text,
        attempt=st.integers(0, 9),
        image=_text,
        image_ref=_text,
        env=st.lists(st.tuples(_text, _text)).map(tuple),
        mounts=mounts,
        labels=_table,
        linux=st.none() | linux,
    )
    sandbox = st.builds(
        SandboxConfig,
        name=_text,
        namespace=_text,
        uid=_text,
        labels=_table,
        dns=st.builds(DnsConfig, st.lists(_text).map(tuple)),
        ports=st.lists(st.builds(PortMapping, st.integers(), st.integers())).map(tuple),
        linux=st.builds(LinuxSandbox, sysctls=_table, run_as_user=st.none() | st.integers()),
    )
    return container | sandbox


@settings(deadline=None)
@given(_configs())
def test_what_is_saved_comes_back(tmp_path_factory: pytest.TempPathFactory, config: object) -> None:
    path = tmp_path_factory.getbasetemp() / "record.json"
    saved.save_record(path, {"config": config})
    found = saved.load_record(path)
    assert found is not None
    assert saved.restore_record(type(config), found["config"]) == config


def test_a_record_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "half.json").write_text('{"config": ')
    assert saved.load_record(tmp_path / "half.json") is None
    assert saved.load_record(tmp_path / "none.json") is None


# ---- logs ----


@given(
    st.lists(st.tuples(st.sampled_from(["stdout", "stderr"]), st.binary(max_size=40)), max_size=12)
)
def test_a_log_says_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[tuple[str, bytes]]
) -> None:
    path = tmp_path_factory.mktemp("log") / "0.log"
    log = LogFile(str(path))
    for stream, data in pieces:
        log.write(stream, data)
    log.close()
    for stream in ("stdout", "stderr"):
        written = b"".join(data for name, data in pieces if name == stream)
        records = [
            line.split(b" ", 3)
            for line in path.read_bytes().split(b"\n")
            if f" {stream} ".encode() in line[:40]
        ]
        read = b"".join(text + (b"\n" if tag == b"F" else b"") for _, _, tag, text in records)
        assert read == written.replace(b"\r\n", b"\n")


def test_a_full_disk_leaves_no_half_line(tmp_path: Path) -> None:
    log = LogFile(str(tmp_path / "0.log"))
    with open("/dev/full", "wb") as full:
        os.dup2(full.fileno(), log._fd)
    assert log.write("stdout", b"lost\n") is False


@pytest.mark.parametrize("kind", ["link", "broken link", "directory link", "pipe", "device"])
def test_a_log_is_an_ordinary_file(tmp_path: Path, kind: str) -> None:
    """Pods may have the directory of logs as a volume, and the next log's name is known before it
    is made.
    """
    outside, folder = tmp_path / "outside", tmp_path / "logs"
    outside.mkdir()
    folder.mkdir()
    path = folder / "0.log"
    match kind:
        case "link":
            (outside / "file").write_text("")
            path.symlink_to(outside / "file")
        case "broken link":
            path.symlink_to(outside / "file")
        case "directory link":
            folder.rmdir()
            folder.symlink_to(outside)
        case "pipe":
            os.mkfifo(path)
        case "device":
            if os.geteuid():
                pytest.skip("only root makes devices")
            os.mknod(path, 0o020666, os.makedev(1, 3))
    with pytest.raises(OSError):
        LogFile(str(path))
    assert not (outside / "0.log").exists()
    assert [file.read_text() for file in outside.iterdir()] in ([], [""])


def test_a_log_that_was_replaced_by_a_link_is_not_opened_again(tmp_path: Path) -> None:
    path, outside = tmp_path / "0.log", tmp_path / "outside"
    log = LogFile(str(path))
    path.rename(tmp_path / "0.log.old")
    path.symlink_to(outside)
    with pytest.raises(OSError):
        log.reopen()
    assert not outside.exists()
    log.write("stdout", b"still there\n")
    assert (tmp_path / "0.log.old").read_bytes().endswith(b"still there\n")


# ---- words ----


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        (
            (
                'runc run failed: unable to start container process: exec: "x": executable file '
                "not found in $PATH"
            ),
            (
                'container_linux.go:370: starting container process caused: exec: "x": '
                "executable file not found in $PATH"
            ),
        ),
        (
            (
                'exec failed: unable to start container process: exec: "x": stat x: no such file '
                "or directory"
            ),
            (
                'container_linux.go:370: starting container process caused: exec: "x": stat x: '
                "no such file or directory"
            ),
        ),
        (
            (
                "runc run failed: unable to start container process: error during container "
                "init: chdir to cwd: permission denied"
            ),
            "container_linux.go:370: starting container process caused: "
            "process_linux.go:459: container init caused: chdir to "
            "cwd: permission denied",
        ),
        (
            "executable file `x` not found in $PATH: No such file or directory",
            (
                'container_linux.go:370: starting container process caused: exec: "x": '
                "executable file not found in $PATH"
            ),
        ),
    ],
)
def test_runc_errors_are_reworded(printed: str, expected: str) -> None:
    assert runc.reword_runc_error(printed) == expected


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("", 15),
        ("SIGQUIT", 3),
        ("quit", 3),
        ("9", 9),
        ("SIGRTMIN+3", signal.SIGRTMIN + 3),
        ("RTMAX-1", signal.SIGRTMAX - 1),
        ("0", 15),
        ("900", 15),
        ("SIGNOTHING", 15),
        ("RTMIN+99", 15),
    ],
)
def test_signals(text: str, number: int) -> None:
    assert signal_number(text) == number


@pytest.mark.parametrize("name", ["SIGTERM", "SIGKILL", "SIGRTMIN", "SIGRTMIN+15", "SIGRTMAX-14"])
def test_signals_have_the_names_of_pods(name: str) -> None:
    assert signal_name(signal_number(name)) == name


# ---- users, capabilities, system calls ----

_FILES = {
    "/etc/passwd": "# comment\nroot:x:0:0::/root:/bin/sh\nbroken\nweb:x:33:34:::\nweb2:x:33:99:::\n",
    "/etc/group": "root:x:0:\nweb:x:34:\nextra:x:50:web,other\nbad:x:y:web\n",
}


@pytest.mark.parametrize(
    ("linux", "image", "expected"),
    [
        (LinuxContainer(), "", (0, 0, ())),
        (LinuxContainer(), "web", (33, 34, (50,))),
        (LinuxContainer(), "33:extra", (33, 50, (50,))),
        (LinuxContainer(strict_groups=True, supplemental_groups=(60,)), "web", (33, 34, (60,))),
        (LinuxContainer(run_as_user=7), "web:web", (7, 0, ())),
        (
            LinuxContainer(run_as_user_name="web", run_as_group=1, supplemental_groups=(50, 60)),
            "",
            (33, 1, (50, 60)),
        ),
        (LinuxContainer(run_as_user_name="ghost"), "", "no users found"),
        (LinuxContainer(), "web:ghosts", "no groups found"),
    ],
)
def test_users(linux: LinuxContainer, image: str, expected: Any) -> None:
    try:
        found: Any = tuple(users.find_oci_user(linux, image, lambda path: _FILES[path]))
    except users.OciUserNotFound as problem:
        found = str(problem)
    assert found == expected


def test_capabilities_are_never_more_than_ours() -> None:
    assert set(capabilities.container_capabilities(("ALL",), (), privileged=True)) == {
        f"CAP_{name}" for name in capabilities.held_capabilities()
    }
    with pytest.raises(capabilities.UnknownCapability):
        capabilities.container_capabilities((), ("FLY",), privileged=False)


def test_the_default_policy() -> None:
    plain, admin = (
        seccomp.default_seccomp_profile(()),
        seccomp.default_seccomp_profile(("CAP_SYS_ADMIN",)),
    )

    def names(profile: dict[str, Any]) -> set[str]:
        return set(profile["syscalls"][0]["names"])

    assert {"read", "clock_gettime", "openat", "futex"} <= names(plain)
    assert not {
        "mount",
        "reboot",
        "init_module",
        "keyctl",
        "bpf",
        "unshare",
        "setns",
        "clone3",
    } & names(plain)
    assert {"mount", "unshare", "clone3"} <= names(admin)
    (refused,) = [rule for rule in plain["syscalls"] if "clone3" in rule["names"]]
    assert refused["errnoRet"] == 38  # so that libraries try clone


def test_a_profile_of_dockers_form() -> None:
    data = b"""{"defaultAction": "SCMP_ACT_ERRNO", "archMap": [], "syscalls": [
        {"names": ["a"], "action": "SCMP_ACT_ALLOW", "includes": {"caps": ["CAP_SYS_ADMIN"]}},
        {"names": ["b"], "action": "SCMP_ACT_ALLOW", "excludes": {"caps": ["CAP_SYS_ADMIN"]}, "comment": "x"},
        {"name": "c", "action": "SCMP_ACT_ALLOW", "args": null}]}"""
    rules = seccomp.seccomp_profile_from_file(data, ("CAP_SYS_ADMIN",))["syscalls"]
    assert rules == [
        {"names": ["a"], "action": "SCMP_ACT_ALLOW"},
        {"names": ["c"], "action": "SCMP_ACT_ALLOW"},
    ]
    for bad in (b"{", b"[]", b"{}"):
        with pytest.raises(seccomp.BadProfile):
            seccomp.seccomp_profile_from_file(bad, ())


def test_resources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "cgroup_hierarchies", lambda: cgroups.CgroupHierarchies(1, {}))
    assert cgroups.cgroup_resources(CgroupLimits()) == {"cpu": {"shares": 2}}
    full = cgroups.cgroup_resources(
        CgroupLimits(cpu_shares=100, cpu_quota=5000, memory=1 << 20, memory_soft=1 << 19, pids=10)
    )
    assert full == {
        "cpu": {"shares": 100, "quota": 5000, "period": 100_000},
        "memory": {"limit": 1 << 20, "reservation": 1 << 19},
        "pids": {"limit": 10},
    }


def test_the_end_of_a_container_on_a_disk_that_is_full(tmp_path: Path) -> None:
    """Neither the record of it nor the complaint about that can be written: the waiting caller hears of
    the end all the same.
    """
    path = str(tmp_path / "none" / "exit.json")
    script = (
        f"from transom.runtime.native.monitor import tasks; tasks._save({path!r}, {{}}); "
        "print('went on')"
    )
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=full, check=True
        )
    assert done.stdout == b"went on\n"


def test_a_folder_in_which_files_still_appear(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, late = tmp_path / "native", ["runc", "runc/x"]
    folder.mkdir()
    remove_tree = snapshots.remove_snapshot_tree

    def raced(what: Path) -> None:
        if late:
            (what / late.pop(0)).mkdir(parents=True)
            raise OSError(errno.ENOTEMPTY, "Directory not empty", str(what))
        remove_tree(what)

    monkeypatch.setattr(snapshots, "remove_snapshot_tree", raced)
    runtime._remove(folder)
    assert not late and not folder.exists()


# ---- pause and copies ----


@pytest.mark.skipif(
    platform.machine() not in ("x86_64", "aarch64"), reason="no pause program for this machine"
)
def test_pause_waits_and_buries(tmp_path: Path) -> None:
    pause.install_pause_program(tmp_path)
    pause.install_pause_program(tmp_path)
    with subprocess.Popen([tmp_path / "pause"]) as process:
        try:
            end = time.monotonic() + 20
            while not _ignored(process.pid) >> (signal.SIGCHLD - 1) & 1:
                assert time.monotonic() < end
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.05)
        finally:
            process.kill()


def _ignored(pid: int) -> int:
    """The signals that a process ignores, as bits."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(
        int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigIgn")
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make what hides a file")
def test_copies_are_what_an_overlay_would_show(tmp_path: Path) -> None:
    lower, upper, target = tmp_path / "lower", tmp_path / "upper", tmp_path / "target"
    for path in (
        lower / "kept",
        lower / "hidden",
        lower / "opaque",
        upper / "kept",
        upper / "opaque",
        target,
    ):
        path.mkdir(parents=True)
    (lower / "kept/a").write_text("old")
    (lower / "opaque/below").write_text("")
    (lower / "file").write_text("")
    os.link(lower / "kept/a", lower / "kept/b")
    (upper / "kept/a").write_text("new")
    (upper / "kept/a").chmod(0o4711)
    os.mknod(upper / "hidden", stat.S_IFCHR, 0)
    os.setxattr(upper / "opaque", "trusted.overlay.opaque", b"y")
    (upper / "opaque/above").write_text("")
    (upper / "file").mkdir()
    (upper / "link").symlink_to("kept")
    snapshots.copy_over(lower, target)
    assert (target / "kept/a").stat().st_ino == (target / "kept/b").stat().st_ino
    snapshots.copy_over(upper, target)
    found = sorted(str(path.relative_to(target)) for path in target.rglob("*"))
    assert found == ["file", "kept", "kept/a", "kept/b", "link", "opaque", "opaque/above"]
    assert ((target / "kept/a").read_text(), (target / "kept/b").read_text()) == ("new", "old")
    assert (target / "kept/a").stat().st_mode & 0o7777 == 0o4711
    assert os.readlink(target / "link") == "kept"


def test_a_tree_without_permissions_is_removed(tmp_path: Path) -> None:
    (tmp_path / "layer/shut/x").mkdir(parents=True)
    (tmp_path / "layer/shut").chmod(0)
    snapshots.remove_snapshot_tree(tmp_path / "layer")
    assert not (tmp_path / "layer").exists()
