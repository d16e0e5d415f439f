"""Image archives: reads and writes the formats of `docker save` and OCI layouts as streams.

Written archives are both: an OCI layout, which preserves manifests and so digests, with the
`manifest.json` that docker expects. They never include Windows base layers.
"""

from __future__ import annotations

import io
import posixpath
import tarfile
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO, Final, Literal, NamedTuple

import orjson

from transom.runtime.images import compression, making, model
from transom.runtime.images.model import (
    ContentDescriptor,
    ImageError,
    ImageManifest,
    ImageNotFound,
    StoredImage,
)
from transom.runtime.images.reference import ImageNameError, parse_reference
from transom.runtime.images.store import LocalImageStore
from transom.runtime.images.tarstream import TarStream

_MOST_ENTRIES: Final = 100_000
_MOST_IMAGES: Final = 1000
_NAME: Final = "io.containerd.image.name"
_REF: Final = "org.opencontainers.image.ref.name"
_DEEPEST: Final = 4
_FIXED: Final = ("manifest.json", "index.json", "oci-layout", "repositories")

Format = Literal["docker", "oci"]


class LoadedImage(NamedTuple):
    identity: str
    names: tuple[str, ...]
    platform: str  # windows/amd64/17763


class _Files:
    """The contents of an archive: blobs of the store, by digest; documents are kept unchanged."""

    def __init__(self) -> None:
        self.digests: dict[str, tuple[str, int]] = {}  # path -> digest and size
        self.links: dict[str, str] = {}
        self.documents: dict[str, bytes] = {}

    def find(self, path: str) -> tuple[str, int] | None:
        path = posixpath.normpath(path)
        for _ in range(8):
            if path in self.digests:
                return self.digests[path]
            if path not in self.links:
                return None
            path = self.links[path]
        return None


def load_archive(store: LocalImageStore, source: BinaryIO, name: str = "") -> list[LoadedImage]:
    """Loads all images of an archive into the store, unpacked. `name` is for an image without a
    name. Blocking; the caller is `busy`. Raises ImageError.
    """
    files = _read(store, source)
    if "index.json" in files.documents:
        found = _load_layout(store, files, name)
    elif "manifest.json" in files.documents:
        found = _load_docker(store, files, name)
    else:
        raise ImageError(
            "this is not an archive of images: it has neither manifest.json nor index.json"
        )
    if not found:
        raise ImageError("the archive has no complete image")
    return found


def _read(store: LocalImageStore, source: BinaryIO) -> _Files:
    files = _Files()
    stream = TarStream(compression.pieces(source))
    for count, entry in enumerate(stream):
        if count > _MOST_ENTRIES:
            raise ImageError(f"the archive has more than {_MOST_ENTRIES} entries")
        path = posixpath.normpath(entry.name.decode("utf-8", "replace"))
        if path.startswith(("/", "..")):
            raise ImageError(f"invalid path in the archive: {path[:200]!r}")
        if entry.kind in ("symlink", "hardlink"):
            target = entry.link.decode("utf-8", "replace")
            files.links[path] = posixpath.normpath(
                posixpath.join(posixpath.dirname(path), target)
                if entry.kind == "symlink"
                else target
            )
        if entry.kind != "file" or entry.sparse is not None:
            continue
        if path in _FIXED:
            if entry.size > model.LONGEST_DOCUMENT:
                raise ImageError(f"{path} is larger than {model.LONGEST_DOCUMENT} bytes")
            files.documents[path] = b"".join(stream.data())
            continue
        wanted = f"sha256:{path.rpartition('/')[2]}" if path.startswith("blobs/sha256/") else ""
        if wanted and model.is_digest(wanted) and store.content.has(wanted):
            files.digests[path] = (
                wanted,
                store.content.size(wanted),
            )  # the stream skips unread data
            continue
        with store.content.writer() as writer:
            for piece in stream.data():
                writer.write(piece)
            files.digests[path] = (
                writer.commit(wanted if model.is_digest(wanted) else ""),
                entry.size,
            )
    return files


# ---- OCI layouts ----


def _load_layout(store: LocalImageStore, files: _Files, name: str) -> list[LoadedImage]:
    document = model.load_document(files.documents["index.json"], "index.json")
    docker_names = _docker_names(files)
    found: list[LoadedImage] = []
    for entry in model.parse_index_entries(document, "index.json"):
        names = _names_of(entry.annotations, name)
        for manifest in _manifests(store, entry, _DEEPEST):
            own = docker_names.get(store.parse(manifest).manifest.config.digest, [])
            _check_number(len(found) + 1)
            found.append(_finish(store, manifest, list(dict.fromkeys(names or own)), entry.digest))
    return found


def _names_of(annotations: Mapping[str, str], name: str) -> list[str]:
    """A layout has full names, or only tags, or nothing."""
    full_name = annotations.get(_NAME, "")
    tag = annotations.get(_REF, "")
    if not full_name and ("/" in tag or ":" in tag):
        full_name = tag
    if not full_name and name:
        full_name = f"{name}:{tag}" if tag and ":" not in name.rpartition("/")[2] else name
    if not full_name:
        return []
    try:
        return [str(parse_reference(full_name))]
    except ImageNameError as problem:
        raise ImageError(f"{full_name[:200]!r}: {problem}") from problem


def _manifests(store: LocalImageStore, entry: ContentDescriptor, deepest: int) -> list[str]:
    """The manifests below a descriptor that are complete in the archive or the store."""
    if not store.content.has(entry.digest):
        return []
    document = model.load_document(store.content.read(entry.digest), f"manifest {entry.digest}")
    if model.media_type(document, entry.media_type) in model.INDEXES:
        if not deepest:
            raise ImageError(f"indexes within indexes: {entry.digest}")
        inner = model.parse_index_entries(document, f"index {entry.digest}")
        return [digest for child in inner for digest in _manifests(store, child, deepest - 1)]
    found = model.parse_manifest(document, entry.digest)
    try:
        parsed = store.parse(entry.digest)
    except ImageNotFound:
        return []
    except ImageError:
        if (
            "image.config" in found.config.media_type
            or "container.image" in found.config.media_type
        ):
            raise
        return []  # not an image: an attestation, a chart
    missing = [
        layer
        for layer in parsed.layers
        if not layer.base and not store.content.has(layer.descriptor.digest)
    ]
    return [] if missing else [entry.digest]


# ---- docker save ----


def _docker_rows(files: _Files) -> list[Mapping[str, Any]]:
    try:
        found = orjson.loads(files.documents.get("manifest.json", b"[]"))
    except orjson.JSONDecodeError as problem:
        raise ImageError(f"manifest.json is not JSON: {problem}") from problem
    if not isinstance(found, list) or not all(
        isinstance(row, dict) and isinstance(row.get("Config"), str) for row in found
    ):
        raise ImageError("manifest.json is not a list of images")
    _check_number(len(found))
    return found


def _check_number(images: int) -> None:
    """Each image of an archive is unpacked and registered, also if it is listed many times."""
    if images > _MOST_IMAGES:
        raise ImageError(f"the archive has more than {_MOST_IMAGES} images")


def _docker_names(files: _Files) -> dict[str, list[str]]:
    """By the digest of the configuration."""
    found: dict[str, list[str]] = {}
    for row in _docker_rows(files):
        config = files.find(row["Config"])
        if config is not None:
            found[config[0]] = _tags(row)
    return found


def _tags(row: Mapping[str, Any]) -> list[str]:
    try:
        return [
            str(parse_reference(tag)) for tag in row.get("RepoTags") or () if isinstance(tag, str)
        ]
    except ImageNameError as problem:
        raise ImageError(f"manifest.json: {problem}") from problem


def _load_docker(store: LocalImageStore, files: _Files, name: str) -> list[LoadedImage]:
    found = []
    for row in _docker_rows(files):
        config = files.find(row["Config"])
        if config is None:
            raise ImageError(f"the archive lacks {row['Config'][:200]!r}")
        names = _tags(row) or _names_of({}, name)
        manifest = store.content.put(
            model.encode_document(_docker_manifest(store, files, row, config))
        )
        found.append(_finish(store, manifest, names, manifest))
    return found


def _docker_manifest(
    store: LocalImageStore, files: _Files, row: Mapping[str, Any], config: tuple[str, int]
) -> Mapping[str, Any]:
    """Such archives have no manifests: layers are files, in the order of the configuration."""
    parsed = model.parse_image_configuration(
        model.load_document(store.content.read(config[0]), f"config {config[0]}"), config[0]
    )
    paths, sources = row.get("Layers") or [], row.get("LayerSources") or {}
    if (
        not isinstance(paths, list)
        or not isinstance(sources, dict)
        or len(paths) != len(parsed.diff_ids)
    ):
        raise ImageError(f"mismatched image rootfs and manifest layers of {config[0]}")
    layers = []
    for path, diff_id in zip(paths, parsed.diff_ids, strict=True):
        source, there = sources.get(diff_id), files.find(str(path))
        if source is not None:
            described = model.parse_descriptor(source, "manifest.json")
            if model.is_foreign(described) or there is None or there[0] == described.digest:
                layers.append(described)
                continue
        if there is None:
            raise ImageError(f"the archive lacks {str(path)[:200]!r}")
        packed = _is_packed(store, there[0])
        layers.append(
            ContentDescriptor(model.DOCKER_LAYER if packed else model.DOCKER_LAYER_TAR, *there)
        )
    manifest = ImageManifest(ContentDescriptor(model.DOCKER_CONFIG, *config), tuple(layers))
    for layer in model.layers_of(manifest, parsed):
        if not layer.base and not store.content.has(layer.descriptor.digest):
            raise ImageError(f"the archive lacks the layer {layer.descriptor.digest}")
    return making.make_image_manifest(*manifest)


def _is_packed(store: LocalImageStore, digest: str) -> bool:
    with store.content.open(digest) as file:
        return file.read(2) == b"\x1f\x8b"


def _finish(
    store: LocalImageStore, manifest: str, names: Sequence[str], target: str
) -> LoadedImage:
    parsed = store.parse(manifest)
    store.unpack_here(parsed)
    identity = store.register(manifest, [(name, target) for name in names], local=True)
    own = store.index.state().images[identity].platform
    return LoadedImage(identity, tuple(names), own.key)


# ---- writing ----


def save_archive(
    store: LocalImageStore,
    chosen: Sequence[tuple[StoredImage, str]],
    sink: BinaryIO,
    form: Format = "docker",
) -> None:
    """Writes images, each with the name to save it under (or none), to a stream. Blocking; the
    caller is `busy`.
    """
    if not chosen:
        raise ImageError("there is nothing to save")
    state = store.index.state()
    entries: list[dict[str, Any]] = []
    rows: dict[str, dict[str, Any]] = {}
    blobs: dict[str, None] = {}
    for image, name in chosen:
        target = image.manifest
        if name:
            target = next(
                (m.target for m in state.names.get(name, {}).values() if m.id == image.id), target
            )
            if not _is_above(store, target, image.manifest):
                target = image.manifest
        parsed = store.parse(image.manifest)
        layers = [layer for layer in parsed.layers if not layer.base]
        blobs.update(
            dict.fromkeys(
                (target, image.manifest, image.id, *(layer.descriptor.digest for layer in layers))
            )
        )
        entries.append(_entry(store, target, name))
        row = rows.setdefault(
            image.id,
            {
                "Config": _blob_path(image.id),
                "RepoTags": [],
                "Layers": [_blob_path(layer.descriptor.digest) for layer in parsed.layers],
            },
        )
        if name and "@" not in name:
            row["RepoTags"].append(name)
        sources = {layer.diff_id: layer.descriptor.shown() for layer in parsed.layers}
        if sources:
            row["LayerSources"] = sources
    documents: dict[str, dict[str, Any]] = {
        "oci-layout": {"imageLayoutVersion": "1.0.0"},
        "index.json": {"schemaVersion": 2, "mediaType": model.OCI_INDEX, "manifests": entries},
    }
    with tarfile.open(fileobj=sink, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        for folder in ("blobs", "blobs/sha256"):
            tar.addfile(making.plain_tar_entry(folder, tarfile.DIRTYPE, 0o755))
        for digest in sorted(blobs):
            with store.content.open(digest) as file:
                tar.addfile(
                    making.plain_tar_entry(_blob_path(digest), size=store.content.size(digest)),
                    file,
                )
        for path, document in documents.items():
            _add(tar, path, model.encode_document(document))
        if form == "docker":
            _add(
                tar, "manifest.json", orjson.dumps(list(rows.values()), option=orjson.OPT_SORT_KEYS)
            )


def _entry(store: LocalImageStore, target: str, name: str) -> dict[str, Any]:
    data = store.content.read(target)
    entry = ContentDescriptor(
        model.media_type(model.load_document(data, target)), target, len(data)
    ).shown()
    if name and "@" not in name:
        entry["annotations"] = {_NAME: name, _REF: name.rpartition(":")[2]}
    return entry


def _is_above(store: LocalImageStore, target: str, manifest: str) -> bool:
    """Whether a name's target exists, and is or lists the manifest."""
    if target == manifest:
        return True
    if not store.content.has(target):
        return False
    document = model.load_document(store.content.read(target), target)
    if model.media_type(document) not in model.INDEXES:
        return False
    return any(child.digest == manifest for child in model.parse_index_entries(document, target))


def _blob_path(digest: str) -> str:
    return f"blobs/sha256/{digest.removeprefix('sha256:')}"


def _add(tar: tarfile.TarFile, path: str, data: bytes) -> None:
    tar.addfile(making.plain_tar_entry(path, size=len(data)), io.BytesIO(data))
