"""The image API for runtimes and the command line: images by name, for a node of a given system and
build.

Built-in names need no network; everything else comes from registries, archives or directories.
Failures are `RuntimeFailure`s with containerd's texts.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from transom.kit.clock import Clock
from transom.runtime.api import AuthConfig, FilesystemUsage, RuntimeFailure
from transom.runtime.images import builtin
from transom.runtime.images.collection import CollectedImages, CollectionThresholds, collect_images
from transom.runtime.images.layers import LayerLimits
from transom.runtime.images.model import (
    ImageError,
    ImageNotFound,
    PullProgress,
    ReportPull,
    StoredImage,
)
from transom.runtime.images.platforms import NodePlatform, platform_of_node
from transom.runtime.images.pull import pull_image
from transom.runtime.images.reference import (
    ImageNameError,
    ImageReference,
    image_id,
    parse_reference,
)
from transom.runtime.images.registry import Registries, RegistryClient
from transom.runtime.images.store import LocalImageStore


class RemovedImage(NamedTuple):
    identity: str
    done: bool  # False: a container needs it


class _Shared:
    """A pull with any number of waiters. It is cancelled when the last one leaves."""

    def __init__(self, task: asyncio.Task[str]) -> None:
        self.task = task
        self.abandoned = False
        self._waiting = 0

    async def result(self) -> str:
        self._waiting += 1
        try:
            return await asyncio.shield(self.task)
        finally:
            self._waiting -= 1
            if not self._waiting:
                self.abandoned = True
                self.task.cancel()


class ImageService:
    """All nodes of a process share one. `folder` is shared by all processes of a machine."""

    def __init__(
        self,
        folder: Path,
        *,
        registries: Registries | None = None,
        clock: Clock | None = None,
        limits: LayerLimits | None = None,
        builtins: bool = True,
    ) -> None:
        self.store = LocalImageStore(folder, clock=clock, limits=limits)
        self._registries = registries or Registries()
        self._builtins = builtins
        self._pulling: dict[tuple[str, str, AuthConfig | None], _Shared] = {}
        self._made: dict[tuple[builtin.ImageRecipe, str], str] = {}  # manifests of built-in images

    # ---- lookup ----

    def find(
        self, name: str, os: str, build: int = 0, *, stable_abi: bool = False
    ) -> StoredImage | None:
        """By name, digest or id, as a node of that system sees it."""
        identity = image_id(name)
        if identity:
            return self.store.image(identity)
        try:
            reference = parse_reference(name)
        except ImageNameError:
            return None
        return self.store.find(reference, platform_of_node(os, build, stable_abi=stable_abi))

    def get(self, identity: str) -> StoredImage | None:
        return self.store.image(image_id(identity))

    def list(self, os: str = "") -> list[StoredImage]:
        return [image for image in self.store.images() if not os or image.os == os]

    def usage(self) -> FilesystemUsage:
        size, count = self.store.usage()
        return FilesystemUsage(str(self.store.folder), size, count)

    # ---- pulling ----

    async def pull(
        self,
        name: str,
        auth: AuthConfig | None = None,
        os: str = "linux",
        build: int = 0,
        *,
        stable_abi: bool = False,
        progress: ReportPull | None = None,
    ) -> StoredImage:
        """Ensures that the image is present and unpacked. Failures have containerd's texts."""
        reference = image_reference(name)
        platform = platform_of_node(os, build, stable_abi=stable_abi)
        try:
            return await self.pull_for(reference, platform, auth, progress)
        except ImageError as problem:
            raise RuntimeFailure(
                "NotFound" if problem.code == "NotFound" else "Unknown",
                f'failed to pull and unpack image "{reference}": {problem}',
            ) from problem

    async def pull_for(
        self,
        reference: ImageReference,
        platform: NodePlatform,
        auth: AuthConfig | None = None,
        progress: ReportPull | None = None,
    ) -> StoredImage:
        """A second pull of the same image waits for the first. Raises ImageError."""
        key = (str(reference), platform.key, auth)
        shared = self._pulling.get(key)
        if shared is None or shared.abandoned:
            task = asyncio.create_task(self._pull(reference, auth, platform, progress))
            shared = self._pulling[key] = _Shared(task)
            task.add_done_callback(lambda _: self._forget(key, task))
        image = self.store.image(await shared.result())
        if image is None:
            raise ImageError("it was removed meanwhile", "NotFound")
        return image

    def _forget(self, key: tuple[str, str, AuthConfig | None], task: asyncio.Task[str]) -> None:
        if key in self._pulling and self._pulling[key].task is task:
            del self._pulling[key]

    async def _pull(
        self,
        reference: ImageReference,
        auth: AuthConfig | None,
        platform: NodePlatform,
        progress: ReportPull | None,
    ) -> str:
        async with self.store.busy():
            found = builtin.image_recipe(reference) if self._builtins else None
            if found is not None:
                identity = await asyncio.to_thread(self._make, reference, found, platform)
                if progress is not None:
                    progress(PullProgress("done", ""))
                return identity
            async with _registry(self._registries, reference, auth, self.store.clock) as registry:
                return await pull_image(self.store, registry, reference, platform, progress)

    def _make(
        self, reference: ImageReference, found: builtin.ImageRecipe, platform: NodePlatform
    ) -> str:
        """A built-in image, unless a user has loaded another one under its name."""
        meaning = self.store.index.state().find(str(reference), platform)
        key = (found, platform.key)
        made = self._made.get(key)
        if meaning is not None and (meaning.local or meaning.target == made):
            self.store.touch(meaning.id)
            return meaning.id
        manifest = self._made[key] = builtin.write_builtin_image(
            self.store.content, found, platform
        )
        self.store.unpack_here(self.store.parse(manifest))
        return self.store.register(manifest, [(str(reference), manifest)], platform)

    # ---- keeping and removing ----

    def lease(self, identity: str, owner: str = "", keeper: Path | None = None) -> None:
        """Keeps the image until `release(owner)`, or until `keeper`, a file or directory of the
        owner, is gone; outlives this process. `owner` is unique on the machine:
        `CLUSTER/NODE/CONTAINER`.
        """
        try:
            self.store.lease(image_id(identity), owner or identity, keeper)
        except ImageNotFound as problem:
            raise RuntimeFailure("NotFound", str(problem)) from problem

    def release(self, owner: str) -> None:
        self.store.release(owner)

    def release_all(self, prefix: str) -> None:
        """Releases all owners with this prefix: a cluster is deleted."""
        self.store.leases.drop_all(prefix)

    async def remove(
        self, name: str, os: str, build: int = 0, *, force: bool = False
    ) -> RemovedImage:
        """Removes it with all its names, unless a container on any node of the machine needs it. A
        no-op for an unknown image.
        """
        image = self.find(name, os, build)
        if image is None:
            return RemovedImage("", False)
        done = await asyncio.to_thread(self.store.remove, image.id, force=force)
        if done:
            await asyncio.to_thread(self.store.sweep)
        return RemovedImage(image.id, done)

    async def collect(self, thresholds: CollectionThresholds) -> CollectedImages:
        """Frees space, if the disk is too full."""
        return await asyncio.to_thread(collect_images, self.store, thresholds)


def image_reference(name: str) -> ImageReference:
    """Raises RuntimeFailure."""
    try:
        return parse_reference(name)
    except ImageNameError as problem:
        raise RuntimeFailure(
            "InvalidArgument", f'failed to parse image reference "{name}": {problem}'
        ) from problem


@asynccontextmanager
async def _registry(
    registries: Registries, reference: ImageReference, auth: AuthConfig | None, clock: Clock
) -> AsyncIterator[RegistryClient]:
    registry = RegistryClient(registries, reference, auth, clock)
    try:
        yield registry
    finally:
        registry.close()
