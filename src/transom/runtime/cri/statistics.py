"""Recent statistics of a runtime's containers, sandboxes and image disk.

They are expensive to collect (the runtime queries a process for each container), so they are
fetched periodically, and callers get the last ones.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

from transom.kit.clock import Clock
from transom.runtime.api import ContainerStats, FilesystemUsage, RuntimeFailure, SandboxStats
from transom.runtime.cri import from_cri
from transom.runtime.cri.client import CriClient
from transom.runtime.cri.codec import Message

log = logging.getLogger("transom.runtime.cri")


class CriStatistics:
    def __init__(self, client: CriClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._containers: dict[str, ContainerStats] = {}
        self.sandboxes: Sequence[SandboxStats] = ()
        self.images = FilesystemUsage("", 0, 0)

    @property
    def containers(self) -> Sequence[ContainerStats]:
        return tuple(self._containers.values())

    async def look(self) -> None:
        """Raises RuntimeFailure when the runtime does not respond; statistics that it does not
        support stay unchanged.
        """
        await self._some(self._look_at_containers)
        if self._client.api != "v1alpha2":  # which has no such call
            await self._some(self._look_at_sandboxes)
        await self._some(self._look_at_images)

    async def _some(self, part: Callable[[], Awaitable[None]]) -> None:
        try:
            await part()
        except RuntimeFailure as failure:
            if failure.code in ("Unavailable", "DeadlineExceeded"):
                raise
            log.debug("the container runtime does not count: %s", failure)

    async def _look_at_containers(self) -> None:
        answer, before = await self._client.call("ListContainerStats"), self._containers
        rows = (
            from_cri.container_stats_from_cri(each, before.get(_identity(each)))
            for each in answer.get("stats") or ()
        )
        self._containers = {row.id: row for row in rows}

    async def _look_at_sandboxes(self) -> None:
        """Containerd 1.6 responds for all or none: one sandbox without its own cgroup makes the
        call fail.
        """
        answer, now = await self._client.call("ListPodSandboxStats"), self._clock.time()
        found = (from_cri.sandbox_stats_from_cri(each, now) for each in answer.get("stats") or ())
        self.sandboxes = [row for row in found if row is not None]

    async def _look_at_images(self) -> None:
        disks = (await self._client.call("ImageFsInfo")).get("image_filesystems")
        self.images = from_cri.filesystem_from_cri(disks[0] if disks else None)


def _identity(message: Message) -> str:
    return (message.get("attributes") or {}).get("id", "")
