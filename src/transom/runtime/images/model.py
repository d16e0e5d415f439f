"""Descriptors, manifests and image configurations, as registries, archives and the store use them.
Data and its validation.

All untrusted documents go through `parse_descriptor`, `parse_manifest` and
`parse_image_configuration`, which raise ImageError for anything invalid; no other module parses
such documents.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import orjson

from transom.kit.lazy_dataclass import dataclass

DOCKER_LIST: Final = "application/vnd.docker.distribution.manifest.list.v2+json"
DOCKER_MANIFEST: Final = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_CONFIG: Final = "application/vnd.docker.container.image.v1+json"
DOCKER_LAYER: Final = "application/vnd.docker.image.rootfs.diff.tar.gzip"
DOCKER_LAYER_TAR: Final = "application/vnd.docker.image.rootfs.diff.tar"
OCI_INDEX: Final = "application/vnd.oci.image.index.v1+json"
OCI_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
SCHEMA1: Final = (
    "application/vnd.docker.distribution.manifest.v1+prettyjws",
    "application/vnd.docker.distribution.manifest.v1+json",
)
INDEXES: Final = (DOCKER_LIST, OCI_INDEX)
MANIFESTS: Final = (DOCKER_MANIFEST, OCI_MANIFEST)

LONGEST_DOCUMENT: Final = 8 << 20  # of manifests and configurations
_MOST_LAYERS: Final = 500  # overlayfs takes as many
_DIGEST: Final = re.compile(r"sha256:[a-f0-9]{64}")
# How the history of Windows base images records its first steps: the system itself, then its
# updates.
_WINDOWS_BASE: Final = ("Apply image ", "Install update ")


class ImageError(Exception):
    """An image operation failed. `code` is the gRPC code, `str()` containerd's text without its
    prefix.
    """

    def __init__(self, text: str, code: str = "Unknown") -> None:
        super().__init__(text)
        self.code = code


class ImageNotFound(ImageError):
    def __init__(self, text: str) -> None:
        super().__init__(f"{text}: not found", "NotFound")


class NoMatchingPlatform(ImageNotFound):
    """The image exists, but not for the node's operating system, processor or build."""

    def __init__(self) -> None:
        super().__init__("no match for platform in manifest")


class ContentDescriptor(NamedTuple):
    media_type: str
    digest: str
    size: int
    urls: tuple[str, ...] = ()
    platform: Mapping[str, Any] | None = None
    annotations: Mapping[str, str] = {}  # immutable

    @property
    def hex(self) -> str:
        return self.digest[7:]

    def shown(self) -> dict[str, Any]:
        """As written in a manifest."""
        found: dict[str, Any] = {
            "mediaType": self.media_type,
            "digest": self.digest,
            "size": self.size,
        }
        if self.urls:
            found["urls"] = list(self.urls)
        if self.annotations:
            found["annotations"] = dict(self.annotations)
        if self.platform:
            found["platform"] = dict(self.platform)
        return found


class ImageManifest(NamedTuple):
    config: ContentDescriptor
    layers: tuple[ContentDescriptor, ...]


class ImageLayer(NamedTuple):
    """A layer of an image: what is downloaded, and its identity when unpacked on those below it."""

    descriptor: ContentDescriptor
    diff_id: str
    chain_id: str
    base: bool  # a part of Windows itself, which Wine replaces: never downloaded, never unpacked


class ImageConfiguration(NamedTuple):
    os: str
    architecture: str
    variant: str
    os_version: str
    diff_ids: tuple[str, ...]
    document: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StoredImage:
    """An image in the store, for one platform. Read-only."""

    id: str  # sha256:..., the digest of its configuration
    tags: tuple[str, ...]  # docker.io/library/nginx:latest
    digests: tuple[str, ...]  # docker.io/library/nginx@sha256:...
    size: int  # of all its blobs, as containerd counts
    config: Mapping[str, Any]  # the whole OCI image configuration
    layers: tuple[Path, ...]  # directories, lowest first. Windows itself is not included
    os: str
    architecture: str
    os_version: str  # 10.0.17763.1697; empty on Linux
    manifest: str  # digest
    created: float  # when it was added to the store

    @property
    def build(self) -> int:
        return windows_build_number(self.os_version)


Step = Literal["resolved", "exists", "downloading", "downloaded", "extracting", "extracted", "done"]


class PullProgress(NamedTuple):
    """Progress of a pull. `digest` is empty for the image as a whole; `done` and `total` are
    bytes.
    """

    step: Step
    digest: str
    done: int = 0
    total: int = 0


ReportPull = Callable[[PullProgress], None]


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def is_digest(value: object) -> bool:
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None


def windows_build_number(os_version: str) -> int:
    """10.0.17763.1697 -> 17763; 0 when it has no build."""
    parts = os_version.split(".")
    return int(parts[2]) if len(parts) >= 3 and parts[2].isascii() and parts[2].isdigit() else 0


def encode_document(document: Mapping[str, Any]) -> bytes:
    """Deterministic: the same bytes for the same document."""
    return orjson.dumps(document, option=orjson.OPT_SORT_KEYS)


def load_document(data: bytes, what: str) -> dict[str, Any]:
    if len(data) > LONGEST_DOCUMENT:
        raise ImageError(f"{what} is larger than {LONGEST_DOCUMENT} bytes")
    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError as problem:
        raise ImageError(f"{what} is not JSON: {problem}") from problem
    if not isinstance(found, dict):
        raise ImageError(f"{what} is not an object")
    return found


def parse_descriptor(raw: object, what: str) -> ContentDescriptor:
    if not isinstance(raw, dict):
        raise ImageError(f"{what} has no descriptor")
    digest, size, kind, urls = (
        raw.get("digest"),
        raw.get("size"),
        raw.get("mediaType"),
        raw.get("urls"),
    )
    if not is_digest(digest):
        raise ImageError(f"{what}: invalid digest {str(digest)[:200]!r}")
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise ImageError(f"{what}: invalid size of {digest}")
    platform, annotations = raw.get("platform"), raw.get("annotations")
    return ContentDescriptor(
        kind if isinstance(kind, str) else "",
        str(digest),
        size,
        tuple(url for url in urls if isinstance(url, str)) if isinstance(urls, list) else (),
        platform if isinstance(platform, dict) else None,
        {k: v for k, v in annotations.items() if isinstance(v, str)}
        if isinstance(annotations, dict)
        else {},
    )


def media_type(document: Mapping[str, Any], declared: str = "") -> str:
    """The media type of a manifest: from its own field, its content type, or its structure."""
    kind = document.get("mediaType")
    if isinstance(kind, str) and kind:
        return kind
    if document.get("schemaVersion") == 1:
        return SCHEMA1[0]
    if declared in (*INDEXES, *MANIFESTS, *SCHEMA1):
        return declared
    return (
        OCI_INDEX if "manifests" in document else OCI_MANIFEST if "layers" in document else declared
    )


def parse_index_entries(document: Mapping[str, Any], what: str) -> list[ContentDescriptor]:
    """The entries of a manifest list or index."""
    found = document.get("manifests")
    if not isinstance(found, list):
        raise ImageError(f"{what} lists no manifests")
    return [parse_descriptor(raw, what) for raw in found]


def parse_manifest(document: Mapping[str, Any], what: str) -> ImageManifest:
    kind = media_type(document)
    refuse_schema1(kind)
    if kind not in MANIFESTS:
        raise ImageNotFound(f"unexpected media type {kind} for {what}")
    layers = document.get("layers")
    if layers is None:
        layers = []
    if not isinstance(layers, list) or len(layers) > _MOST_LAYERS:
        raise ImageError(f"manifest {what} has no list of at most {_MOST_LAYERS} layers")
    return ImageManifest(
        parse_descriptor(document.get("config"), f"manifest {what}"),
        tuple(parse_descriptor(raw, f"manifest {what}") for raw in layers),
    )


def refuse_schema1(kind: str) -> None:
    if kind in SCHEMA1:
        raise ImageError(
            f'media type "{kind}" is no longer supported, please rebuild the image as '
            f'"{DOCKER_MANIFEST}" '
            f'or "{OCI_MANIFEST}": not implemented',
            "Unimplemented",
        )


def parse_image_configuration(document: Mapping[str, Any], what: str) -> ImageConfiguration:
    """The configuration of an image. Fields that runtimes rely on must have the right types."""
    rootfs, own = document.get("rootfs"), document.get("config")
    diff_ids = rootfs.get("diff_ids") if isinstance(rootfs, dict) else None
    if diff_ids is None:
        diff_ids = []
    if not isinstance(diff_ids, list) or not all(map(is_digest, diff_ids)):
        raise ImageError(f"config {what}: invalid rootfs.diff_ids")
    if own is not None and not isinstance(own, dict):
        raise ImageError(f"config {what}: config is not an object")
    for key in ("Entrypoint", "Cmd", "Env"):
        value = (own or {}).get(key)
        if value is not None and not (
            isinstance(value, list) and all(isinstance(item, str) for item in value)
        ):
            raise ImageError(f"config {what}: {key} is not a list of strings")
    for key in ("User", "WorkingDir", "StopSignal"):
        if not isinstance((own or {}).get(key) or "", str):
            raise ImageError(f"config {what}: {key} is not a string")
    texts = {}
    for key in ("os", "architecture", "variant", "os.version"):
        value = document.get(key) or ""
        if not isinstance(value, str):
            raise ImageError(f"config {what}: {key} is not a string")
        texts[key] = value
    return ImageConfiguration(
        texts["os"].lower(),
        texts["architecture"].lower(),
        texts["variant"].lower(),
        texts["os.version"],
        tuple(diff_ids),
        document,
    )


def layers_of(found: ImageManifest, config: ImageConfiguration) -> tuple[ImageLayer, ...]:
    """The layers with their ids; raises ImageError when manifest and configuration do not match."""
    if len(found.layers) != len(config.diff_ids):
        raise ImageError(
            f"mismatched image rootfs and manifest layers: {len(config.diff_ids)} != "
            f"{len(found.layers)}"
        )
    base = _base_steps(config)
    made, chain = [], ""
    for i, (blob, diff_id) in enumerate(zip(found.layers, config.diff_ids, strict=True)):
        chain = chain_id(chain, diff_id)
        made.append(ImageLayer(blob, diff_id, chain, is_foreign(blob) or i < base))
    return tuple(made)


def chain_id(below: str, diff_id: str) -> str:
    return digest_of(f"{below} {diff_id}".encode()) if below else diff_id


def is_foreign(blob: ContentDescriptor) -> bool:
    """Whether registries do not serve it: Windows' base layers are distributed separately for
    licence reasons.
    """
    return bool(blob.urls) or "foreign" in blob.media_type or "nondistributable" in blob.media_type


def _base_steps(config: ImageConfiguration) -> int:
    """How many of the lowest layers are Windows itself. Newer base images do not mark them, but
    their history shows it.
    """
    history: object = config.document.get("history")
    if config.os != "windows" or not isinstance(history, list):
        return 0
    steps = [step for step in history if isinstance(step, dict) and not step.get("empty_layer")]
    count = 0
    for step in steps:
        if not str(step.get("created_by") or "").startswith(_WINDOWS_BASE):
            break
        count += 1
    return count


def parse_exposed_ports(exposed: Sequence[str]) -> dict[str, dict[str, Any]]:
    return {port if "/" in port else f"{port}/tcp": {} for port in exposed}
