from __future__ import annotations

import errno

import pytest

from transom.kit.clock import VirtualClock
from transom.machines.api import Host, HostPathMount
from transom.machines.container_files import LayeredFiles
from transom.machines.linux import LinuxHost
from transom.machines.styles import POSIX, WINDOWS, FileUser
from transom.machines.trees import TreeFile, TreeFolder, TreeLink, TreeOpenFolder, make_tree
from transom.machines.windows import WindowsHost
from transom.machines.windows.accounts import USER

LINUX_IMAGE = make_tree(
    POSIX,
    {
        "/etc/passwd": TreeFile(b"root"),
        "/run": TreeFolder(),
        "/var/run": TreeLink("/run"),
        "/tmp": TreeFolder(0o1777),
    },
)
WINDOWS_IMAGE = make_tree(
    WINDOWS,
    {r"C:\Windows\System32\cmd.exe": TreeFile(b"MZ"), r"C:\Users\ContainerUser": TreeOpenFolder()},
)


def volume(host: Host, path: str) -> None:
    """As the kubelet's atomic writer leaves it."""
    host.files.mkdir(path + "/..one")
    host.files.write(path + "/..one/key", b"1")
    host.files.symlink("..one", path + "/..data")
    host.files.symlink("..data/key", path + "/key")


@pytest.fixture(params=["linux", "windows"])
def machine(request: pytest.FixtureRequest) -> tuple[LinuxHost | WindowsHost, LayeredFiles]:
    clock = VirtualClock()
    if request.param == "linux":
        linux = LinuxHost("l", clock)
        return linux, linux.container_files(LINUX_IMAGE)
    windows = WindowsHost("w", clock)
    return windows, windows.container_files(WINDOWS_IMAGE)


def test_mounts(machine: tuple[LinuxHost | WindowsHost, LayeredFiles]) -> None:
    host, container = machine
    volume(host, "/var/lib/kubelet/v")
    host.files.write("/var/lib/kubelet/hosts", b"hosts")
    host.files.mkdir("/var/lib/kubelet/inner")
    container.add_mounts(
        [
            HostPathMount("/data/inner", "/var/lib/kubelet/inner"),
            HostPathMount("/data", "/var/lib/kubelet/v"),
            HostPathMount("/ro", "/var/lib/kubelet/v", read_only=True),
            HostPathMount("/etc/hosts", "/var/lib/kubelet/hosts"),
            HostPathMount(
                "/var/run/secrets/kubernetes.io/serviceaccount",
                "/var/lib/kubelet/v",
                read_only=True,
            ),
        ]
    )
    assert container.layer_usage() == (0, 0)
    assert container.read("/data/key") == b"1"
    assert container.read("/var/run/secrets/kubernetes.io/serviceaccount/key") == b"1"
    assert container.read("/etc/hosts") == b"hosts"
    container.write("/etc/hosts", b"changed")
    assert host.files.read("/var/lib/kubelet/hosts") == b"changed"
    container.write("/data/inner/x", b"x")
    assert host.files.read("/var/lib/kubelet/inner/x") == b"x"
    # the host switches to another version
    host.files.mkdir("/var/lib/kubelet/v/..two")
    host.files.write("/var/lib/kubelet/v/..two/key", b"2")
    host.files.remove("/var/lib/kubelet/v/..data")
    host.files.symlink("..two", "/var/lib/kubelet/v/..data")
    host.files.remove("/var/lib/kubelet/v/..one", recursive=True)
    assert container.read("/data/key") == b"2"
    assert container.read("/ro/key") == b"2"
    text = "Read-only file system" if host.style is POSIX else "Access is denied."
    for operation in (
        lambda: container.write("/ro/new", b""),
        lambda: container.write("/ro/key", b""),
        lambda: container.append("/ro/key", b""),
        lambda: container.mkdir("/ro/a/b"),
        lambda: container.remove("/ro/key"),
        lambda: container.rename("/ro/key", "/ro/other"),
        lambda: container.chmod("/ro/key", 0o600),
        lambda: container.symlink("x", "/ro/y"),
    ):
        with pytest.raises(OSError) as error:
            operation()
        assert error.value.strerror == text
    for operation, code in (
        (lambda: container.remove("/data", recursive=True), errno.EBUSY),
        (lambda: container.rename("/data/inner/x", "/x"), errno.EXDEV),
    ):
        with pytest.raises(OSError) as error:
            operation()
        assert error.value.errno == code
    assert container.layer_usage() == (0, 0)  # everything so far went to the host
    assert "data" in container.listdir("/")


def test_nothing_leads_out_of_a_container(
    machine: tuple[LinuxHost | WindowsHost, LayeredFiles],
) -> None:
    host, container = machine
    host.files.mkdir("/var/lib/kubelet/v")
    host.files.write("/var/lib/kubelet/secret", b"host's")
    container.add_mounts([HostPathMount("/data", "/var/lib/kubelet/v")])
    container.symlink("../secret", "/data/up")
    container.symlink("/var/lib/kubelet/secret", "/data/absolute")
    for path in ("/data/up", "/data/absolute", "/data/../../../var/lib/kubelet/secret"):
        assert not container.exists(path)
    container.write("/secret", b"container's")
    assert container.read("/data/up") == b"container's"
    assert host.files.read("/var/lib/kubelet/v/../secret") == b"host's"


def test_a_mount_is_what_was_there_when_the_container_was_made(
    machine: tuple[LinuxHost | WindowsHost, LayeredFiles],
) -> None:
    host, container = machine
    host.files.mkdir("/v")
    host.files.write("/v/file", b"old")
    container.add_mounts([HostPathMount("/conf", "/v/file")])
    host.files.write("/v/file2", b"new")
    host.files.rename("/v/file2", "/v/file")
    assert container.read("/conf") == b"old"
    with pytest.raises(FileNotFoundError):
        container.add_mounts([HostPathMount("/x", "/v"), HostPathMount("/y", "/none")])
    assert not container.exists("/x")


def test_the_writable_layer(machine: tuple[LinuxHost | WindowsHost, LayeredFiles]) -> None:
    host, container = machine
    before = host.disk().used
    name = "/etc/passwd" if host.style is POSIX else r"C:\Windows\System32\cmd.exe"
    image = container.read(name)
    container.append(name, b"x" * 5000)
    container.mkdir("/prep")
    container.write("/prep/a", b"y" * 10_000)
    used, inodes = container.layer_usage()
    assert host.disk().used - before == used >= 15_000
    assert inodes >= 4
    other = host.container_files(LINUX_IMAGE if host.style is POSIX else WINDOWS_IMAGE)
    assert other.read(name) == image
    assert not other.exists("/prep")
    container.discard()
    assert host.disk().used == before
    assert container.layer_usage() == (0, 0)
    assert container.read(name) == image
    host.fill_disk()
    with pytest.raises(OSError) as error:
        container.write("/new", b"z" * 5000)
    assert error.value.errno == errno.ENOSPC


def test_a_read_only_root_leaves_mounts_writable() -> None:
    host = LinuxHost("l", VirtualClock())
    host.files.mkdir("/v")
    container = host.container_files(LINUX_IMAGE, read_only=True)
    container.add_mounts([HostPathMount("/new/place", "/v")])
    container.write("/new/place/x", b"")
    with pytest.raises(OSError, match="Read-only file system"):
        container.write("/tmp/x", b"")


def test_memory_volumes_are_seen_through_mounts() -> None:
    host = LinuxHost("l", VirtualClock())
    host.files.mkdir("/pods/v")
    host.files.mount_tmpfs("/pods/v", 1 << 20)
    used = host.disk().used
    one, whole = host.container_files(LINUX_IMAGE), host.container_files(LINUX_IMAGE)
    one.add_mounts([HostPathMount("/cache", "/pods/v")])
    whole.add_mounts([HostPathMount("/host", "/")])
    assert (one.in_memory("/cache"), one.in_memory("/"), whole.in_memory("/host/pods/v")) == (
        True,
        False,
        True,
    )
    one.write("/cache/x", b"x" * 9000)
    assert whole.read("/host/pods/v/x") == host.files.read("/pods/v/x")
    assert host.disk().used == used
    whole.write("/host/etc/motd", b"from a container")
    assert host.files.read("/etc/motd") == b"from a container"


def test_pipes_of_a_windows_host() -> None:
    host = WindowsHost("w", VirtualClock())
    host.files.make(r"\\.\pipe\docker_engine", "pipe")
    container = host.container_files(WINDOWS_IMAGE)
    container.add_mounts([HostPathMount(r"\\.\pipe\docker", r"\\.\pipe\docker_engine")])
    assert container.stat(r"\\.\pipe\docker").kind == "pipe"
    assert not container.exists(r"\\.\pipe\docker_engine")


def test_users() -> None:
    clock = VirtualClock()
    linux, windows = LinuxHost("l", clock), WindowsHost("w", clock)
    for host, image, text in (
        (linux, LINUX_IMAGE, "Permission denied"),
        (windows, WINDOWS_IMAGE, "Access is denied."),
    ):
        host.files.mkdir("/v")
        host.files.chmod("/v", 0o777)
        container = host.container_files(image)
        container.add_mounts([HostPathMount("/data/volume", "/v")])
        user = container.as_user(FileUser(1000, sids=USER.sids, sid=USER.sid))
        user.write("/data/volume/x", b"")
        with pytest.raises(PermissionError) as error:
            user.write("/data/x", b"")
        assert error.value.strerror == text
        container.write("/data/x", b"")
