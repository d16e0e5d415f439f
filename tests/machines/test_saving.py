"""The disk of a simulated machine, saved and read again."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from transom.kit.clock import VirtualClock
from transom.machines import listing
from transom.machines.filesystems import FileSystem
from transom.machines.inodes import BlockContent, Inode, NamedInode
from transom.machines.linux import LinuxHost
from transom.machines.saving import DamagedState, SavedContents, pack_state, unpack_state
from transom.machines.styles import POSIX, WINDOWS
from transom.machines.windows.host import WindowsHost
from transom.machines.windows.journal import ScheduledTask
from transom.machines.windows.services import Report, ServiceManager, ServiceProcess, WindowsService

ROOT = Path(__file__).parents[2]
Machine = LinuxHost | WindowsHost


def saved(host: Machine) -> bytes:
    contents = SavedContents()
    return pack_state(host.save(contents), contents)


def again(host: Machine) -> Machine:
    """The machine after a restart of the process."""
    made = type(host)(host.name, VirtualClock())
    made.restore(*unpack_state(saved(host)))
    return made


def test_every_field_of_a_file_is_saved() -> None:
    """A new field of `Inode` has to be saved, too."""
    assert Inode.__slots__ == ("data", "mode", "mtime", "owner")
    assert NamedInode.__slots__ == ("name",)


def test_files_keep_content_mode_owner_and_time() -> None:
    clock = VirtualClock()
    host = LinuxHost("l", clock)
    files = host.files
    files.mkdir("/data")
    files.write("/data/f", b"\x00\xffbytes", 0o640)
    files.chown("/data/f", 4_000_000_000, 7)
    files.symlink("../data/f", "/data/link")
    files.allocate("/data/zeros", 1 << 40 >> 10)
    files.make("/data/pipe", "pipe", 0o622)
    files.mkdir("/data/group", 0o2775)
    log = files.appender("/var/log/grows")
    for _ in range(300):
        log(b"a line\n")
    files.write("/data/caf\udce9", b"not UTF-8")
    before = {
        path: files.stat(path, follow=False)
        for path in ("/data", *(f"/data/{n}" for n in files.listdir("/data")))
    }
    used = host.disk()
    clock.advance(1000)
    back = again(host)
    assert {path: back.files.stat(path, follow=False) for path in before} == before
    assert back.files.read("/data/link") == b"\x00\xffbytes"
    assert back.files.read("/var/log/grows") == b"a line\n" * 300
    assert back.files.read("/data/caf\udce9") == b"not UTF-8"
    assert back.disk() == used


def lines_of_save(files: int) -> int:
    """The lines of Python that run when a machine with this many files is saved."""
    host = LinuxHost("l", VirtualClock())
    host.files.mkdir("/data")
    for number in range(files):
        host.files.write(f"/data/{number}", b"x")
    count = 0

    def trace(_frame: FrameType, _event: str, _arg: object) -> Any:
        nonlocal count
        count += 1
        return trace

    sys.settrace(trace)
    try:
        host.save(SavedContents())
    finally:
        sys.settrace(None)
    return count


def test_the_event_loop_only_lists_directories() -> None:
    """Rows of single files are made in the thread that writes them."""
    # In a process of its own: in one that has run thousands of tests, tracing did not end.
    program = f"from {__name__} import lines_of_save as run; print(run(100), run(5100))"
    command = [sys.executable, "-c", program]
    child = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    few, many = map(int, child.stdout.split())
    assert many < few + 100 + 5000 * 2  # a line for each entry that may be a directory


@pytest.mark.parametrize("target", ["/a/moved", "/z/moved"])
def test_a_file_that_is_moved_while_a_machine_is_saved_is_saved_once(target: str) -> None:
    host = LinuxHost("l", VirtualClock())
    for name in ("/a", "/m", "/z"):
        host.files.mkdir(name)
    host.files.write("/m/file", b"content")
    contents = SavedContents()
    document = host.save(contents)
    host.files.rename("/m/file", target)
    host.files.remove("/m")
    made = LinuxHost("l", VirtualClock())
    made.restore(*unpack_state(pack_state(document, contents)))
    assert made.files.read("/m/file") == b"content"
    assert not made.files.exists(target)


def test_changes_to_the_installed_system_are_kept_and_the_rest_is_shared() -> None:
    host = LinuxHost("l", VirtualClock())
    host.files.remove("/etc/passwd")
    host.files.write("/etc/hosts", b"changed")
    host.files.rename("/opt", "/moved")
    host.files.write("/moved/cni/own", b"")
    host.files.rename("/srv", "/usr/srv")
    back = again(host)
    assert not back.files.exists("/etc/passwd")
    assert not back.files.exists("/opt")
    assert back.files.read("/etc/hosts") == b"changed"
    assert back.files.listdir("/moved/cni") == ["bin", "own"]
    assert back.files.exists("/usr/srv")
    assert back.files.read("/etc/group") == LinuxHost("x", VirtualClock()).files.read("/etc/group")
    assert len(saved(host)) < 2500  # what was installed is not part of it


def test_it_is_as_after_a_reboot() -> None:
    host = LinuxHost("l", VirtualClock())
    host.files.mkdir("/vol")
    host.files.write("/vol/below", b"disk")
    host.files.mount_tmpfs("/vol", 1 << 20)
    host.files.write("/vol/lost", b"memory")
    host.files.write("/run/lost", b"memory")
    host.fill_disk(1 << 30)
    back = again(host)
    assert back.identity.boot_id != host.identity.boot_id
    assert back.identity.machine_id == host.identity.machine_id
    assert back.files.listdir("/vol") == ["below"]
    assert back.files.listdir("/run") == ["lock"]
    assert back.disk() == host.disk()
    assert again(back).identity.boot_id not in (host.identity.boot_id, back.identity.boot_id)


def test_windows_keeps_names_attributes_and_its_registry() -> None:
    host = WindowsHost("w", VirtualClock())
    host.files.mkdir(r"C:\Data")
    host.files.write(r"C:\Data\Read Me.TXT", b"text")
    host.files.chmod(r"C:\Data\Read Me.TXT", 0o444)
    host.files.symlink(r"C:\Data", r"C:\link")
    host.files.add_root("D:")
    host.files.write(r"D:\x", b"on another drive")
    key = r"HKLM\SOFTWARE\Example"
    values = {"text": "a", "number": 5, "binary": b"\x00\xff", "several": ("a", "b"), "empty": b""}
    for name, value in values.items():
        host.registry.set(key, name, value)
    host.registry.delete(r"HKLM\SYSTEM\CurrentControlSet\Services\cexecsvc")
    back = again(host)
    assert isinstance(back, WindowsHost)
    assert back.files.listdir(r"c:\link") == ["Read Me.TXT"]
    assert back.files.stat(r"c:\data\read me.txt").mode == 0o444
    with pytest.raises(OSError, match="Access is denied"):
        back.files.write(r"c:\data\READ me.txt", b"")
    assert back.files.read(r"d:\X") == b"on another drive"
    assert back.registry.values(key) == values
    assert not back.registry.exists(r"HKLM\SYSTEM\CurrentControlSet\Services\cexecsvc")
    assert int(back.identity.boot_id) == int(host.identity.boot_id) + 1


def test_a_machine_knows_whether_it_has_changed() -> None:
    host = WindowsHost("w", VirtualClock())
    assert host.has_changed()
    layer = host.container_files(host.files.frozen())
    for change in (
        lambda: host.files.write(r"C:\f", b""),
        lambda: host.files.append(r"C:\f", b"more"),
        lambda: host.files.chmod(r"C:\f", 0o444),
        lambda: host.files.rename(r"C:\f", r"C:\g"),
        lambda: host.files.remove(r"C:\g"),
        lambda: host.files.mkdir(r"C:\d"),
        lambda: host.files.grant(r"C:\d"),
        lambda: host.files.fill(r"C:\d", [("a", b"", 0o644)]),
        lambda: host.registry.set(r"HKLM\SOFTWARE\X", "a", 1),
        lambda: layer.write(r"C:\in a container", b""),
    ):
        saved(host)
        assert not host.has_changed()
        host.files.listdir("C:\\")
        host.registry.get(r"HKLM\SOFTWARE\X", "a")
        assert not host.has_changed()
        change()
        assert host.has_changed()


def test_deep_trees_are_saved() -> None:
    host = LinuxHost("l", VirtualClock())
    path = ""
    for _ in range(2000):
        path += "/d"
    host.files.mkdir(path)
    host.files.write(f"{path}/f", b"deep")
    assert again(host).files.read(f"{path}/f") == b"deep"


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: data + b"x",
        lambda data: b"",
        lambda data: data[:40],
        lambda data: data.replace(b'"rows"', b'"rosw"'),
        lambda data: data.replace(b"transom machine 1", b"transom machine 2"),
    ],
)
def test_damaged_states_are_refused(damage: object) -> None:
    host = LinuxHost("l", VirtualClock())
    host.files.write("/f", b"content")
    data = damage(saved(host))  # type: ignore[operator]
    fresh = LinuxHost("l", VirtualClock())
    with pytest.raises((DamagedState, KeyError)):
        fresh.restore(*unpack_state(data))
    assert not fresh.files.exists("/f")


@pytest.mark.parametrize("style", [POSIX, WINDOWS])
def test_a_file_system_outside_of_machines_is_saved(style: object) -> None:
    host = LinuxHost("l", VirtualClock()) if style is POSIX else WindowsHost("w", VirtualClock())
    path, inner = ("/m", "/m/f") if style is POSIX else (r"C:\m", r"C:\m\F")
    system = host.files.new_file_system(1 << 20)
    host.files.mkdir(path)
    host.files.mount(system, path)
    host.files.write(inner, b"kept")
    contents = SavedContents()
    document, contents = unpack_state(pack_state(system.save(contents), contents))
    back = FileSystem.restored(document, contents)
    assert (back.style, back.space.capacity, back.space.used) == (style, 1 << 20, system.space.used)
    host.files.unmount(path)
    host.files.mount(back, path)
    assert host.files.read(inner) == b"kept"


def test_a_block_device_has_content_wherever_there_is_a_node_for_it() -> None:
    host = LinuxHost("l", VirtualClock())
    blocks = BlockContent(10)
    host.files.make_device("/dev/one", blocks)
    host.files.make_device("/dev/two", blocks)
    host.files.write("/dev/one", b"12345678")
    host.files.write("/dev/two", b"ab")
    assert host.files.read("/dev/one") == b"ab345678"
    with pytest.raises(OSError, match="No space left"):
        host.files.write("/dev/one", b"x" * 11)
    assert host.files.stat("/dev/one").kind == "block"
    back = again(host)
    assert back.files.stat("/dev/one").kind == "block"
    assert back.files.read("/dev/one") == b""  # the disk is another one's


def test_event_logs_tasks_and_recovery_actions_of_a_windows_machine() -> None:
    host = WindowsHost("w", VirtualClock())
    saved(host)
    assert not host.has_changed()
    host.journal.log("System", 12.0, "Warning", "me", 7, "hello")
    assert host.has_changed()
    saved(host)
    host.journal.tasks["t"] = ScheduledTask("T", "cmd /c x", "daily", "SYSTEM", next_run=5.0)
    assert host.has_changed()

    async def launch(_service: WindowsService, _report: Report) -> ServiceProcess:
        raise AssertionError

    manager = ServiceManager(host.clock, host.registry, launch)
    service = manager.create("mine", r"C:\mine.exe")
    service.recovery, service.reset_seconds = (("restart", 5000), ("none", 0)), 60
    manager.changed(service)
    other = again(host)
    assert isinstance(other, WindowsHost)
    assert other.journal.save() == host.journal.save()
    other.journal.log("System", 13.0, "Information", "me", 8, "more")
    assert [entry.number for entry in other.journal.events] == [1, 2]
    loaded = ServiceManager(other.clock, other.registry, launch)
    loaded.load(())
    found = loaded.get("mine")
    assert (found.recovery, found.reset_seconds) == (service.recovery, 60)


async def test_many_directories_are_listed_a_few_at_a_time_as_of_one_moment() -> None:
    host = LinuxHost("l", VirtualClock())
    for number in range(3_000):
        host.files.mkdir(f"/d{number // 100}/e{number}")
    contents = SavedContents()
    document = host.save(contents)
    listing = asyncio.ensure_future(contents.list_directories())
    for number in range(0, 3_000, 50):  # while it is listed
        await asyncio.sleep(0)
        host.files.rename(f"/d{number // 100}/e{number}", f"/d{29 - number // 100}/moved{number}")
        host.files.mkdir(f"/d{number // 100}/new{number}")
    await listing
    host.files.remove("/d7", recursive=True)
    made = LinuxHost("l", VirtualClock())
    made.restore(*unpack_state(pack_state(document, contents)))
    for number in range(30):
        wanted = {f"e{n}" for n in range(number * 100, number * 100 + 100)}
        assert set(made.files.listdir(f"/d{number}")) == wanted


def test_a_listing_stops_when_it_is_not_needed() -> None:
    host = LinuxHost("l", VirtualClock())
    kept, dropped = SavedContents(), SavedContents()
    host.save(kept)
    host.save(dropped)
    assert listing._running
    kept.discard()
    del dropped
    assert listing._running == []
