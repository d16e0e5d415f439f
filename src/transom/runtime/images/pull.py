"""Pulls an image by name into the store and unpacks it.

Three layers are downloaded at a time and unpacked in order as they arrive. After a lost connection,
the next request resumes the download.
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
from contextlib import suppress
from typing import Final, Literal

from transom.runtime.images import model, platforms
from transom.runtime.images.content import BlobWriter
from transom.runtime.images.model import (
    ContentDescriptor,
    ImageConfiguration,
    ImageError,
    ImageManifest,
    ImageNotFound,
    NoMatchingPlatform,
    PullProgress,
    ReportPull,
)
from transom.runtime.images.platforms import NodePlatform
from transom.runtime.images.reference import ImageReference
from transom.runtime.images.registry import (
    BadRange,
    RegistryClient,
    RegistryTemporaryError,
    RegistryUnreachable,
)
from transom.runtime.images.store import LocalImageStore

_AT_ONCE: Final = 3
_MOST_FAILURES: Final = 5  # in a row, without any progress
_DEEPEST: Final = 4  # nested indexes
_FIRST_WAIT: Final = 0.2
_NEWS_BYTES: Final = 1 << 20  # between two progress reports of a download


async def pull_image(
    store: LocalImageStore,
    registry: RegistryClient,
    reference: ImageReference,
    platform: NodePlatform,
    report_progress: ReportPull | None = None,
) -> str:
    """Returns the image's id. Raises ImageError. The caller is `busy`."""
    pulling = _Pull(store, registry, platform, report_progress or (lambda _: None))
    target = await registry.resolve()  # not retried without a response: kubelets do that
    # before its digest is checked, which is not that of its bytes
    model.refuse_schema1(target.media_type)
    pulling.report_progress(PullProgress("resolved", target.digest, 0, target.size))
    found, manifest, config = await pulling.choose(target)
    pulling.check_system(config)
    await pulling.layers(manifest, config, found.digest)
    names = [f"{reference.repository}@{target.digest}"]
    if not reference.digest:
        names.append(str(reference))
    identity = await asyncio.to_thread(
        store.register, found.digest, [(name, target.digest) for name in names], platform
    )
    pulling.report_progress(PullProgress("done", "", 0, 0))
    return identity


class _Pull:
    def __init__(
        self,
        store: LocalImageStore,
        registry: RegistryClient,
        platform: NodePlatform,
        report_progress: ReportPull,
    ) -> None:
        self._store = store
        self._registry = registry
        self._platform = platform
        self.report_progress = report_progress
        self._random = random.Random()

    # ---- documents ----

    async def choose(
        self, target: ContentDescriptor
    ) -> tuple[ContentDescriptor, ImageManifest, ImageConfiguration]:
        """The manifest for this node, and its image's configuration."""
        found = await self._choose(target, _DEEPEST, single=True)
        if found is None:
            raise NoMatchingPlatform()
        return found

    async def _choose(
        self, target: ContentDescriptor, deepest: int, *, single: bool
    ) -> tuple[ContentDescriptor, ImageManifest, ImageConfiguration] | None:
        document = model.load_document(
            await self._document(target, "manifests"), f"manifest {target.digest}"
        )
        kind = model.media_type(document, target.media_type)
        if kind not in model.INDEXES:
            manifest = model.parse_manifest({**document, "mediaType": kind}, target.digest)
            config = await self._config(manifest)
            # A single manifest is used as it is; only an index entry without a platform is checked.
            if (
                not single
                and target.platform is None
                and not platforms.suits_platform(self._platform, config)
            ):
                return None
            return target, manifest, config
        if not deepest:
            raise ImageError(f"indexes within indexes: {target.digest}")
        for entry in platforms.choose_descriptors(
            self._platform, model.parse_index_entries(document, f"index {target.digest}")
        ):
            found = await self._choose(entry, deepest - 1, single=False)
            if found is not None:
                return found
        return None

    async def _config(self, manifest: ImageManifest) -> ImageConfiguration:
        what = manifest.config.digest
        return model.parse_image_configuration(
            model.load_document(await self._document(manifest.config, "blobs"), f"config {what}"),
            what,
        )

    async def _document(
        self, blob: ContentDescriptor, kind: Literal["manifests", "blobs"]
    ) -> bytes:
        content = self._store.content
        with suppress(ImageNotFound):
            return await asyncio.to_thread(content.read, blob.digest)
        failures = 0
        while True:
            try:
                data = await self._registry.document(blob, kind)
                break
            except (RegistryUnreachable, RegistryTemporaryError):
                failures += 1
                if failures > _MOST_FAILURES:
                    raise
            await self._wait(failures)
        await asyncio.to_thread(content.put, data)
        return data

    def check_system(self, config: ImageConfiguration) -> None:
        """A Windows machine cannot unpack a Linux layer; a Linux machine finds out when it starts
        the program.
        """
        if self._platform.os == "windows" and config.os not in ("windows", "") and config.diff_ids:
            raise ImageError(
                f"failed to extract layer {config.diff_ids[0]}: hcsshim::ImportLayer failed "
                "in Win32: "
                "The system cannot find the path specified. (0x3): unknown"
            )

    async def _wait(self, failures: int) -> None:
        await self._store.clock.sleep(
            _FIRST_WAIT * 2.0 ** (failures - 1) * (0.5 + self._random.random())
        )

    # ---- layers ----

    async def layers(
        self, manifest: ImageManifest, config: ImageConfiguration, digest: str
    ) -> None:
        parsed = await asyncio.to_thread(self._store.parse, digest)
        turns = asyncio.Semaphore(_AT_ONCE)
        downloads: dict[str, asyncio.Task[None]] = {}
        for layer in parsed.layers:
            unpacked = self._store.layer_folder(layer.chain_id).exists()
            if layer.base or layer.descriptor.digest in downloads:
                continue
            if unpacked and self._store.content.has(layer.descriptor.digest):
                self.report_progress(
                    PullProgress(
                        "exists",
                        layer.descriptor.digest,
                        layer.descriptor.size,
                        layer.descriptor.size,
                    )
                )
                continue
            downloads[layer.descriptor.digest] = asyncio.create_task(
                self._download(layer.descriptor, turns)
            )
        try:
            for number, layer in enumerate(parsed.layers):
                if layer.descriptor.digest in downloads:
                    await downloads[layer.descriptor.digest]
                await self._store.unpack(parsed, number, self.report_progress)
        finally:
            for task in downloads.values():
                task.cancel()
            await asyncio.gather(*downloads.values(), return_exceptions=True)

    async def _download(self, blob: ContentDescriptor, turns: asyncio.Semaphore) -> None:
        content = self._store.content
        async with turns, self._store.fetching(blob.digest):
            if content.has(blob.digest):
                self.report_progress(PullProgress("exists", blob.digest, blob.size, blob.size))
                return
            try:
                with await asyncio.to_thread(content.resume, blob.digest) as writer:
                    await self._fill(writer, blob)
            except OSError as problem:
                why = os.strerror(problem.errno).lower() if problem.errno else str(problem)
                code = "ResourceExhausted" if problem.errno == errno.ENOSPC else "Unknown"
                raise ImageError(
                    f'failed to copy: failed to write to ref "layer-{blob.digest}": {why}', code
                ) from problem
        self.report_progress(PullProgress("downloaded", blob.digest, blob.size, blob.size))

    async def _fill(self, writer: BlobWriter, blob: ContentDescriptor) -> None:
        resumed = writer.offset > 0  # from bytes of an earlier pull, which may be wrong
        failures = 0
        while True:
            before, problem = writer.offset, None
            if writer.offset < blob.size:
                try:
                    await self._more(writer, blob)
                except BadRange:
                    writer.restart()
                    problem = ImageError(
                        "failed to copy: httpReadSeeker: the registry sent less than it announced"
                    )
                except (RegistryUnreachable, RegistryTemporaryError) as failed:
                    problem = failed
            if writer.offset > blob.size:
                writer.restart()
                raise ImageError(
                    f"failed to copy: the registry sends more than the {blob.size} bytes of "
                    f"{blob.digest}"
                )
            if writer.offset == blob.size:
                try:
                    await asyncio.to_thread(
                        writer.commit, blob.digest, blob.size, f"layer-{blob.digest}"
                    )
                except ImageError:
                    if not resumed:
                        raise
                    resumed = False
                    continue
                return
            failures = 1 if writer.offset > before else failures + 1
            if failures > _MOST_FAILURES:
                raise problem or ImageError(
                    "failed to copy: httpReadSeeker: failed to read: unexpected EOF"
                )
            await self._wait(failures)

    async def _more(self, writer: BlobWriter, blob: ContentDescriptor) -> None:
        reported = writer.offset
        async with self._registry.blob(blob, writer.offset) as (start, pieces):
            skip = writer.offset - start  # a registry without range support sends everything again
            async for piece in pieces:
                if skip:
                    dropped = min(skip, len(piece))
                    skip -= dropped
                    piece = piece[dropped:]
                writer.write(piece)
                if writer.offset > blob.size:
                    return
                if writer.offset - reported >= _NEWS_BYTES:
                    reported = writer.offset
                    self.report_progress(
                        PullProgress("downloading", blob.digest, reported, blob.size)
                    )
