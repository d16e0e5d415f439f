"""The images of one node: the machine's store, filtered by the node's system and build."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Protocol

from transom.runtime.api import AuthConfig, FilesystemUsage, Image
from transom.runtime.images.model import ImageError, NoMatchingPlatform
from transom.runtime.images.model import StoredImage as Stored
from transom.runtime.images.platforms import platform_of_node
from transom.runtime.images.service import ImageService, image_reference
from transom.runtime.native.platform import ImageContent
from transom.runtime.sim.texts import DockerTexts


class ImageProvider(Protocol):
    """The image interface of a native runtime."""

    async def pull(self, image: str, auth: AuthConfig | None, *, any_build: bool = False) -> str:
        """Returns its id. `any_build`: of Windows, for a HostProcess container. Raises
        RuntimeFailure.
        """

    def find(self, image: str) -> ImageContent | None:
        """By name, digest or id."""

    def view(self, image: str) -> Image | None: ...
    def views(self) -> Sequence[Image]: ...
    async def remove(self, image: str) -> None: ...
    def lease(self, identity: str, owner: str, keeper: Path) -> None:
        """Keeps its layers until `release`, or until `keeper` is gone."""

    def release(self, owner: str) -> None: ...
    def filesystem(self) -> FilesystemUsage: ...


class NodeImages:
    """`owner` names the node on this machine: `CLUSTER/NODE`. `build` is 0 on Linux."""

    def __init__(
        self,
        service: ImageService,
        owner: str,
        os: str,
        build: int = 0,
        *,
        stable_abi: bool = False,
        engine: Literal["containerd", "docker"] = "containerd",
    ) -> None:
        self._service = service
        self._owner = owner
        self._os = os
        self._build = build
        self._stable_abi = stable_abi
        self._engine = engine

    async def pull(self, image: str, auth: AuthConfig | None, *, any_build: bool = False) -> str:
        if self._engine == "docker":
            return (await self._pull_with_docker(image, auth)).id
        return (
            await self._service.pull(
                image,
                auth,
                self._os,
                0 if any_build else self._build,
                stable_abi=self._stable_abi,
            )
        ).id

    async def _pull_with_docker(self, image: str, auth: AuthConfig | None) -> Stored:
        """Docker pulls images of older Windows builds, which then do not start."""
        platform = platform_of_node(
            self._os, self._build, stable_abi=self._stable_abi, older_builds=True
        )
        reference = image_reference(image)
        try:
            return await self._service.pull_for(reference, platform, auth)
        except NoMatchingPlatform as problem:
            raise DockerTexts().no_platform(reference, str(platform)) from problem
        except ImageError as problem:
            raise DockerTexts().pull_failed(reference, str(problem)) from problem

    def find(self, image: str) -> Stored | None:
        return self._service.find(image, self._os, self._build, stable_abi=self._stable_abi)

    def view(self, image: str) -> Image | None:
        found = self.find(image)
        return image_for_cri(found) if found is not None else None

    def views(self) -> Sequence[Image]:
        return [image_for_cri(image) for image in self._service.list(self._os)]

    async def remove(self, image: str) -> None:
        await self._service.remove(image, self._os, self._build)

    def lease(self, identity: str, owner: str, keeper: Path) -> None:
        self._service.lease(identity, f"{self._owner}/{owner}", keeper)

    def release(self, owner: str) -> None:
        self._service.release(f"{self._owner}/{owner}")

    def filesystem(self) -> FilesystemUsage:
        return self._service.usage()


def image_for_cri(image: Stored) -> Image:
    """As CRI shows it: its user by number, if it is numeric."""
    user = str((image.config.get("config") or {}).get("User") or "").partition(":")[0]
    number = int(user) if user.isascii() and user.isdigit() else None
    return Image(
        image.id, image.tags, image.digests, image.size, number, "" if number is not None else user
    )
