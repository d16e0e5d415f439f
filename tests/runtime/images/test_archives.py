"""Archives of other tools can be read, archives that are written read the same; folders become
images.
"""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.runtime.images.tars import E, folder, hardlink, image, index, symlink, tar
from tests.runtime.images.test_store import put

from transom.runtime.images import archives, model
from transom.runtime.images.importer import import_folder
from transom.runtime.images.making import ImageOptions
from transom.runtime.images.model import ImageError, digest_of
from transom.runtime.images.platforms import NodePlatform
from transom.runtime.images.reference import parse_reference
from transom.runtime.images.store import LocalImageStore

LINUX, W17763 = NodePlatform("linux"), NodePlatform("windows", build=17763)


def load(store: LocalImageStore, data: bytes, name: str = "") -> list[archives.LoadedImage]:
    with store.busy_here():
        return archives.load_archive(store, io.BytesIO(data), name)


def save(
    store: LocalImageStore,
    *names: str,
    form: archives.Format = "docker",
    platform: NodePlatform = LINUX,
) -> bytes:
    out = io.BytesIO()
    chosen = [
        (found, str(parse_reference(name)))
        for name in names
        if (found := store.find(parse_reference(name), platform)) is not None
    ]
    archives.save_archive(store, chosen, out, form)
    return out.getvalue()


@pytest.mark.parametrize("form", ["docker", "oci"])
@pytest.mark.parametrize("oci", [True, False])
def test_a_saved_image_loads_as_the_same(
    store: LocalImageStore, tmp_path: Path, form: archives.Format, oci: bool
) -> None:
    one = put(
        store,
        image(tar(E("a", b"1")), tar(E("b", b"2"), E(".wh.a")), oci=oci, Env=["A=1"]),
        "one:1",
    )
    two = put(store, image(tar(E("a", b"1")), oci=oci, Cmd=["x"]), "example.com/two:2")
    data = save(store, "one:1", "example.com/two:2", form=form)
    assert data == save(store, "one:1", "example.com/two:2", form=form)
    other = LocalImageStore(tmp_path / "other")
    for packed in (data, gzip.compress(data)):
        loaded = load(other, packed)
        assert {found.identity for found in loaded} == {one.id, two.id}
    for before in (one, two):
        after = other.image(before.id)
        assert after is not None
        assert (after.tags, after.digests, after.manifest, after.config, after.size) == (
            before.tags,
            before.digests,
            before.manifest,
            before.config,
            before.size,
        )
        assert [layer.name for layer in after.layers] == [layer.name for layer in before.layers]
    assert save(other, "one:1", "example.com/two:2", form=form) == data


def test_windows_images_keep_the_layers_that_are_not_there(
    store: LocalImageStore, tmp_path: Path
) -> None:
    built = image(
        tar(E("Files/x.dll", b"1")),
        tar(E("Files/app.exe", b"MZ")),
        os="windows",
        version="10.0.17763.1",
        foreign=1,
    )
    found = put(store, built._replace(layers=built.layers[1:]), "app:1")
    assert len(found.layers) == 1
    for form in ("docker", "oci"):
        other = LocalImageStore(tmp_path / form)
        assert load(other, save(store, "app:1", form=form, platform=W17763)) == [  # type: ignore[arg-type]
            (found.id, found.tags, "windows/amd64/17763")
        ]
        assert other.find(parse_reference("app:1"), W17763).digests == found.digests  # type: ignore[union-attr]


def test_an_index_stays_what_the_name_stands_for(store: LocalImageStore, tmp_path: Path) -> None:
    built, absent = image(tar(E("a", b"1"))), image(tar(E("b", b"1")), architecture="arm64")
    put(store, built, "first:1")
    top = index(
        (built, {"os": "linux", "architecture": "amd64"}),
        (absent, {"os": "linux", "architecture": "arm64"}),
    )
    store.content.put(top)
    store.register(built.digest, [("docker.io/library/app:1", digest_of(top))], LINUX)
    other = LocalImageStore(tmp_path / "other")
    load(other, save(store, "app:1"))
    assert other.find(parse_reference("app:1"), LINUX).digests == (
        f"docker.io/library/app@{digest_of(top)}",
    )  # type: ignore[union-attr]


def old_docker(
    layers: dict[str, bytes], config: dict[str, Any], tags: list[str], *more: E
) -> bytes:
    """As `docker save` wrote it until 2023."""
    recorded = orjson.dumps(config)
    name = f"{digest_of(recorded)[7:]}.json"
    row = {
        "Config": name,
        "RepoTags": tags,
        "Layers": [f"{key}/layer.tar" for key in config["paths"]],
    }
    return tar(
        *(E(f"{key}/layer.tar", data) for key, data in layers.items()),
        *more,
        E(name, recorded),
        E("manifest.json", orjson.dumps([row])),
        E("repositories", b"{}"),
    )


def test_archives_of_older_dockers(store: LocalImageStore) -> None:
    first, second = tar(E("a", b"1")), tar(E("b", b"2"))
    config = {
        "os": "linux",
        "architecture": "amd64",
        "config": {"Cmd": ["sh"]},
        "paths": ["l1", "l2", "l3"],
        "rootfs": {
            "type": "layers",
            "diff_ids": [digest_of(first), digest_of(second), digest_of(first)],
        },
    }
    data = old_docker(
        {"l1": first, "l2": second},
        config,
        ["web:1", "web:latest"],
        symlink("l3/layer.tar", "../l1/layer.tar"),
    )
    (found,) = load(store, data)
    stored = store.image(found.identity)
    assert stored is not None and stored.tags == (
        "docker.io/library/web:1",
        "docker.io/library/web:latest",
    )
    assert len(stored.layers) == 3 and (stored.layers[2] / "a").read_bytes() == b"1"
    assert store.find(parse_reference("web"), LINUX) == stored


def test_layouts_of_other_tools(store: LocalImageStore) -> None:
    linux = image(tar(E("a", b"1")), oci=True)
    windows = image(tar(E("Files/a", b"1")), os="windows", version="10.0.17763.9", oci=True)
    inner = index((linux, None), (windows, None), kind=model.OCI_INDEX)
    top = {
        "schemaVersion": 2,
        "manifests": [
            {
                "mediaType": model.OCI_INDEX,
                "digest": digest_of(inner),
                "size": len(inner),
                "annotations": {"org.opencontainers.image.ref.name": "v1"},
            }
        ],
    }
    blobs = {digest_of(inner): inner}
    for built in (linux, windows):
        blobs |= built.blobs | {built.digest: built.manifest}
    data = tar(
        *(E(f"blobs/sha256/{digest[7:]}", blob) for digest, blob in blobs.items()),
        E("oci-layout", b"{}"),
        E("index.json", orjson.dumps(top)),
    )
    assert {found.platform for found in load(store, data, "example.com/app")} == {
        "linux/amd64",
        "windows/amd64/17763",
    }
    assert store.find(parse_reference("example.com/app:v1"), LINUX).id == linux.id  # type: ignore[union-attr]
    assert store.find(parse_reference("example.com/app:v1"), W17763).id == windows.id  # type: ignore[union-attr]


ROW = {"Config": "c.json", "RepoTags": [], "Layers": []}
CONFIG = orjson.dumps({"os": "linux", "rootfs": {"diff_ids": []}})


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        ([E("a", b"1")], "neither manifest.json nor index.json"),
        ([E("manifest.json", b"{}")], "not a list of images"),
        ([E("manifest.json", b"[")], "not JSON"),
        ([E("manifest.json", orjson.dumps([ROW]))], "lacks 'c.json'"),
        (
            [E("c.json", CONFIG), E("manifest.json", orjson.dumps([ROW | {"Layers": ["x"]}]))],
            "mismatched",
        ),
        (
            [E("c.json", CONFIG), E("manifest.json", orjson.dumps([ROW | {"RepoTags": ["A B"]}]))],
            "invalid reference format",
        ),
        ([E("../manifest.json", b"[]")], "invalid path"),
        ([hardlink("c.json", "c.json"), E("manifest.json", orjson.dumps([ROW]))], "lacks 'c.json'"),
        (
            [symlink("c.json", "/etc/passwd"), E("manifest.json", orjson.dumps([ROW]))],
            "lacks 'c.json'",
        ),
        (
            [E("blobs/sha256/" + "0" * 64, b"other"), E("index.json", b"{}")],
            "unexpected commit digest",
        ),
        ([E("index.json", orjson.dumps({"manifests": []}))], "no complete image"),
        (
            [E("manifest.json", orjson.dumps([{"Config": "c.json", "Layers": []}] * 1001))],
            "more than 1000 images",
        ),
        (
            [
                E(
                    "index.json",
                    orjson.dumps({"manifests": [{"digest": "sha256:../../etc/passwd", "size": 1}]}),
                )
            ],
            "invalid digest",
        ),
    ],
)
def test_archives_that_are_none(store: LocalImageStore, entries: list[E], problem: str) -> None:
    with pytest.raises(ImageError, match=problem):
        load(store, tar(*entries))
    assert store.images() == []


def test_a_folder_becomes_an_image_for_either_system(
    store: LocalImageStore, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    (source / "bin").mkdir(parents=True)
    (source / "bin/app").write_bytes(b"#!/bin/sh")
    (source / "bin/app").chmod(0o755)
    os.link(source / "bin/app", source / "bin/same")
    os.symlink("app", source / "bin/link")
    os.utime(source / "bin/app", (1000, 1000))
    os.utime(source / "bin", (1000, 1000))
    for options, prefix in (
        (ImageOptions(entrypoint=("/bin/app",), user="7", env=("A=b",)), ""),
        (ImageOptions(os="windows", os_version="10.0.20348.587", cmd=("C:\\bin\\app",)), "Files/"),
    ):
        manifest = import_folder(store, source, options)
        assert manifest == import_folder(store, source, options)
        parsed = store.parse(manifest)
        with tarfile.open(
            fileobj=store.content.open(parsed.layers[0].descriptor.digest), mode="r:gz"
        ) as archive:
            info = archive.getmember(f"{prefix}bin/app")
            assert (info.uid, info.mode, info.mtime) == (0, 0o755, 1000)
            assert archive.getmember(f"{prefix}bin/same").islnk()
        store.unpack_here(parsed)
        identity = store.register(manifest, [("docker.io/library/app:1", manifest)], local=True)
        found = store.image(identity)
        assert (
            found is not None and found.os == options.os and found.os_version == options.os_version
        )
        (tree,) = found.layers
        assert (tree / "bin/same").read_bytes() == b"#!/bin/sh" and os.readlink(
            tree / "bin/link"
        ) == "app"
    assert store.find(parse_reference("app:1"), LINUX).config["config"] == {  # type: ignore[union-attr]
        "Entrypoint": ["/bin/app"],
        "User": "7",
        "Env": ["A=b"],
    }
    assert store.find(parse_reference("app:1"), NodePlatform("windows", build=20348)).build == 20348  # type: ignore[union-attr]
    with pytest.raises(ImageError, match="not a folder"):
        import_folder(store, source / "bin/app", ImageOptions())


def test_layers_of_one_image_in_one_archive_may_repeat(
    store: LocalImageStore, tmp_path: Path
) -> None:
    layer = tar(folder("a"))
    found = put(store, image(layer, layer), "twice:1")
    assert len(found.layers) == 2 and len(set(found.layers)) == 2
    assert load(LocalImageStore(tmp_path / "other"), save(store, "twice:1"))[0].identity == found.id
