"""The store: complete or not at all, kept while needed, cleared away afterwards, shared by
processes.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import orjson
import pytest
from tests.runtime.images.conftest import Hasty
from tests.runtime.images.tars import Built, E, folder, image, tar

from transom.kit.clock import VirtualClock
from transom.runtime.images import locks
from transom.runtime.images.collection import CollectionThresholds, collect_images, prune_images
from transom.runtime.images.importer import import_image
from transom.runtime.images.layers import LayerLimits
from transom.runtime.images.making import ImageOptions
from transom.runtime.images.model import ImageError, ImageNotFound, StoredImage, digest_of
from transom.runtime.images.platforms import platform_of_node
from transom.runtime.images.reference import parse_reference
from transom.runtime.images.store import LocalImageStore

LINUX = platform_of_node("linux", architecture="amd64")


def put(store: LocalImageStore, built: Built, name: str, *, local: bool = True) -> StoredImage:
    with store.busy_here():
        for data in (*built.blobs.values(), built.manifest):
            store.content.put(data)
        store.unpack_here(store.parse(built.digest))
        identity = store.register(
            built.digest, [(str(parse_reference(name)), built.digest)], local=local
        )
    found = store.image(identity)
    assert found is not None
    return found


def sized(letter: str, size: int = 1000) -> Built:
    return image(tar(E(letter, os.urandom(size))), Env=[letter])


def test_content_is_verified_before_it_has_a_name(store: LocalImageStore) -> None:
    with (
        store.content.writer() as writer,
        pytest.raises(ImageError, match="unexpected commit digest"),
    ):
        writer.write(b"abc")
        writer.commit(digest_of(b"other"))
    with (
        store.content.writer() as writer,
        pytest.raises(ImageError, match="failed size validation: 3 != 4"),
    ):
        writer.write(b"abc")
        writer.commit(digest_of(b"abc"), 4)
    assert list(store.content.digests()) == list(store.content.ingest.iterdir()) == []
    assert store.content.read(store.content.put(b"abc")) == b"abc"
    with pytest.raises(ImageNotFound):
        store.content.read(digest_of(b"nothing"))


def test_a_second_process_sees_what_the_first_did(store: LocalImageStore, tmp_path: Path) -> None:
    other = LocalImageStore(tmp_path / "images")
    assert other.images() == []
    found = put(store, sized("a"), "a:1")
    assert other.images() == [found] and other.find(parse_reference("a:1"), LINUX) == found
    store.remove(found.id)
    assert other.images() == []


def test_a_name_moves_and_the_old_image_stays_without_one(store: LocalImageStore) -> None:
    old, new = put(store, sized("a"), "a:1"), put(store, sized("b"), "a:1")
    assert store.image(new.id).tags == ("docker.io/library/a:1",)  # type: ignore[union-attr]
    assert store.image(old.id).tags == ()  # type: ignore[union-attr]
    assert [image.id for image in prune_images(store).removed] == [old.id]
    assert store.find(parse_reference("a:1"), LINUX).id == new.id  # type: ignore[union-attr]


def test_a_name_means_an_image_for_each_system_and_build(
    store: LocalImageStore, tmp_path: Path
) -> None:
    """As in a manifest list: who imports one again leaves the others as they are."""
    (tmp_path / "files").mkdir()

    def make(options: ImageOptions) -> str:
        return import_image(store, tmp_path / "files", "app:1", options)

    def find(system: str, build: int = 0) -> str:
        found = store.find(parse_reference("app:1"), platform_of_node(system, build, "amd64"))
        return found.id if found else ""

    linux = make(ImageOptions(cmd=("/app",)))
    old = make(ImageOptions(os="windows", os_version="10.0.17763.1697", cmd=(r"C:\app.exe",)))
    new = make(ImageOptions(os="windows", os_version="10.0.20348.587", cmd=(r"C:\app.exe",)))
    assert (find("linux"), find("windows", 17763), find("windows", 20348)) == (linux, old, new)
    again = make(ImageOptions(os="windows", os_version="10.0.17763.1697", cmd=(r"C:\other.exe",)))
    assert again != old
    assert (find("linux"), find("windows", 17763), find("windows", 20348)) == (linux, again, new)


def test_shared_layers_stay_until_the_last_image_goes(store: LocalImageStore) -> None:
    base = tar(folder("base"), E("base/x", b"1"))
    one, two = (
        put(store, image(base, tar(E("1", b"1"))), "one:1"),
        put(store, image(base, tar(E("2", b"2"))), "two:1"),
    )
    assert one.layers[0] == two.layers[0] and one.layers[1] != two.layers[1]
    store.remove(one.id)
    assert store.sweep().freed > 0
    assert two.layers[0].exists() and not one.layers[1].exists()
    assert {
        store.content.path(digest_of(layer)).exists()
        for layer in image(base, tar(E("2", b"2"))).layers
    } == {True}
    store.remove(two.id)
    store.sweep()
    assert not two.layers[0].exists() and list(store.content.digests()) == []
    assert store.usage() == (0, 0)


def test_leases_keep_layers_and_outlive_the_process(store: LocalImageStore, tmp_path: Path) -> None:
    found = put(store, sized("a"), "a:1")
    keeper = tmp_path / "container"
    keeper.mkdir()
    store.lease(found.id, "c/n/1")
    store.lease(found.id, "c/n/2", keeper)
    later = LocalImageStore(tmp_path / "images")
    assert {key: sorted(owners) for key, owners in later.in_use().items()} == {
        found.id: ["c/n/1", "c/n/2"]
    }
    assert not later.remove(found.id) and prune_images(later, everything=True).removed == ()
    assert later.remove(found.id, force=True)  # its names go, what a container has mounted stays
    later.sweep()
    assert later.images() == [] and (found.layers[0] / "a").exists()
    later.release("c/n/1")
    later.sweep()
    assert found.layers[0].exists()
    keeper.rmdir()  # the container was removed by another program
    later.sweep()
    assert not found.layers[0].exists()
    with pytest.raises(ImageNotFound):
        store.lease(found.id, "c/n/3")


async def test_nothing_is_cleared_away_while_images_come(store: LocalImageStore) -> None:
    async with store.busy():
        digest = store.content.put(b"not yet named")
        assert store.sweep() == (0, True)
        assert store.content.has(digest)
    assert store.sweep().freed == len(b"not yet named")


def test_what_a_killed_process_left_goes(store: LocalImageStore, clock: Hasty) -> None:
    rubbish = store.folder / "layers" / ".new-dead"
    (rubbish / "locked").mkdir(parents=True)
    (rubbish / "locked" / "x").write_bytes(b"1")
    (rubbish / "locked").chmod(0)
    (store.content.ingest / "new-dead").write_bytes(b"1")
    fresh, old = store.content.part("sha256:" + "1" * 64), store.content.part("sha256:" + "2" * 64)
    for path in (fresh, old):
        path.write_bytes(b"half")
    os.utime(old, (1, 1))
    (store.folder / "layers" / f"{'3' * 64}.json").write_bytes(b'{"size":5}')
    store.sweep()
    assert not rubbish.exists() and list(store.content.ingest.iterdir()) == [fresh]
    assert list((store.folder / "layers").iterdir()) == []


def test_the_least_recently_used_images_make_room(tmp_path: Path) -> None:
    clock = VirtualClock()
    store = LocalImageStore(tmp_path / "images", clock=clock)
    images = []
    for letter in "abcd":
        images.append(put(store, sized(letter, 10_000), f"{letter}:1"))
        clock.advance(60)
    store.touch(images[0].id)
    store.lease(images[1].id, "somebody")
    used = store.usage()[0]
    assert collect_images(store, CollectionThresholds(used + 1, 0, in_bytes=True)).removed == ()
    done = collect_images(store, CollectionThresholds(used - 1, used - 30_000, in_bytes=True))
    assert (
        [image.id for image in done.removed] == [images[2].id, images[3].id]
        and done.freed > 30_000
        and done.wanted == 0
    )
    done = collect_images(store, CollectionThresholds(1, 0, in_bytes=True))
    assert [image.id for image in done.removed] == [images[0].id] and done.wanted == store.usage()[
        0
    ] > 0
    # percent of the disk
    assert collect_images(store, CollectionThresholds(100.0, 99.0)).removed == ()


def test_two_processes_change_names_at_the_same_time(store: LocalImageStore) -> None:
    put(store, sized("a"), "a:1")
    code = textwrap.dedent("""
        import sys
        from pathlib import Path
        from transom.runtime.images.store import LocalImageStore
        store = LocalImageStore(Path(sys.argv[1]))
        manifest = next(iter(store.index.state().images.values())).manifest
        for i in range(20):
            store.register(manifest, [(f"docker.io/library/{sys.argv[2]}:{i}", manifest)], local=True)
    """)
    running = [
        subprocess.Popen([sys.executable, "-c", code, str(store.folder), name])
        for name in ("x", "y")
    ]
    assert [process.wait(60) for process in running] == [0, 0]
    assert len(store.index.state().names) == 41


async def test_locks_of_removed_files_are_taken_anew(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    order = []

    async def second() -> None:
        async with locks.wait_for_lock(path):
            order.append("second")

    async with locks.wait_for_lock(path):
        task = asyncio.create_task(second())
        await asyncio.sleep(0)
        order.append("first")
        path.unlink()
    await task
    assert order == ["first", "second"] and path.exists()


def test_a_damaged_index_is_reported(store: LocalImageStore) -> None:
    store.index.path.write_bytes(b"{")
    with pytest.raises(ImageError, match="damaged"):
        store.images()
    store.index.path.write_bytes(orjson.dumps({"version": 99}))
    with pytest.raises(ImageError, match="another version"):
        store.images()


def test_a_full_disk_is_reported(store: LocalImageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "mkfifo", full)
    with pytest.raises(
        ImageError, match=r"failed to extract layer sha256:.*: no space left on device: unknown"
    ):
        put(store, image(tar(E("pipe", kind="fifo"))), "a:1")
    assert not any(path.name.startswith(".new") for path in (store.folder / "layers").iterdir())


def test_limits_reach_the_layers(tmp_path: Path) -> None:
    store = LocalImageStore(
        tmp_path / "images", limits=LayerLimits(floor=1000, ratio=1, most=10_000)
    )
    with pytest.raises(ImageError, match="larger than 1000 bytes"):
        put(store, image(tar(E("zeros", bytes(5000)))), "a:1")
