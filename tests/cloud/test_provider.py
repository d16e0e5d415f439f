"""Disks and shares of the emulated cloud: attachment, limits, faults, and what survives a
restart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from transom.cloud import content, provider
from transom.cloud.content import ContentError
from transom.cloud.disks import ATTACH_LIMITS
from transom.cloud.errors import CloudError
from transom.cloud.provider import CloudProvider, cloud_summary
from transom.cloud.shares import ShareError
from transom.kit.clock import VirtualClock
from transom.machines.linux import LinuxHost
from transom.machines.styles import POSIX, WINDOWS
from transom.machines.windows.host import WindowsHost

AZURE = "kubernetes.io/azure-disk//subscriptions/s/disks/data"
PLUGINS = sorted(ATTACH_LIMITS)


def run(clock: VirtualClock, work: Coroutine[Any, Any, Any], seconds: float = 0.0) -> Any:
    async def main() -> Any:
        task = asyncio.ensure_future(work)
        await clock.run_for(seconds)
        assert task.done()
        return task.result()

    return asyncio.run(main())


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def cloud(clock: VirtualClock) -> CloudProvider:
    return CloudProvider(clock)


@pytest.mark.parametrize("plugin", PLUGINS)
def test_a_disk_is_attached_to_one_node_at_a_time(
    clock: VirtualClock, cloud: CloudProvider, plugin: str
) -> None:
    name = f"{plugin}/vol-1"
    first = run(clock, cloud.attach(name, "a"))
    assert run(clock, cloud.attach(name, "a")) == first  # a repeated call is not an error
    with pytest.raises(CloudError) as caught:
        run(clock, cloud.attach(name, "b"))
    assert caught.value.current_node == "a"
    run(clock, cloud.detach(name, "a"))
    run(clock, cloud.attach(name, "b"))
    assert [disk.name for disk in cloud.attached_to("b")] == [name]
    assert not cloud.attached_to("a")


def test_read_only_disks_are_attached_to_several_nodes(
    clock: VirtualClock, cloud: CloudProvider
) -> None:
    name = "kubernetes.io/gce-pd/pd"
    for node in ("a", "b"):
        run(clock, cloud.attach(name, node, read_only=True))
    with pytest.raises(CloudError, match="RESOURCE_IN_USE_BY_ANOTHER_RESOURCE"):
        run(clock, cloud.attach(name, "c"))


@pytest.mark.parametrize("plugin", PLUGINS)
def test_a_node_takes_so_many_disks(clock: VirtualClock, cloud: CloudProvider, plugin: str) -> None:
    cloud.set_limit("a", plugin, 2)
    paths = {run(clock, cloud.attach(f"{plugin}/{i}", "a")) for i in range(2)}
    assert len(paths) == 2
    with pytest.raises(CloudError):
        run(clock, cloud.attach(f"{plugin}/2", "a"))
    run(clock, cloud.detach(f"{plugin}/0", "a"))
    run(clock, cloud.attach(f"{plugin}/2", "a"))
    assert sorted(disk.attachments["a"].lun for disk in cloud.attached_to("a")) == [0, 1]


@pytest.mark.parametrize("plugin", PLUGINS)
def test_a_disk_stays_in_its_zone(clock: VirtualClock, cloud: CloudProvider, plugin: str) -> None:
    name = f"{plugin}/vol"
    cloud.create_disk(name, 1 << 30, "z1")
    with pytest.raises(CloudError):
        run(clock, cloud.attach(name, "a", zone="z2"))
    run(clock, cloud.attach(name, "a", zone="z1"))


def test_faults(clock: VirtualClock, cloud: CloudProvider) -> None:
    disk = cloud.create_disk(AZURE, 1 << 30)
    disk.attach_error = "out of order"
    with pytest.raises(CloudError, match=r"^out of order$"):
        run(clock, cloud.attach(AZURE, "a"))
    disk.attach_error, disk.missing = "", True
    with pytest.raises(CloudError, match="was not found"):
        run(clock, cloud.attach(AZURE, "a"))
    disk.missing, disk.latency = False, 30.0
    started = clock.monotonic()
    run(clock, cloud.attach(AZURE, "a"), 31)
    assert clock.monotonic() - started >= 30
    disk.latency, disk.detach_error = None, "busy"
    with pytest.raises(CloudError, match=r"^busy$"):
        run(clock, cloud.detach(AZURE, "a"))
    assert "a" in disk.attachments
    with pytest.raises(CloudError, match="could not be deleted"):
        cloud.delete_disk(AZURE)


def test_disks_and_shares_survive_a_restart(clock: VirtualClock, tmp_path: Path) -> None:
    cloud = CloudProvider(clock, tmp_path)
    run(clock, cloud.attach(AZURE, "a", size=5 << 30))
    disk = cloud.disk(AZURE)
    assert disk is not None
    disk.format = "NTFS"
    host = WindowsHost("a", clock)
    host.files.mkdir("C:\\mnt")
    host.files.mount(disk.content.file_system(WINDOWS, disk.size, 0.0), "C:\\mnt")
    host.files.mkdir("C:\\mnt\\Sub")
    host.files.write("C:\\mnt\\Sub\\File.txt", b"kept")
    share = cloud.share("srv", "Data")
    share.connect("u", "p")
    host.files.mkdir("C:\\smb")
    host.files.mount(share.content.file_system(WINDOWS, share.size, 0.0), "C:\\smb")
    host.files.write("C:\\smb\\x", b"shared")
    cloud.save()
    host.files.write("C:\\smb\\y", b"not saved")

    again = CloudProvider(clock, tmp_path)
    found = again.disk(AZURE)
    assert (
        found is not None
        and found.size == 5 << 30
        and found.attachments["a"].lun == 0
        and found.format == "NTFS"
    )
    other = WindowsHost("b", clock)
    other.files.mkdir("C:\\mnt")
    other.files.mount(found.content.file_system(WINDOWS, 0, 0.0), "C:\\mnt")
    assert other.files.read("C:\\mnt\\sub\\file.TXT") == b"kept"
    assert other.files.listdir("C:\\mnt") == ["Sub"]
    with pytest.raises(ShareError):
        again.share("SRV", "data").connect("u", "wrong")
    assert [share["name"] for share in cloud_summary(again)["shares"]] == ["\\\\srv\\Data"]
    other.files.mkdir("C:\\smb")
    other.files.mount(again.share("srv", "data").content.file_system(WINDOWS, 0, 0.0), "C:\\smb")
    assert other.files.listdir("C:\\smb") == ["x"]


def test_what_is_written_is_saved(clock: VirtualClock, tmp_path: Path) -> None:
    cloud = CloudProvider(clock, tmp_path)
    run(clock, cloud.attach(AZURE, "a"))
    disk = cloud.disk(AZURE)
    assert disk is not None
    host = LinuxHost("a", clock)
    host.files.mkdir("/mnt/d")
    host.files.mount(disk.content.file_system(POSIX, disk.size, 0.0), "/mnt/d")
    for change in (
        lambda: host.files.write("/mnt/d/f", b"1"),
        lambda: host.files.chmod("/mnt/d/f", 0o600),
        lambda: host.files.append("/mnt/d/f", b"2"),
        lambda: host.files.rename("/mnt/d/f", "/mnt/d/g"),
        lambda: host.files.write("/mnt/d/g", b"34"),
    ):
        change()
        assert disk.content.changed
        cloud.close()
        assert not disk.content.changed
    found = CloudProvider(clock, tmp_path).disk(AZURE)
    assert found is not None
    system = found.content.file_system(POSIX, 0, 0.0)
    assert system.root.data["g"].data == b"34"  # type: ignore[index,call-overload]


def test_one_share_is_the_same_directory_on_linux_and_windows(
    clock: VirtualClock, cloud: CloudProvider
) -> None:
    share = cloud.share("srv", "data")
    linux, windows = LinuxHost("l", clock), WindowsHost("w", clock)
    linux.files.mkdir("/mnt/s")
    windows.files.mkdir("C:\\s")
    for files, path in ((linux.files, "/mnt/s"), (windows.files, "C:\\s")):
        files.mount(share.content.file_system(share.style, share.size, 0.0), path)
    windows.files.write("C:\\s\\Hello.TXT", b"from windows")
    assert linux.files.listdir("/mnt/s") == ["Hello.TXT"]
    # the server does not look at case
    assert linux.files.read("/mnt/s/hello.txt") == b"from windows"
    found = linux.files.stat("/mnt/s/Hello.TXT")
    assert (found.mode, found.uid, found.gid) == (0o777, 0, 0)
    linux.files.mkdir("/mnt/s/Sub/Deep")
    linux.files.write("/mnt/s/sub/deep/F", b"from linux")
    assert windows.files.read("C:\\s\\SUB\\Deep\\f") == b"from linux"
    linux.files.rename("/mnt/s/Sub", "/mnt/s/Other")
    assert windows.files.listdir("C:\\s") == ["Hello.TXT", "Other"]
    linux.files.remove("/mnt/s/HELLO.txt")
    assert windows.files.listdir("C:\\s") == ["Other"]


def test_a_disk_that_is_taken_away_by_force(clock: VirtualClock, cloud: CloudProvider) -> None:
    run(clock, cloud.attach(AZURE, "a"))
    disk = cloud.disk(AZURE)
    assert disk is not None
    lost = LinuxHost("a", clock)
    lost.files.mkdir("/d")
    lost.files.mount(disk.content.file_system(POSIX, disk.size, 0.0), "/d")
    lost.files.write("/d/f", b"before")
    run(clock, cloud.detach(AZURE, "a", force=True))
    lost.files.write("/d/f", b"after")
    system = disk.content.file_system(POSIX, 0, 0.0)
    assert system.root.data["f"].data == b"before"  # type: ignore[index,call-overload]


def test_content_moves_between_simulated_and_real_nodes(
    clock: VirtualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud = CloudProvider(clock, tmp_path)
    disk = cloud.create_disk(AZURE, 1 << 30)
    host = LinuxHost("a", clock)
    host.files.mkdir("/d")
    host.files.mount(disk.content.file_system(POSIX, disk.size, 0.0), "/d")
    host.files.mkdir("/d/sub")
    host.files.write("/d/sub/f", b"1", 0o640)
    host.files.symlink("sub/f", "/d/link")
    folder = disk.content.real_folder(POSIX)
    assert (folder / "sub/f").read_bytes() == b"1"
    (folder / "g").write_bytes(b"2")
    assert not content.is_content_mounted(folder.parent)
    with monkeypatch.context() as patch, pytest.raises(ContentError):
        patch.setattr(content, "is_content_mounted", lambda _: True)
        disk.content.file_system(POSIX, 0, 0.0)
    system = disk.content.file_system(POSIX, 0, 0.0)
    assert sorted(system.root.data) == ["g", "link", "sub"]  # type: ignore[arg-type]
    assert not folder.exists()


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[]", b'{"latency": 0}', b'{"latency": 0, "disks": [{}], "shares": []}']
)
def test_a_damaged_index_does_not_stop_the_cluster(
    clock: VirtualClock, tmp_path: Path, damage: bytes
) -> None:
    (tmp_path / "index.json").write_bytes(damage)
    cloud = CloudProvider(clock, tmp_path)
    assert (tmp_path / "index.damaged").read_bytes() == damage
    run(clock, cloud.attach(AZURE, "a"))


def test_limits_are_reported_and_kept(clock: VirtualClock, tmp_path: Path) -> None:
    cloud = CloudProvider(clock, tmp_path)
    assert cloud.reported_limits("a") == {}  # the scheduler knows the usual ones
    cloud.set_limit("a", "kubernetes.io/azure-disk", 4)
    cloud.save()
    again = CloudProvider(clock, tmp_path)
    assert again.reported_limits("a") == {"attachable-volumes-azure-disk": 4}
    again.set_limit("a", "kubernetes.io/azure-disk", None)
    assert again.reported_limits("a") == {} and again.limit("a", "kubernetes.io/azure-disk") == 16


def test_pods_cannot_make_the_cloud_keep_any_number_of_objects(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider, "_MAX_OBJECTS", 3)
    cloud = CloudProvider(clock)
    cloud.create_disk(AZURE, 1)
    cloud.share("server", "share")
    cloud.export("kubernetes.io/nfs", "server:/path")
    (
        cloud.create_disk(AZURE, 1),
        cloud.share("SERVER", "share"),
        cloud.export("kubernetes.io/nfs", "server:/path"),
    )
    for create in (
        lambda: run(clock, cloud.attach("kubernetes.io/gce-pd/other", "n")),
        lambda: cloud.share("server", "other"),
        lambda: cloud.export("kubernetes.io/nfs", "server:/other"),
    ):
        with pytest.raises(CloudError, match="transom cloud delete"):
            create()
    cloud.delete_disk(AZURE)
    with pytest.raises(CloudError, match="no more than 2048 characters"):
        cloud.share("server", "x" * 3000)
    cloud.share("server", "other")
