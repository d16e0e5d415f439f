"""Layers and images for tests, from short descriptions."""

from __future__ import annotations

import gzip
import io
import tarfile
from typing import Any, NamedTuple

from transom.runtime.images import model
from transom.runtime.images.model import digest_of, encode_document

TYPES = {
    "file": tarfile.REGTYPE,
    "dir": tarfile.DIRTYPE,
    "symlink": tarfile.SYMTYPE,
    "hardlink": tarfile.LNKTYPE,
    "char": tarfile.CHRTYPE,
    "block": tarfile.BLKTYPE,
    "fifo": tarfile.FIFOTYPE,
}


class E(NamedTuple):
    """An entry of an archive."""

    name: str
    data: bytes = b""
    kind: str = "file"
    link: str = ""
    mode: int = 0
    uid: int = 0
    gid: int = 0
    device: tuple[int, int] = (0, 0)
    pax: dict[str, str] = {}
    mtime: int = 1_500_000_000


def folder(name: str, mode: int = 0o755, **more: Any) -> E:
    return E(name, kind="dir", mode=mode, **more)


def symlink(name: str, target: str) -> E:
    return E(name, kind="symlink", link=target)


def hardlink(name: str, target: str) -> E:
    return E(name, kind="hardlink", link=target)


def tar(*entries: E, form: int = tarfile.PAX_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as archive:
        for entry in entries:
            info = tarfile.TarInfo(entry.name)
            info.type, info.linkname, info.size = TYPES[entry.kind], entry.link, len(entry.data)
            info.mode = entry.mode or (0o755 if entry.kind == "dir" else 0o644)
            info.uid, info.gid, info.mtime = entry.uid, entry.gid, entry.mtime
            info.devmajor, info.devminor = entry.device
            info.pax_headers = dict(entry.pax)
            archive.addfile(info, io.BytesIO(entry.data))
    return out.getvalue()


class Built(NamedTuple):
    """An image as a registry has it."""

    manifest: bytes
    config: bytes
    layers: tuple[bytes, ...]

    @property
    def digest(self) -> str:
        return digest_of(self.manifest)

    @property
    def id(self) -> str:
        return digest_of(self.config)

    @property
    def blobs(self) -> dict[str, bytes]:
        return {digest_of(data): data for data in (self.config, *self.layers)}


def image(
    *layers: bytes,
    os: str = "linux",
    architecture: str = "amd64",
    version: str = "",
    oci: bool = False,
    foreign: int = 0,
    history: list[dict[str, Any]] | None = None,
    **config: Any,
) -> Built:
    """Of tar archives. The first `foreign` layers are Windows' own, as older base images mark
    them.
    """
    packed = tuple(gzip.compress(layer, mtime=0) for layer in layers)
    document: dict[str, Any] = {
        "os": os,
        "architecture": architecture,
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": list(map(digest_of, layers))},
    }
    if version:
        document["os.version"] = version
    if history:
        document["history"] = history
    recorded = encode_document(document)
    kind = "application/vnd.oci.image.layer.v1.tar+gzip" if oci else model.DOCKER_LAYER
    rows: list[dict[str, Any]] = []
    for i, layer in enumerate(packed):
        row: dict[str, Any] = {"mediaType": kind, "digest": digest_of(layer), "size": len(layer)}
        if i < foreign:
            row |= {
                "mediaType": "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip",
                "urls": ["https://example.invalid/x"],
            }
        rows.append(row)
    manifest = encode_document(
        {
            "schemaVersion": 2,
            "mediaType": model.OCI_MANIFEST if oci else model.DOCKER_MANIFEST,
            "config": {
                "mediaType": "application/vnd.oci.image.config.v1+json"
                if oci
                else model.DOCKER_CONFIG,
                "digest": digest_of(recorded),
                "size": len(recorded),
            },
            "layers": rows,
        }
    )
    return Built(manifest, recorded, packed)


def index(*rows: tuple[Built, dict[str, Any] | None], kind: str = model.DOCKER_LIST) -> bytes:
    found = []
    for built, platform in rows:
        row: dict[str, Any] = {
            "mediaType": model.DOCKER_MANIFEST,
            "digest": built.digest,
            "size": len(built.manifest),
        }
        if platform is not None:
            row["platform"] = platform
        found.append(row)
    return encode_document({"schemaVersion": 2, "mediaType": kind, "manifests": found})
