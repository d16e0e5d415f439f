"""A real folder behaves as the files in memory do, which are the model here; and nothing leads out
of it.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transom.machines import mounting
from transom.machines.files import FileTree
from transom.machines.inodes import DiskQuota
from transom.machines.realfiles import RealFiles
from transom.machines.styles import POSIX, WINDOWS, PathStyle
from transom.machines.trees import blank_tree

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount")


@pytest.fixture
def files(tmp_path: Path) -> Iterator[RealFiles]:
    made = RealFiles(tmp_path / "node")
    yield made
    made.destroy()


@pytest.fixture
def windows(tmp_path: Path) -> Iterator[RealFiles]:
    made = RealFiles(tmp_path / "node", WINDOWS)
    yield made
    made.destroy()


# ---- against the model ----

_names = st.sampled_from(["a", "b", "..", "l", "."])
_paths = st.lists(_names, min_size=1, max_size=3).map(lambda names: "/" + "/".join(names))
# Upwards only at the beginning, as links are written: what mkdir makes of a way back out of nothing
# does not matter here.
_targets = st.builds(
    lambda start, names: start + "/".join(names),
    st.sampled_from(["", "../", "../../", "/", "/../"]),
    st.lists(st.sampled_from("abl"), min_size=1, max_size=2),
)
_operation = st.one_of(
    st.tuples(st.just("mkdir"), _paths, st.sampled_from([0o755, 0o700])),
    st.tuples(st.just("write"), _paths, st.sampled_from([b"", b"one", b"a longer one"])),
    st.tuples(st.just("append"), _paths, st.just(b"+")),
    st.tuples(st.just("symlink"), _targets, _paths),
    st.tuples(st.just("rename"), _paths, _paths),
    st.tuples(st.just("remove"), _paths),
    st.tuples(st.just("chmod"), _paths, st.sampled_from([0o600, 0o755])),
    st.tuples(st.just("read"), _paths),
    st.tuples(st.just("listdir"), _paths),
    st.tuples(st.just("readlink"), _paths),
    st.tuples(st.just("exists"), _paths),
)


def _outcome(function: Callable[..., Any], *arguments: object) -> object:
    try:
        return function(*arguments)
    except OSError as problem:
        return errno.errorcode[problem.errno or 0]


def _shown(tree: Any) -> list[object]:
    seen: list[object] = []

    def look(path: str) -> None:
        for name in tree.listdir(path or "/"):
            where = f"{path}/{name}"
            found = tree.stat(where, follow=False)
            content = (
                tree.read(where)
                if found.kind == "file"
                else tree.readlink(where)
                if found.kind == "symlink"
                else None
            )
            seen.append((where, found.kind, found.mode if found.kind != "symlink" else 0, content))
            if found.kind == "directory":
                look(where)

    look("")
    return seen


# What the kernel says otherwise about the folder itself and about names that end in dots; the
# node's kubelet does neither.
_DOTS = (".", "..")


def _is_plain(operation: tuple[Any, ...]) -> bool:
    name, *arguments = operation
    if name == "mkdir" and ".." in arguments[0]:
        return False
    about = arguments if name == "rename" else arguments[1:] if name == "symlink" else arguments[:1]
    return name in ("read", "listdir", "exists", "mkdir") or all(
        path.rpartition("/")[2] not in _DOTS for path in about
    )


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.lists(_operation.filter(_is_plain), max_size=14))
def test_it_does_what_the_model_does(operations: list[tuple[Any, ...]]) -> None:
    model = FileTree(POSIX, blank_tree(POSIX), DiskQuota(1 << 30, 1000), lambda: 0.0)
    with tempfile.TemporaryDirectory() as folder:
        real = RealFiles(Path(folder) / "node")
        for name, *arguments in operations:
            expected = _outcome(getattr(model, name), *arguments)
            assert _outcome(getattr(real, name), *arguments) == expected, (name, arguments)
        assert _shown(real) == _shown(model)
        real.close()


# ---- the border ----


def test_links_lead_nowhere_else(files: RealFiles, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("of the machine")
    for target in (
        f"{tmp_path}/secret",
        "../secret",
        "../../../../../../../../etc/passwd",
        "/etc/passwd",
    ):
        files.symlink(target, "/link")
        assert not files.exists("/link")
        with pytest.raises(FileNotFoundError):
            files.read("/link")
        files.remove("/link")
    files.symlink("/", "/top")
    files.write("/x", b"inside")
    assert files.read("/top/top/../x") == b"inside"
    assert files.real("/top/x") == str(files.folder / "x")


def test_a_directory_exchanged_for_a_link_is_noticed(files: RealFiles, tmp_path: Path) -> None:
    """An open descriptor stays what it was, and a path is walked anew."""
    outside = tmp_path / "outside"
    outside.mkdir()
    files.mkdir("/volume/sub")
    fd = files.open("/volume/sub")
    (files.folder / "volume/sub").rmdir()
    (files.folder / "volume/sub").symlink_to(outside)
    assert not os.path.samestat(os.fstat(fd), outside.stat())
    with pytest.raises(OSError):
        files.write("/volume/sub/x", b"")
    assert list(outside.iterdir()) == []
    os.close(fd)


def test_modes_are_what_was_asked_for_and_a_file_is_replaced_in_its_place(files: RealFiles) -> None:
    before = os.umask(0o077)
    try:
        files.mkdir("/d/e", 0o2775)
        files.write("/d/f", b"one", 0o666)
        files.make("/d/fifo", "pipe", 0o622)
    finally:
        os.umask(before)
    assert [files.stat(p).mode for p in ("/d", "/d/e", "/d/f", "/d/fifo")] == [
        0o2775,
        0o2775,
        0o666,
        0o622,
    ]
    number = os.stat(files.folder / "d/f").st_ino
    files.write("/d/f", b"a longer text")
    files.write("/d/f", b"short", 0o600)
    assert (files.read("/d/f"), os.stat(files.folder / "d/f").st_ino, files.stat("/d/f").mode) == (
        b"short",
        number,
        0o666,
    )
    assert files.usage("/d")[1] == 4


def test_an_appender_keeps_to_its_file(files: RealFiles) -> None:
    append = files.appender("/log")
    append(b"1")
    files.rename("/log", "/log.old")
    append(b"2")
    assert files.read("/log.old") == b"12"
    assert not files.exists("/log")


@root_only
def test_memory(files: RealFiles) -> None:
    files.mkdir("/run")
    files.write("/run/below", b"")
    assert not files.is_mount("/run")
    files.mount_tmpfs("/run", 1 << 20)
    assert files.is_mount("/run")
    assert not files.is_mount("/")
    files.write("/run/x", b"in memory")
    with pytest.raises(OSError) as full:
        files.write("/run/y", bytes(2 << 20))
    assert full.value.errno == errno.ENOSPC
    assert not files.exists("/run/y")
    with pytest.raises(OSError) as full:
        files.write("/run/x", bytes(2 << 20))
    assert full.value.errno == errno.ENOSPC
    assert files.read("/run/x") == b"in memory"
    files.unmount("/run")
    assert files.listdir("/run") == ["below"]


@root_only
def test_a_node_whose_folder_is_in_memory_itself(tmp_path: Path) -> None:
    mounting.mount_filesystem("tmpfs", str(tmp_path), "tmpfs")
    try:
        files = RealFiles(tmp_path / "node")
        files.share_mounts()
        files.mkdir("/run")
        files.write("/kept", b"x")
        for _ in range(2):
            files.mount_tmpfs("/run", 1 << 20)
            files.write("/run/x", b"in memory")
            files.drop_memory()
            assert (files.listdir("/run"), files.read("/kept")) == ([], b"x")
        files.destroy()
    finally:
        mounting.unmount_below(str(tmp_path))


@root_only
def test_destroy_leaves_nothing_mounted(tmp_path: Path) -> None:
    files = RealFiles(tmp_path / "a node")
    files.share_mounts()
    files.mkdir("/v/in")
    files.mount_tmpfs("/v", 1 << 20)
    files.mkdir("/v/w")
    files.mount_tmpfs("/v/w", 1 << 20)
    files.destroy()
    assert not (tmp_path / "a node").exists()
    assert mounting.mount_points(str(tmp_path)) == []


# ---- Windows ----


def test_windows_paths(windows: RealFiles) -> None:
    f = windows
    f.mkdir(r"C:\var\lib")
    f.write(r"c:\VAR\Lib\Hosts", b"x")
    assert (f.folder / "C/var/lib/Hosts").read_bytes() == b"x"
    assert f.listdir(r"C:\Var") == ["lib"]
    assert f.read("/var/lib/hosts") == b"x"
    assert f.real(r"C:\VAR\lib\HOSTS") == str(f.folder / "C/var/lib/Hosts")
    assert f.stat(r"C:\var\lib\hosts") == f.stat(r"C:\var\lib\Hosts")
    assert f.stat(r"C:\var").mode == 0o777
    f.chmod(r"C:\var\lib\hosts", 0o444)
    assert f.stat(r"C:\var\lib\hosts").mode == 0o444
    with pytest.raises(PermissionError):
        f.write(r"C:\var\lib\hosts", b"y")
    assert f.exists("NUL")
    for bad in (r"C:\a|b", r"C:\a?"):
        with pytest.raises(OSError) as wrong:
            f.write(bad, b"")
        assert wrong.value.__dict__["winerror"] == 123
    with pytest.raises(FileNotFoundError) as missing:
        f.read(r"C:\none\none")
    assert missing.value.strerror == "The system cannot find the path specified."


def test_windows_links_mean_the_same_to_linux_programs(windows: RealFiles) -> None:
    f = windows
    f.mkdir(r"C:\v\..2020")
    f.write(r"C:\v\..2020\key", b"1")
    f.symlink("..2020", r"C:\v\..data")
    f.symlink(r"..data\key", r"C:\v\key")
    f.symlink(r"C:\v", r"C:\to")
    assert (f.folder / "C/v/key").read_bytes() == b"1"
    assert f.read(r"C:\TO\KEY") == b"1"
    assert f.readlink(r"C:\v\key") == r"..data\key"
    assert f.readlink(r"C:\to") == r"C:\v"
    f.symlink(r"\\server\share\x", r"C:\s")
    assert f.readlink(r"C:\s") == r"\\server\share\x"


@pytest.mark.parametrize("style", [POSIX, WINDOWS], ids=["linux", "windows"])
def test_devices(tmp_path: Path, style: PathStyle) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to make devices")
    f = RealFiles(tmp_path / "node", style)
    f.make("/null", "char", 0o666)
    f.make("/s", "socket")
    kinds = [f.stat("/null").kind, f.stat("/s").kind]
    base = f.folder / "C" if style is WINDOWS else f.folder
    assert kinds == ["char", "socket"]
    assert stat.S_ISCHR((base / "null").stat().st_mode)
    f.write("/null", b"away")
    assert f.read("/null") == b""
    f.destroy()


def test_directories_of_any_depth(tmp_path: Path) -> None:
    """A container can make them with mkdir and cd, whatever the longest path is."""
    f = RealFiles(tmp_path / "node")
    f.mkdir("/v")
    here = os.open(tmp_path / "node/v", os.O_RDONLY)
    for number in range(1500):
        os.mkdir("d", dir_fd=here)
        os.mkdir("e", dir_fd=here)
        if number % 100 == 0:
            os.symlink("/etc", "link", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    assert f.usage("/v")[1] > 100
    f.remove("/v", recursive=True)
    assert f.listdir("/") == []
    f.close()


def test_a_file_without_end_is_not_read_as_a_whole(tmp_path: Path) -> None:
    f = RealFiles(tmp_path / "node")
    f.write("/file", b"begin")
    os.truncate(tmp_path / "node/file", 1 << 40)
    with pytest.raises(OSError) as wrong:
        f.read("/file")
    assert wrong.value.errno == errno.EFBIG
    assert f.read("/file", 0, 5) == b"begin" and f.read("/file", (1 << 40) - 3, 10) == b"\0\0\0"
    f.close()


@root_only
def test_what_is_mounted_is_unmounted_there_and_nowhere_else(tmp_path: Path) -> None:
    f = RealFiles(tmp_path / "node")
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk/file").touch()
    f.mkdir("/a/b")
    f.bind(str(tmp_path / "disk"), "/a/b")
    assert f.listdir("/a/b") == ["file"] and f.is_mount("/a/b") and not f.is_mount("/a")
    f.symlink("/a/b", "/link")
    assert f.is_mount("/link")
    f.rename("/a", "/moved")
    f.symlink(str(tmp_path), "/a")
    with pytest.raises(FileNotFoundError):
        f.unmount("/a/b")
    f.unmount("/moved/b")
    assert not f.is_mount("/moved/b") and f.listdir("/moved/b") == []
    f.unmount("/moved/b")
    f.destroy()


def test_many_files_are_counted_in_the_background(tmp_path: Path) -> None:
    """A container can make millions of them: who asks does not wait, and hears the whole number
    later.
    """
    f = RealFiles(tmp_path / "node")
    f.mkdir("/v")
    for number in range(6000):
        (tmp_path / f"node/v/{number}").touch()
    first = f.usage("/v")
    assert 2000 <= first[1] <= 6001
    end = time.monotonic() + 20
    while f.usage("/v")[1] != 6001:
        assert time.monotonic() < end
        time.sleep(0.01)
    f.remove("/v", recursive=True)
    f.mkdir("/v")
    assert f.usage("/v")[1] == 1
    f.close()
