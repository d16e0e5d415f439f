"""Hard links, junctions and drive letters for other directories."""

from __future__ import annotations

import errno

import pytest
from tests.machines.test_saving import again

from transom.kit.clock import VirtualClock
from transom.machines.linux import LinuxHost
from transom.machines.power import PowerAction
from transom.machines.styles import windows_error_code
from transom.machines.windows.features import (
    REBOOT_PENDING,
    change_feature,
    feature_state,
    find_feature,
)
from transom.machines.windows.host import WindowsHost


def test_hard_links_are_one_file_with_several_names() -> None:
    files = LinuxHost("l", VirtualClock()).files
    files.write("/root/a", b"one")
    files.link("/root/a", "/tmp/b")
    files.append("/tmp/b", b"two")
    files.chmod("/root/a", 0o600)
    assert files.read("/root/a") == b"onetwo"
    assert files.stat("/tmp/b").mode == 0o600
    assert files.link_count("/root/a") == files.link_count("/tmp/b") == 2
    files.remove("/root/a")
    assert files.read("/tmp/b") == b"onetwo"
    assert files.link_count("/tmp/b") == 1


def test_a_file_with_several_names_uses_its_space_once() -> None:
    host = LinuxHost("l", VirtualClock())
    host.files.write("/root/other", b"")
    before = host.disk()
    host.files.write("/root/a", bytes(8192))
    used = host.disk()
    host.files.link("/root/a", "/root/b")
    assert host.disk() == used
    host.files.remove("/root/a")
    assert host.disk() == used
    host.files.remove("/root/b")
    assert host.disk() == before


@pytest.mark.parametrize(
    ("existing", "new", "code"),
    [
        ("/nope", "/root/x", errno.ENOENT),
        ("/etc", "/root/x", errno.EPERM),
        ("/etc/hosts", "/etc/passwd", errno.EEXIST),
        ("/etc/hosts", "/run/memory/x", errno.EXDEV),
    ],
)
def test_links_that_are_not_possible(existing: str, new: str, code: int) -> None:
    files = LinuxHost("l", VirtualClock()).files
    files.write("/etc/hosts", b"")
    files.write("/etc/passwd", b"")
    files.mkdir("/run/memory")
    files.mount_tmpfs("/run/memory", 1 << 20)
    with pytest.raises(OSError) as problem:
        files.link(existing, new)
    assert problem.value.errno == code


def test_links_survive_a_restart_of_the_process() -> None:
    host = WindowsHost("w", VirtualClock())
    host.files.write("C:\\First.txt", b"one")
    host.files.link("C:\\First.txt", "C:\\Users\\Second.txt")
    host.files.junction("C:\\Users", "C:\\j")
    files = again(host).files
    files.append("C:\\first.txt", b"two")
    assert files.read("C:\\j\\second.txt") == b"onetwo"
    assert "Second.txt" in files.listdir("C:\\Users")
    assert files.link_count("C:\\First.txt") == 2
    assert files.is_junction("C:\\j")


def test_an_open_log_keeps_writing_to_a_file_that_is_linked() -> None:
    files = LinuxHost("l", VirtualClock()).files
    log = files.appender("/root/log")
    files.link("/root/log", "/root/kept")
    log(b"line\n")
    assert files.read("/root/kept") == b"line\n"


def test_a_drive_letter_for_a_directory_ends_with_a_restart() -> None:
    host = WindowsHost("w", VirtualClock())
    files = host.files
    files.write("C:\\Users\\f.txt", b"x")
    files.add_drive("X:", "C:\\Users")
    assert files.read("x:\\F.TXT") == b"x"
    assert files.drive_targets() == {"X:": "C:\\Users"}
    with pytest.raises(OSError) as problem:
        files.remove("X:\\")
    assert windows_error_code(problem.value) == 32
    host.reboot()
    assert not files.exists("X:\\")


def test_a_requested_restart_happens_once_and_can_be_cancelled() -> None:
    clock = VirtualClock()
    host = WindowsHost("w", clock)
    done: list[PowerAction] = []
    host.power.connect(done.append)
    assert host.power.request("restart", 60)
    assert not host.power.request("off", 5)
    clock.advance(59)
    assert host.power.cancel()
    assert not host.power.cancel()
    clock.advance(60)
    assert done == []
    host.power.request("off", 1)
    clock.advance(1)
    assert done == ["off"]


def test_a_feature_is_installed_by_the_next_restart() -> None:
    host = WindowsHost("w", VirtualClock())
    feature = find_feature("hyper-v")
    assert feature is not None
    assert change_feature(host.registry, feature, install=True)
    assert feature_state(host.registry, feature) == "Enable Pending"
    assert host.registry.exists(REBOOT_PENDING)
    host.reboot()
    assert feature_state(host.registry, feature) == "Enabled"
    assert not host.registry.exists(REBOOT_PENDING)
