"""The storage behind simulated CSI drivers: it outlives the process, and snapshots keep what a
volume had.
"""

from __future__ import annotations

from transom.kit.clock import VirtualClock
from transom.machines.linux import LinuxHost
from transom.machines.saving import SavedContents, pack_state, unpack_state
from transom.userland.csi_storage import CsiStorage


def test_volumes_and_snapshots_are_found_again() -> None:
    host = LinuxHost("l", VirtualClock())
    storage = CsiStorage()
    assert storage.is_empty()
    driver = storage.of("disk.example.com")
    disk = driver.create("pvc-1", 1 << 20, None, 0.0)
    host.files.mkdir("/m")
    host.files.mount(disk.formatted(host.files.new_file_system), "/m")
    host.files.write("/m/f", b"before")
    disk.blocks.overwrite(b"raw")
    snapshot = driver.snapshot("snap-1", disk, 0.0)
    host.files.write("/m/f", b"after")
    disk.blocks.overwrite(b"RAW")

    contents = SavedContents()
    document, contents = unpack_state(pack_state(storage.save(contents), contents))
    back = CsiStorage()
    back.restore(document, contents)
    again = back.of("disk.example.com")
    assert again.create("pvc-1", 0, None, 0.0) is again.disks[disk.identity]
    restored = again.create("pvc-2", 0, again.snapshots[snapshot.identity], 0.0)
    assert restored.size == 1 << 20
    for found, content, raw in (
        (again.disks[disk.identity], b"after", b"RAW"),
        (restored, b"before", b"raw"),
    ):
        host.files.mount(found.formatted(host.files.new_file_system), "/m")
        assert host.files.read("/m/f") == content
        assert found.blocks == raw
        host.files.unmount("/m")
