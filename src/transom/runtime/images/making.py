"""Builds new images: reproducible archives of files, and the documents around them."""

from __future__ import annotations

import gzip
import hashlib
import tarfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from transom.runtime.images.content import BlobStore
from transom.runtime.images.model import (
    DOCKER_CONFIG,
    DOCKER_LAYER,
    DOCKER_LAYER_TAR,
    DOCKER_MANIFEST,
    ContentDescriptor,
    digest_of,
    encode_document,
    parse_exposed_ports,
)

EPOCH: Final = "1970-01-01T00:00:00Z"


class ImageOptions(NamedTuple):
    """The specification of a new image."""

    os: str = "linux"
    architecture: str = "amd64"
    variant: str = ""
    os_version: str = ""
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    user: str = ""
    working_dir: str = ""
    ports: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    stop_signal: str = ""
    created: str = EPOCH
    comment: str = ""  # how it was made, for the history


class NewLayer(NamedTuple):
    digest: str
    size: int
    diff_id: str
    media_type: str = DOCKER_LAYER


def make_image_configuration(options: ImageOptions, diff_ids: Sequence[str]) -> dict[str, Any]:
    own: dict[str, Any] = {}
    for key, value in (
        ("Entrypoint", list(options.entrypoint)),
        ("Cmd", list(options.cmd)),
        ("Env", list(options.env)),
        ("User", options.user),
        ("WorkingDir", options.working_dir),
        ("ExposedPorts", parse_exposed_ports(options.ports)),
        ("Labels", dict(options.labels)),
        ("StopSignal", options.stop_signal),
    ):
        if value:
            own[key] = value
    found: dict[str, Any] = {
        "architecture": options.architecture,
        "os": options.os,
        "created": options.created,
        "config": own,
        "rootfs": {"type": "layers", "diff_ids": list(diff_ids)},
        "history": [
            {"created": options.created, "created_by": options.comment, "empty_layer": not diff_ids}
        ],
    }
    if options.variant:
        found["variant"] = options.variant
    if options.os_version:
        found["os.version"] = options.os_version
    return found


def write_image(content: BlobStore, options: ImageOptions, layers: Sequence[NewLayer]) -> str:
    """Writes the image's documents; returns the digest of its manifest. Blocking."""
    config = encode_document(make_image_configuration(options, [layer.diff_id for layer in layers]))
    content.put(config)
    document = make_image_manifest(
        ContentDescriptor(DOCKER_CONFIG, digest_of(config), len(config)),
        [ContentDescriptor(layer.media_type, layer.digest, layer.size) for layer in layers],
    )
    return content.put(encode_document(document))


def make_image_manifest(
    config: ContentDescriptor, layers: Sequence[ContentDescriptor]
) -> Mapping[str, Any]:
    return {
        "schemaVersion": 2,
        "mediaType": DOCKER_MANIFEST,
        "config": config.shown(),
        "layers": [layer.shown() for layer in layers],
    }


class _Sink:
    """The output of an archive, hashed as it is written. Implements the part of a file that tarfile
    and gzip use.
    """

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._hash = hashlib.sha256()
        self._write = write

    def write(self, data: Any) -> int:
        piece = bytes(data)
        self._hash.update(piece)
        self._write(piece)
        return len(piece)

    def flush(self) -> None:
        return

    @property
    def digest(self) -> str:
        return f"sha256:{self._hash.hexdigest()}"


def write_layer(
    content: BlobStore, fill: Callable[[tarfile.TarFile], None], *, packed: bool = True
) -> NewLayer:
    """Creates a layer in the store from what `fill` adds. The same files give the same bytes with
    the same zlib. Blocking.
    """
    with content.writer() as writer:
        if not packed:
            diff_id = _write_archive(fill, writer.write)
        else:
            with gzip.GzipFile(
                filename="", mode="wb", compresslevel=6, fileobj=_Sink(writer.write), mtime=0
            ) as compressed:
                diff_id = _write_archive(fill, compressed.write)
        size = writer.offset
        return NewLayer(
            writer.commit(), size, diff_id, DOCKER_LAYER if packed else DOCKER_LAYER_TAR
        )


def _write_archive(
    fill: Callable[[tarfile.TarFile], None], write: Callable[[bytes], object]
) -> str:
    """Its digest."""
    sink: Any = _Sink(write)
    # PAX is the only format that can represent every name, size and time.
    with tarfile.open(
        fileobj=sink, mode="w|", format=tarfile.PAX_FORMAT, errors="surrogateescape"
    ) as tar:
        fill(tar)
    digest: str = sink.digest
    return digest


def plain_tar_entry(
    name: str, kind: bytes = tarfile.REGTYPE, mode: int = 0o644, size: int = 0, link: str = ""
) -> tarfile.TarInfo:
    """An entry owned by root, with time 0."""
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.size, info.linkname = kind, mode, size, link
    info.uname = info.gname = "root"
    return info
