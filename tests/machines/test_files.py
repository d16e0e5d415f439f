"""Invariants of both file systems, and what is specific to each."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.machines.files import FileTree
from transom.machines.inodes import DiskQuota
from transom.machines.styles import POSIX, WINDOWS, FileUser, PathStyle
from transom.machines.trees import (
    TreeDevice,
    TreeFile,
    TreeFolder,
    TreeLink,
    TreeOpenFolder,
    blank_tree,
    make_tree,
)
from transom.machines.windows.accounts import USER


def files(style: PathStyle = POSIX, size: int = 1 << 30) -> FileTree:
    return FileTree(style, blank_tree(style), DiskQuota(size, 1000), lambda: 42.0)


def code(error: pytest.ExceptionInfo[OSError]) -> int | None:
    return error.value.errno


@pytest.fixture(params=[POSIX, WINDOWS], ids=["linux", "windows"])
def any_files(request: pytest.FixtureRequest) -> FileTree:
    return files(request.param)


def test_what_is_written_is_read(any_files: FileTree) -> None:
    f = any_files
    f.mkdir("/a/b")
    f.write("/a/b/c", b"hello")
    f.append("/a/b/c", b" world")
    assert f.read("/a/b/c") == b"hello world"
    assert f.read("/a/b/c", 6, 3) == b"wor"
    assert f.listdir("/a") == ["b"]
    assert f.stat("/a/b/c")[0] == "file"
    assert f.stat("/a/b/c").mtime == 42.0
    f.remove("/a/b/c")
    assert not f.exists("/a/b/c")
    f.append("/a/new", b"x")
    assert f.read("/a/new") == b"x"


ENTRIES = st.lists(
    st.tuples(
        st.sampled_from(["a", "A", "b", "n" * 300]),
        st.sampled_from([b"", b"x" * 5000, "a", "../b"]),
        st.just(0o640),
    ),
    max_size=4,
)


@pytest.mark.parametrize("style", [POSIX, WINDOWS], ids=["linux", "windows"])
@pytest.mark.parametrize("directory", ["/d", "/link", "/none", "/file"])
@given(ENTRIES, st.sampled_from([12 << 10, 1 << 30]))
def test_filling_a_directory_is_writing_each(
    style: PathStyle, directory: str, entries: list[tuple[str, bytes | str, int]], size: int
) -> None:
    def outcome(at_once: bool) -> object:
        f = files(style, size)
        f.mkdir("/d")
        f.write("/file", b"")
        f.symlink("/d", "/link")
        problem = None
        try:
            if at_once:
                f.fill(directory, entries)
            for name, content, mode in () if at_once else entries:
                path = style.join(directory, name)
                f.symlink(content, path) if isinstance(content, str) else f.write(
                    path, content, mode
                )
        except OSError as error:
            problem = error.errno
        names = f.listdir("/d")
        return (
            problem if entries else None,
            f.usage("/"),
            [(name, f.stat(f"/d/{name}", follow=False)) for name in names],
        )

    assert outcome(True) == outcome(False)


@pytest.mark.parametrize(
    ("operation", "expected", "windows"),
    [
        (lambda f: f.read("/none"), errno.ENOENT, "The system cannot find the file specified."),
        (
            lambda f: f.read("/none/none"),
            errno.ENOENT,
            "The system cannot find the path specified.",
        ),
        (
            lambda f: f.write("/none/x", b""),
            errno.ENOENT,
            "The system cannot find the path specified.",
        ),
        (lambda f: f.write("/dir", b""), errno.EISDIR, "Access is denied."),
        (
            lambda f: f.mkdir("/dir", parents=False),
            errno.EEXIST,
            "Cannot create a file when that file already exists.",
        ),
        (lambda f: f.mkdir("/file/x"), errno.ENOTDIR, "The directory name is invalid."),
        (lambda f: f.remove("/dir"), errno.ENOTEMPTY, "The directory is not empty."),
        (lambda f: f.remove("/none"), errno.ENOENT, "The system cannot find the file specified."),
        (
            lambda f: f.read("/loop"),
            errno.ELOOP,
            "The name of the file cannot be resolved by the system.",
        ),
        (lambda f: f.rename("/dir", "/dir/in/x"), errno.EINVAL, "The parameter is incorrect."),
        (
            lambda f: f.allocate("/dir/x", 2 << 30),
            errno.ENOSPC,
            "There is not enough space on the disk.",
        ),
    ],
)
def test_errors(any_files: FileTree, operation: object, expected: int, windows: str) -> None:
    f = any_files
    f.mkdir("/dir/in")
    f.write("/file", b"")
    f.symlink("loop", "/loop")
    with pytest.raises(OSError) as error:
        operation(f)  # type: ignore[operator]
    assert code(error) == expected
    if f._style is WINDOWS:
        assert error.value.strerror == windows


def test_links(any_files: FileTree) -> None:
    f = any_files
    f.mkdir("/v/..2020")
    f.write("/v/..2020/key", b"1")
    f.symlink("..2020", "/v/..data")
    f.symlink("..data/key", "/v/key")
    assert f.read("/v/key") == b"1"
    assert f.readlink("/v/key") == "..data/key"
    assert f.stat("/v/key", follow=False).kind == "symlink"
    f.mkdir("/v/..2021")
    f.write("/v/..2021/key", b"2")
    f.symlink("..2021", "/v/..data_tmp")
    if f._style is WINDOWS:
        f.remove("/v/..data")  # Windows does not rename over a link to a directory
    f.rename("/v/..data_tmp", "/v/..data")
    assert f.read("/v/key") == b"2"
    f.remove("/v/..data")
    assert f.exists("/v/..2021/key")
    assert not f.exists("/v/key")
    f.symlink("../../../../v", "/v/out")
    assert f.listdir("/v/out/out") == f.listdir("/v")
    f.write("/v/new", b"")
    f.symlink("new2", "/v/to-be")
    f.write("/v/to-be", b"made through the link")
    assert f.read("/v/new2") == b"made through the link"


def test_dots_go_where_a_link_leads_on_linux_and_back_on_windows() -> None:
    for f, expected in ((files(POSIX), b"deep"), (files(WINDOWS), b"top")):
        f.mkdir("/a/b")
        f.write("/a/x", b"deep")
        f.write("/x", b"top")
        f.symlink("a/b", "/link")
        assert f.read("/link/../x") == expected
        assert f.read("/../../x") == b"top"


def test_space_is_counted_and_given_back(any_files: FileTree) -> None:
    f = any_files
    volume = f._top.volume
    before = volume.used, volume.space.inodes_used
    f.mkdir("/d/e")
    f.write("/d/e/f", b"x" * 5000)
    f.write("/d/e/f", b"x" * 10_000)
    f.append("/d/e/f", b"y" * 10_000)
    f.allocate("/d/big", 1 << 20)
    f.symlink("big", "/d/link")
    f.make("/d/pipe", "pipe")
    f.rename("/d/big", "/d/e/f")
    used, inodes = f.usage("/d")
    assert inodes == 5
    assert (volume.used - before[0], volume.space.inodes_used - before[1]) == (used, inodes)
    assert used == (1 << 20) + (2 * 4096 if f._style is POSIX else 0)
    f.remove("/d", recursive=True)
    assert (volume.used, volume.space.inodes_used) == before
    f.remove("/d", recursive=True)
    f.remove("/d/none/at/all", recursive=True)


def test_a_full_disk_changes_nothing() -> None:
    f = files(POSIX, 10 * 4096)
    f.mkdir("/d")
    f.write("/d/f", b"keep")
    for operation in (
        lambda: f.write("/d/f", b"x" * 50_000),
        lambda: f.append("/d/f", b"x" * 50_000),
        lambda: f.write("/d/g", b"x" * 50_000),
    ):
        with pytest.raises(OSError) as error:
            operation()
        assert code(error) == errno.ENOSPC
        assert error.value.strerror == "No space left on device"
    assert f.read("/d/f") == b"keep"
    assert f.listdir("/d") == ["f"]


def test_an_open_log_follows_its_file(any_files: FileTree) -> None:
    f = any_files
    log = f.appender("/0.log")
    log(b"a" * 600)
    log(b"b" * 600)
    f.rename("/0.log", "/0.log.1")
    log(b"c")
    assert f.read("/0.log.1") == b"a" * 600 + b"b" * 600 + b"c"
    assert not f.exists("/0.log")
    used = f._top.volume.used
    f.remove("/0.log.1")
    log(b"into nothing" * 1000)
    assert f._top.volume.used <= used


def test_posix_permissions() -> None:
    root = files(POSIX)
    root.mkdir("/home/app")
    root.chown("/home/app", 1000, 1000)
    root.write("/secret", b"", 0o600)
    root.write("/group", b"g", 0o640)
    root.chown("/group", -1, 3000)
    root.mkdir("/volume")
    root.chmod("/volume", 0o2770)
    root.chown("/volume", 0, 3000)
    user = root.as_user(FileUser(1000, 1000, frozenset({3000})))
    user.write("/home/app/x", b"mine")
    assert root.stat("/home/app/x")[2:4] == (1000, 1000)
    assert user.read("/group") == b"g"
    user.mkdir("/volume/in")
    assert root.stat("/volume/in").gid == 3000
    assert root.stat("/volume/in").mode & 0o2000
    for operation in (
        lambda: user.read("/secret"),
        lambda: user.write("/group", b""),
        lambda: user.write("/new", b""),
        lambda: user.remove("/group"),
        lambda: root.as_user(FileUser(7)).listdir("/volume"),
        lambda: root.as_user(FileUser(7)).read("/volume/in/x"),
    ):
        with pytest.raises(PermissionError, match="Permission denied"):
            operation()
    with pytest.raises(PermissionError, match="Operation not permitted"):
        user.chmod("/group", 0o777)
    user.chmod("/home/app/x", 0o600)
    root.mkdir("/tmp")
    root.chmod("/tmp", 0o1777)
    user.write("/tmp/mine", b"")
    root.write("/tmp/roots", b"", 0o666)
    user.write("/tmp/roots", b"changed")
    with pytest.raises(PermissionError, match="Operation not permitted"):
        user.remove("/tmp/roots")
    user.remove("/tmp/mine")
    root.mkdir("/home/app/roots/in")
    with pytest.raises(PermissionError, match="Permission denied"):
        user.remove("/home/app/roots", recursive=True)
    root.as_user(FileUser(0)).remove("/home/app/roots", recursive=True)


def test_posix_rename() -> None:
    f = files(POSIX)
    f.mkdir("/full/x")
    f.mkdir("/empty")
    f.mkdir("/dir")
    f.write("/file", b"")
    for old, new, expected in (
        ("/dir", "/full", errno.ENOTEMPTY),
        ("/file", "/dir", errno.EISDIR),
        ("/dir", "/file", errno.ENOTDIR),
        ("/none", "/x", errno.ENOENT),
    ):
        with pytest.raises(OSError) as error:
            f.rename(old, new)
        assert code(error) == expected
    f.rename("/dir", "/empty")
    assert f.listdir("/") == ["empty", "file", "full"]


def test_tmpfs() -> None:
    f = files(POSIX)
    f.mkdir("/v/under")
    used = f._top.volume.used
    f.mount_tmpfs("/v", 8192)
    assert f.listdir("/v") == []
    f.write("/v/secret", b"s")
    assert f._top.volume.used == used
    assert f.is_mount("/v")
    for operation, expected in (
        (lambda: f.write("/v/x", b"x" * 9000), errno.ENOSPC),
        (lambda: f.remove("/v", recursive=True), errno.EBUSY),
        (lambda: f.rename("/v/secret", "/out"), errno.EXDEV),
    ):
        with pytest.raises(OSError) as error:
            operation()
        assert code(error) == expected
    f.unmount("/v")
    assert f.listdir("/v") == ["under"]
    with pytest.raises(OSError):
        f.unmount("/v")


# Windows


def test_case_is_kept_and_does_not_count() -> None:
    f = files(WINDOWS)
    f.mkdir(r"C:\Program Files\App")
    f.write(r"c:/program files/APP/Read.Me", b"1")
    assert f.read("\\PROGRAM FILES\\app\\read.me") == b"1"
    assert f.listdir("C:\\") == ["Program Files"]
    assert f.listdir(r"C:\Program Files\app") == ["Read.Me"]
    f.write(r"C:\Program Files\App\README.ME", b"2")
    f.rename(r"C:\Program Files\App\read.me", r"C:\Program Files\App\readme.md")
    f.rename(r"C:\Program Files\App\readme.md", r"C:\Program Files\App\README.md")
    assert f.listdir(r"C:\Program Files\App") == ["README.md", "README.ME"]
    assert f.read("C:\\Program Files. \\App\\Readme.ME") == b"2"


def test_roots() -> None:
    f = files(WINDOWS)
    f.make(r"\\.\pipe\docker_engine", "pipe")
    assert f.stat("//./pipe/docker_engine").kind == "pipe"
    assert f.listdir("C:\\") == []
    for path, text in (
        (r"D:\x", "The system cannot find the path specified."),
        (r"\\server\share\x", "The network path was not found."),
        (r"C:\a<b", "The filename, directory name, or volume label syntax is incorrect."),
    ):
        with pytest.raises(OSError) as error:
            f.write(path, b"")
        assert error.value.strerror == text
    with pytest.raises(OSError):
        f.mkdir("D:\\")
    f.add_root("D:")
    f.add_root(r"\\server\share")
    f.write(r"d:\x", b"d")
    f.write(r"\\SERVER\Share\x", b"s")
    f.mkdir(r"C:\mnt")
    f.symlink(r"\\server\share", r"C:\mnt\smb")
    assert f.read(r"C:\mnt\smb\x") == b"s"
    assert f.read(r"\\?\D:\x") == b"d"
    f.write("NUL", b"gone")
    f.write(r"C:\mnt\nul", b"gone")
    assert f.read("nul") == b""
    assert f.listdir(r"C:\mnt") == ["smb"]


def test_a_mode_is_only_the_read_only_attribute() -> None:
    f = files(WINDOWS)
    f.write("/x", b"", 0o400)
    assert f.stat("/x").mode == 0o444
    with pytest.raises(PermissionError, match="Access is denied"):
        f.write("/x", b"new")
    f.chmod("/x", 0o200)
    assert f.stat("/x").mode == 0o666
    f.write("/x", b"new")
    with pytest.raises(OSError, match="not supported by windows"):
        f.chown("/x", 1, 1)
    f.mkdir("/d", 0o700)
    assert f.stat("/d").mode == 0o777
    f.mkdir("/e")
    with pytest.raises(PermissionError, match="Access is denied"):
        f.rename("/d", "/e")


def test_ordinary_users_of_windows_write_where_they_may() -> None:
    root = make_tree(
        WINDOWS, {r"C:\Windows\System32": TreeFolder(), r"C:\Users\ContainerUser": TreeOpenFolder()}
    )
    f = FileTree(WINDOWS, root, DiskQuota(1 << 20), lambda: 0.0)
    user = f.as_user(FileUser(2, sids=USER.sids, sid=USER.sid))
    user.mkdir(r"C:\Users\ContainerUser\AppData\Local")
    user.write(r"C:\Users\ContainerUser\AppData\Local\x", b"")
    for path in (r"C:\x", r"C:\Windows\x", r"C:\Windows\System32\x"):
        with pytest.raises(PermissionError, match="Access is denied"):
            user.write(path, b"")
        f.write(path, b"")


# Frozen trees


def test_a_frozen_tree_is_shared_and_never_changed() -> None:
    base = make_tree(
        POSIX,
        {
            "/etc/passwd": TreeFile(b"root"),
            "/bin/sh": TreeFile(b"", 0o755),
            "/dev/null": TreeDevice(),
            "/sh": TreeLink("bin/sh"),
        },
    )
    one = FileTree(POSIX, base, DiskQuota(1 << 30), lambda: 1.0)
    two = FileTree(POSIX, base, DiskQuota(1 << 30), lambda: 1.0)
    one.append("/etc/passwd", b"+")
    one.chmod("/bin/sh", 0o700)
    one.write("/etc/new", b"")
    one.remove("/dev", recursive=True)
    one.rename("/sh", "/etc/sh")
    assert one.read("/etc/passwd") == b"root+"
    assert two.read("/etc/passwd") == b"root"
    assert two.stat("/sh").mode == 0o755
    assert two.listdir("/") == ["bin", "dev", "etc", "sh"]
    assert two._top.volume.used == 0
    assert two._top.node is base
    assert one.listdir("/") == ["bin", "etc"]
    layered = make_tree(POSIX, {"/etc/more": TreeFile(b"")}, base)
    assert layered.data["etc"].data["passwd"] is base.data["etc"].data["passwd"]  # type: ignore[index,call-overload,union-attr]


_NAMES = st.sampled_from(["/a", "/b", "/a/x", "/a/y", "/b/x", "/a/x/z"])
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("mkdir"), _NAMES),
        st.tuples(st.just("write"), _NAMES, st.integers(0, 9000)),
        st.tuples(st.just("append"), _NAMES, st.integers(0, 9000)),
        st.tuples(st.just("remove"), _NAMES),
        st.tuples(st.just("rename"), _NAMES, _NAMES),
        st.tuples(st.just("link"), _NAMES, _NAMES),
    ),
    max_size=30,
)


@given(_STEPS, st.booleans())
def test_the_room_taken_is_what_is_there(steps: list[tuple[object, ...]], windows: bool) -> None:
    """Whatever happens, what is counted on top of a frozen tree is never less than nothing, and is
    all given back.
    """
    style: PathStyle = WINDOWS if windows else POSIX
    base = make_tree(style, {"/a/x": TreeFile(b"x" * 5000), "/b": TreeFolder()})
    f = FileTree(style, base, DiskQuota(1 << 16, 100), lambda: 0.0)
    for step in steps:
        try:
            match step:
                case ("mkdir", str(path)):
                    f.mkdir(path)
                case ("write", str(path), int(size)):
                    f.write(path, b"w" * size)
                case ("append", str(path), int(size)):
                    f.append(path, b"w" * size)
                case ("remove", str(path)):
                    f.remove(path, recursive=True)
                case ("rename", str(path), str(other)):
                    f.rename(path, other)
                case ("link", str(path), str(other)):
                    f.symlink(other, path)
        except OSError:
            continue
    volume = f._top.volume
    assert volume.used >= 0
    assert volume.inodes >= 0
    top = "/" if style is POSIX else "C:\\"
    for name in f.listdir(top):
        f.remove(top + name, recursive=True)
    # copies of what cannot be removed
    roots = 0 if volume.inodes == 0 else (1 if style is POSIX else 2)
    assert (volume.used, volume.inodes) == (4096 * roots if style is POSIX else 0, roots)
