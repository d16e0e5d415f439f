"""A pull: from a name to an image in the store, unpacked.

Layers come three at a time and are unpacked in their order as they come. A cut connection costs what was on its way, not
what has come: the next request asks for the rest.
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
from contextlib import suppress
from typing import Final, Literal

from transom.runtime.images import model, platforms
from transom.runtime.images.content import Writer
from transom.runtime.images.model import Configuration, Descriptor, ImageError, Manifest, NotFound, Progress, Tell
from transom.runtime.images.platforms import Platform
from transom.runtime.images.reference import Reference
from transom.runtime.images.registry import BadRange, Registry, Temporary, Unreachable
from transom.runtime.images.store import Store

_AT_ONCE: Final = 3
_MOST_FAILURES: Final = 5  # in a row, without a byte between them
_DEEPEST: Final = 4  # indexes in indexes
_FIRST_WAIT: Final = 0.2
_NEWS_BYTES: Final = 1 << 20  # between two words about a download


async def pull(
    store: Store, registry: Registry, reference: Reference, platform: Platform, tell: Tell | None = None
) -> str:
    """The image's id. Raises ImageError. Whoever calls is `busy`."""
    pulling = _Pull(store, registry, platform, tell or (lambda _: None))
    target = await registry.resolve()  # not tried again when nobody answers: kubelets do that
    model.refuse_schema1(target.media_type)  # before its digest is looked at, which is not that of its bytes
    pulling.tell(Progress("resolved", target.digest, 0, target.size))
    found, manifest, config = await pulling.choose(target)
    pulling.check_system(config)
    await pulling.layers(manifest, config, found.digest)
    names = [f"{reference.repository}@{target.digest}"]
    if not reference.digest:
        names.append(str(reference))
    identity = await asyncio.to_thread(store.register, found.digest, [(name, target.digest) for name in names], platform)
    pulling.tell(Progress("done", "", 0, 0))
    return identity


class _Pull:
    def __init__(self, store: Store, registry: Registry, platform: Platform, tell: Tell) -> None:
        self._store = store
        self._registry = registry
        self._platform = platform
        self.tell = tell
        self._random = random.Random()

    # ---- documents -----------------------------------------------------------------------------------------------

    async def choose(self, target: Descriptor) -> tuple[Descriptor, Manifest, Configuration]:
        """The manifest for this node, and its image's configuration."""
        found = await self._choose(target, _DEEPEST, single=True)
        if found is None:
            raise NotFound("no match for platform in manifest")
        return found

    async def _choose(
        self, target: Descriptor, deepest: int, *, single: bool
    ) -> tuple[Descriptor, Manifest, Configuration] | None:
        document = model.load(await self._document(target, "manifests"), f"manifest {target.digest}")
        kind = model.media_type(document, target.media_type)
        if kind not in model.INDEXES:
            manifest = model.manifest({**document, "mediaType": kind}, target.digest)
            config = await self._config(manifest)
            # What stands alone is taken as it is; only an entry of an index that does not say what it is for is looked at.
            if not single and target.platform is None and not platforms.suits(self._platform, config):
                return None
            return target, manifest, config
        if not deepest:
            raise ImageError(f"indexes within indexes: {target.digest}")
        for entry in platforms.choose(self._platform, model.entries(document, f"index {target.digest}")):
            found = await self._choose(entry, deepest - 1, single=False)
            if found is not None:
                return found
        return None

    async def _config(self, manifest: Manifest) -> Configuration:
        what = manifest.config.digest
        return model.configuration(model.load(await self._document(manifest.config, "blobs"), f"config {what}"), what)

    async def _document(self, blob: Descriptor, kind: Literal["manifests", "blobs"]) -> bytes:
        content = self._store.content
        with suppress(NotFound):
            return await asyncio.to_thread(content.read, blob.digest)
        failures = 0
        while True:
            try:
                data = await self._registry.document(blob, kind)
                break
            except (Unreachable, Temporary):
                failures += 1
                if failures > _MOST_FAILURES:
                    raise
            await self._wait(failures)
        await asyncio.to_thread(content.put, data)
        return data

    def check_system(self, config: Configuration) -> None:
        """A Windows machine cannot make anything of a Linux layer; a Linux machine finds out when it starts the program."""
        if self._platform.os == "windows" and config.os not in ("windows", "") and config.diff_ids:
            raise ImageError(f"failed to extract layer {config.diff_ids[0]}: hcsshim::ImportLayer failed in Win32: "
                             "The system cannot find the path specified. (0x3): unknown")  # fmt: skip

    async def _wait(self, failures: int) -> None:
        await self._store.clock.sleep(_FIRST_WAIT * 2.0 ** (failures - 1) * (0.5 + self._random.random()))

    # ---- layers --------------------------------------------------------------------------------------------------

    async def layers(self, manifest: Manifest, config: Configuration, digest: str) -> None:
        parsed = await asyncio.to_thread(self._store.parse, digest)
        turns = asyncio.Semaphore(_AT_ONCE)
        downloads: dict[str, asyncio.Task[None]] = {}
        for layer in parsed.layers:
            unpacked = self._store.layer_folder(layer.chain_id).exists()
            if layer.base or layer.descriptor.digest in downloads:
                continue
            if unpacked and self._store.content.has(layer.descriptor.digest):
                self.tell(Progress("exists", layer.descriptor.digest, layer.descriptor.size, layer.descriptor.size))
                continue
            downloads[layer.descriptor.digest] = asyncio.create_task(self._download(layer.descriptor, turns))
        try:
            for number, layer in enumerate(parsed.layers):
                if layer.descriptor.digest in downloads:
                    await downloads[layer.descriptor.digest]
                await self._store.unpack(parsed, number, self.tell)
        finally:
            for task in downloads.values():
                task.cancel()
            await asyncio.gather(*downloads.values(), return_exceptions=True)

    async def _download(self, blob: Descriptor, turns: asyncio.Semaphore) -> None:
        content = self._store.content
        async with turns, self._store.fetching(blob.digest):
            if content.has(blob.digest):
                self.tell(Progress("exists", blob.digest, blob.size, blob.size))
                return
            try:
                with await asyncio.to_thread(content.resume, blob.digest) as writer:
                    await self._fill(writer, blob)
            except OSError as problem:
                why = os.strerror(problem.errno).lower() if problem.errno else str(problem)
                code = "ResourceExhausted" if problem.errno == errno.ENOSPC else "Unknown"
                raise ImageError(f'failed to copy: failed to write to ref "layer-{blob.digest}": {why}', code) from problem
        self.tell(Progress("downloaded", blob.digest, blob.size, blob.size))

    async def _fill(self, writer: Writer, blob: Descriptor) -> None:
        resumed = writer.offset > 0  # from bytes of an earlier pull, which may be wrong
        failures = 0
        while True:
            before, problem = writer.offset, None
            if writer.offset < blob.size:
                try:
                    await self._more(writer, blob)
                except BadRange:
                    writer.restart()
                    problem = ImageError("failed to copy: httpReadSeeker: the registry has less than it says")
                except (Unreachable, Temporary) as failed:
                    problem = failed
            if writer.offset > blob.size:
                writer.restart()
                raise ImageError(f'failed to copy: the registry sends more than the {blob.size} bytes of {blob.digest}')
            if writer.offset == blob.size:
                try:
                    await asyncio.to_thread(writer.commit, blob.digest, blob.size, f"layer-{blob.digest}")
                except ImageError:
                    if not resumed:
                        raise
                    resumed = False
                    continue
                return
            failures = 1 if writer.offset > before else failures + 1
            if failures > _MOST_FAILURES:
                raise problem or ImageError("failed to copy: httpReadSeeker: failed to read: unexpected EOF")
            await self._wait(failures)

    async def _more(self, writer: Writer, blob: Descriptor) -> None:
        told = writer.offset
        async with self._registry.blob(blob, writer.offset) as (start, pieces):
            skip = writer.offset - start  # a registry without ranges sends all again
            async for piece in pieces:
                if skip:
                    dropped = min(skip, len(piece))
                    skip -= dropped
                    piece = piece[dropped:]
                writer.write(piece)
                if writer.offset > blob.size:
                    return
                if writer.offset - told >= _NEWS_BYTES:
                    told = writer.offset
                    self.tell(Progress("downloading", blob.digest, told, blob.size))
