"""Images on disk, shared by all nodes and clusters of a machine: blobs, names, unpacked layers,
leases.

    FOLDER/blobs/sha256/HEX     content, verified and synced before it has that name
    FOLDER/ingest/              content being written
    FOLDER/layers/HEX/          a layer's own files, by chain id, as a lower directory of an overlay; HEX.json describes them
    FOLDER/index.json           names
    FOLDER/leases/              the owners of images
    FOLDER/busy.lock            shared while images are added, exclusive while garbage is removed

Any process may die at any moment: complete content gets its name by a rename, `sweep` removes the
rest.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import secrets
import shutil
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import orjson

from transom.kit.clock import Clock, RealClock
from transom.kit.files import write_atomic
from transom.runtime.images import layers as layer_archives
from transom.runtime.images import locks, model
from transom.runtime.images.content import BlobStore
from transom.runtime.images.index import ImageIndex, ImageIndexState, IndexedImage, NameMeaning
from transom.runtime.images.leases import ImageLease, ImageLeases
from transom.runtime.images.model import (
    ImageConfiguration,
    ImageError,
    ImageLayer,
    ImageManifest,
    ImageNotFound,
    PullProgress,
    ReportPull,
    StoredImage,
)
from transom.runtime.images.platforms import NodePlatform, platform_of_image
from transom.runtime.images.reference import ImageReference

_HALF_DAY: Final = 12 * 3600.0  # how long a partial download is kept


class ParsedImage(NamedTuple):
    """An image's documents."""

    manifest: ImageManifest
    config: ImageConfiguration
    layers: tuple[ImageLayer, ...]
    size: int


class SweptContent(NamedTuple):
    freed: int
    busy: bool = False  # pulls are in progress, so nothing was removed


class LocalImageStore:
    def __init__(
        self,
        folder: Path,
        *,
        clock: Clock | None = None,
        limits: layer_archives.LayerLimits | None = None,
    ) -> None:
        self.folder = folder
        self.content = BlobStore(folder)
        self.index = ImageIndex(folder)
        self.leases = ImageLeases(folder)
        self.clock = clock or RealClock()
        self._limits = limits or layer_archives.LayerLimits()
        self._layers = folder / "layers"
        self._locks = folder / "locks"
        self._busy = folder / "busy.lock"
        self._parsed: dict[str, ParsedImage] = {}
        self._layer_sizes: dict[str, int] = {}
        self._views: tuple[ImageIndexState, dict[str, StoredImage]] = (
            ImageIndexState(),
            {},
        )  # valid as long as the index does not change
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.content.prepare()
        for place in (self._layers, self._locks, self.leases.folder):
            place.mkdir(exist_ok=True, mode=0o700)

    # ---- locks ----

    def busy(self) -> AbstractAsyncContextManager[None]:
        """While this is held, unreferenced content is not removed."""
        return locks.wait_for_lock(self._busy, shared=True)

    @contextmanager
    def busy_here(self) -> Iterator[None]:
        """The same for a thread."""
        with locks.hold_lock(self._busy, shared=True):
            yield

    @asynccontextmanager
    async def fetching(self, digest: str) -> AsyncIterator[None]:
        """One download of a blob at a time, on the whole machine."""
        async with locks.wait_for_lock(self._locks / f"{digest.removeprefix('sha256:')}.fetch"):
            yield

    # ---- lookup ----

    def parse(self, manifest_digest: str) -> ParsedImage:
        """An image's documents, from the store; raises ImageError when they are invalid or
        missing.
        """
        known = self._parsed.get(manifest_digest)
        if known is None:
            raw = self.content.read(manifest_digest)
            found = model.parse_manifest(
                model.load_document(raw, f"manifest {manifest_digest}"), manifest_digest
            )
            config_bytes = self.content.read(found.config.digest)
            config = model.parse_image_configuration(
                model.load_document(config_bytes, f"config {found.config.digest}"),
                found.config.digest,
            )
            layers = model.layers_of(found, config)
            size = (
                len(raw)
                + len(config_bytes)
                + sum(layer.descriptor.size for layer in layers if not layer.base)
            )
            known = self._parsed[manifest_digest] = ParsedImage(found, config, layers, size)
        return known

    def image(self, identity: str, state: ImageIndexState | None = None) -> StoredImage | None:
        state = state or self.index.state()
        if self._views[0] is not state:
            self._views = (state, {})
        known = self._views[1].get(identity)
        row = state.images.get(identity)
        if known is None and row is not None:
            known = self._views[1][identity] = self._view(identity, row, state)
        return known

    def _view(self, identity: str, row: IndexedImage, state: ImageIndexState) -> StoredImage:
        parsed = self.parse(row.manifest)
        tags, digests = [], []
        for name, meaning in state.named(identity):
            if "@" in name:
                digests.append(name)
                continue
            tags.append(name)
            digest = f"{name.rpartition(':')[0]}@{meaning.target}"
            if digest not in digests:
                digests.append(digest)
        config = parsed.config
        return StoredImage(
            identity,
            tuple(tags),
            tuple(dict.fromkeys(digests)),
            parsed.size,
            config.document,
            tuple(self.layer_folder(layer.chain_id) for layer in parsed.layers if not layer.base),
            config.os or "linux",
            config.architecture or "amd64",
            config.os_version,
            row.manifest,
            row.created,
        )

    def find(self, reference: ImageReference, platform: NodePlatform) -> StoredImage | None:
        state = self.index.state()
        meaning = state.find(str(reference), platform)
        return self.image(meaning.id, state) if meaning else None

    def images(self) -> list[StoredImage]:
        state = self.index.state()
        return [
            found for identity in state.images if (found := self.image(identity, state)) is not None
        ]

    def layer_folder(self, chain_id: str) -> Path:
        return self._layers / chain_id.removeprefix("sha256:")

    # ---- adding ----

    def register(
        self,
        manifest_digest: str,
        names: Iterable[tuple[str, str]],
        platform: NodePlatform | None = None,
        *,
        local: bool = False,
    ) -> str:
        """Adds names to an image whose blobs are complete, each with the digest that it was
        resolved to. `platform` is that of the requesting node. Returns the image's id. Blocking;
        the caller is `busy`.
        """
        parsed = self.parse(manifest_digest)
        identity = parsed.manifest.config.digest
        own = platform_of_image(parsed.config)

        def add(state: ImageIndexState) -> None:
            row = state.images.get(identity)
            if row is None:
                state.images[identity] = IndexedImage(manifest_digest, self.clock.time(), own)
            for name, target in names:
                state.add(name, platform or own, NameMeaning(identity, target, local))

        self.index.change(add)
        self.touch(identity)
        return identity

    def touch(self, identity: str) -> None:
        """Records that it was used."""
        now = self.clock.time()
        with contextlib.suppress(FileNotFoundError):
            os.utime(self.content.path(identity), (now, now))

    def last_used(self, identity: str) -> float:
        try:
            return self.content.path(identity).stat().st_mtime
        except FileNotFoundError:
            return 0.0

    # ---- layers ----

    async def unpack(
        self, parsed: ParsedImage, number: int, report_progress: ReportPull | None = None
    ) -> None:
        """Unpacks one layer; those below must be unpacked already. The caller is `busy`."""
        layer = parsed.layers[number]
        if layer.base or self.layer_folder(layer.chain_id).exists():
            return
        async with locks.wait_for_lock(self._locks / f"{layer.chain_id[7:]}.unpack"):
            if self.layer_folder(layer.chain_id).exists():
                return
            if report_progress is not None:
                report_progress(
                    PullProgress("extracting", layer.descriptor.digest, 0, layer.descriptor.size)
                )
            await asyncio.to_thread(self._unpack, parsed, number)
            if report_progress is not None:
                report_progress(
                    PullProgress(
                        "extracted",
                        layer.descriptor.digest,
                        layer.descriptor.size,
                        layer.descriptor.size,
                    )
                )

    def unpack_here(self, parsed: ParsedImage) -> None:
        """Unpacks all layers, in this thread."""
        for number, layer in enumerate(parsed.layers):
            if not layer.base and not self.layer_folder(layer.chain_id).exists():
                with locks.hold_lock(self._locks / f"{layer.chain_id[7:]}.unpack"):
                    if not self.layer_folder(layer.chain_id).exists():
                        self._unpack(parsed, number)

    def _unpack(self, parsed: ParsedImage, number: int) -> None:
        layer = parsed.layers[number]
        below = [
            self.layer_folder(other.chain_id) for other in parsed.layers[:number] if not other.base
        ]
        folder, new = (
            self.layer_folder(layer.chain_id),
            self._layers / f".new-{secrets.token_hex(8)}",
        )
        new.mkdir(mode=0o755)
        os.chmod(new, 0o755)  # whatever the umask: it is the container's root folder
        try:
            with self.content.open(layer.descriptor.digest) as source:
                done = layer_archives.apply_layer(
                    source,
                    new,
                    below,
                    os_name=parsed.config.os,
                    packed=layer.descriptor.size,
                    diff_id=layer.diff_id,
                    limits=self._limits,
                )
            _sync_filesystem(new)
            layer_record = {
                "diffId": done.diff_id,
                "size": done.size,
                "whiteouts": done.whiteouts,
                "opaque": done.opaque,
                "marked": done.marked,
            }
            write_atomic(
                self._layer_facts(folder.name), orjson.dumps(layer_record), sync_name=False
            )
            try:
                os.rename(new, folder)
            except OSError:
                if not folder.exists():
                    raise
                remove_image_tree(new)  # another process was faster
        except ImageError as problem:
            remove_image_tree(new)
            raise ImageError(
                f"failed to extract layer {layer.diff_id}: {problem}: unknown"
            ) from problem
        except OSError as problem:
            remove_image_tree(new)
            why = os.strerror(problem.errno).lower() if problem.errno else str(problem)
            raise ImageError(
                f"failed to extract layer {layer.diff_id}: {why}: unknown"
            ) from problem
        except BaseException:
            remove_image_tree(new)
            raise

    def _layer_facts(self, name: str) -> Path:
        return self._layers / f"{name}.json"

    # ---- leases ----

    def lease(self, identity: str, owner: str, keeper: Path | None = None) -> None:
        """Keeps the image's layers until `release`, or until `keeper` is gone. Durable; a second
        lease of the same owner replaces the first.
        """
        with locks.hold_lock(self.index.lock):
            row = self.index.state().images.get(identity)
            if row is None:
                raise ImageNotFound(f'image "{identity}"')
            self.leases.add(
                ImageLease(identity, row.manifest, owner, str(keeper) if keeper else "")
            )
        self.touch(identity)

    def release(self, owner: str) -> None:
        self.leases.drop(owner)

    def in_use(self) -> dict[str, list[str]]:
        """Owners of leases, by image."""
        found: dict[str, list[str]] = {}
        for lease in self.leases.live():
            found.setdefault(lease.image, []).append(lease.owner)
        return found

    # ---- removing ----

    def remove(self, identity: str, *, force: bool = False) -> bool:
        """Removes the image with all its names; returns False and does nothing when a container
        needs it. The next `sweep` frees its bytes. Blocking.
        """
        removed = True

        def drop(state: ImageIndexState) -> None:
            nonlocal removed
            if not force and identity in self.in_use():
                removed = False
            else:
                state.drop(identity)

        self.index.change(drop)
        return removed

    def untag(self, name: str, identity: str) -> None:
        self.index.change(lambda state: state.drop_name(name, identity))

    def sweep(self) -> SweptContent:
        """Removes everything that no name and no lease refers to. Blocking."""
        with locks.try_lock(self._busy) as alone:
            if not alone:
                return SweptContent(0, True)
            with locks.hold_lock(self.index.lock):
                state = self.index.state()
                blobs, chains = self._referred(state)
            freed = sum(
                self.content.remove(digest)
                for digest in list(self.content.digests())
                if digest not in blobs
            )
            freed += self._sweep_layers(chains) + self._sweep_ingest()
            for path in list(self._locks.iterdir()):
                path.unlink(missing_ok=True)
            return SweptContent(freed)

    def _referred(self, state: ImageIndexState) -> tuple[set[str], set[str]]:
        blobs: set[str] = set()
        chains: set[str] = set()
        manifests = {row.manifest for row in state.images.values()}
        manifests.update(lease.manifest for lease in self.leases.live())
        blobs.update(
            meaning.target for meanings in state.names.values() for meaning in meanings.values()
        )
        for manifest in manifests:
            try:
                parsed = self.parse(manifest)
            except ImageNotFound:
                continue
            blobs.update((manifest, parsed.manifest.config.digest))
            blobs.update(layer.descriptor.digest for layer in parsed.layers)
            chains.update(layer.chain_id.removeprefix("sha256:") for layer in parsed.layers)
        return blobs, chains

    def _sweep_layers(self, wanted: set[str]) -> int:
        freed = 0
        for path in list(self._layers.iterdir()):
            if path.suffix == ".json" or (path.name in wanted and path.is_dir()):
                continue
            freed += self._layer_size(path.name)
            old = (
                path
                if path.name.startswith(".")
                else path.rename(self._layers / f".old-{secrets.token_hex(8)}")
            )
            remove_image_tree(old)
            self._layer_facts(path.name).unlink(missing_ok=True)
        for path in list(self._layers.glob("*.json")):
            if not (self._layers / path.stem).exists():
                path.unlink(missing_ok=True)
        return freed

    def _sweep_ingest(self) -> int:
        freed, now = 0, self.clock.time()
        for path in list(self.content.ingest.iterdir()):
            found = path.stat()
            if path.suffix != ".part" or now - found.st_mtime > _HALF_DAY:
                path.unlink(missing_ok=True)
                freed += found.st_size
        return freed

    # ---- usage ----

    def usage(self) -> tuple[int, int]:
        """Bytes and files, without walking the trees."""
        size = count = 0
        for place in (self.content.blobs, self.content.ingest):
            with os.scandir(place) as found:
                for entry in found:
                    with contextlib.suppress(FileNotFoundError):
                        size += entry.stat().st_size
                        count += 1
        with os.scandir(self._layers) as found:
            for entry in found:
                if not entry.name.startswith(".") and not entry.name.endswith(".json"):
                    size += self._layer_size(entry.name)
                    count += 1
        return size, count

    def _layer_size(self, name: str) -> int:
        known = self._layer_sizes.get(name)
        if known is None:
            try:
                known = int(orjson.loads(self._layer_facts(name).read_bytes())["size"])
            except FileNotFoundError:
                return 0
            self._layer_sizes[name] = known
        return known


def remove_image_tree(path: Path) -> None:
    """Also handles directories without permissions."""

    def open_up(function: object, place: str, _: object) -> None:
        os.chmod(os.path.dirname(place), 0o700)
        if os.path.isdir(place) and not os.path.islink(place):
            os.chmod(place, 0o700)
            shutil.rmtree(place, ignore_errors=True)
        else:
            os.unlink(place)

    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, onerror=open_up)
    else:
        path.unlink(missing_ok=True)


def _sync_filesystem(folder: Path) -> None:
    """Makes a tree of many files durable before its name is; one call for all of them."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
        if syncfs is None:
            os.sync()
        elif syncfs(descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    finally:
        os.close(descriptor)
