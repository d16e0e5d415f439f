"""Numbers of a runtime's containers, sandboxes and of the disk with its images, as they were a moment ago.

They are dear to count (the runtime asks a process for each container), so they are asked for now and then, and whoever
wants them gets the last.
"""

from __future__ import annotations

from collections.abc import Sequence

from transom.kit.clock import Clock
from transom.runtime.api import ContainerStats, Filesystem, RuntimeFailure, SandboxStats
from transom.runtime.cri import inward
from transom.runtime.cri.client import Client
from transom.runtime.cri.codec import Message


class Statistics:
    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._containers: dict[str, ContainerStats] = {}
        self.sandboxes: Sequence[SandboxStats] = ()
        self.images = Filesystem("", 0, 0)

    @property
    def containers(self) -> Sequence[ContainerStats]:
        return tuple(self._containers.values())

    async def look(self) -> None:
        """Raises RuntimeFailure."""
        client, before = self._client, self._containers
        answer = await client.call("ListContainerStats")
        rows = (inward.container_stats(each, before.get(_identity(each))) for each in answer.get("stats") or ())
        self._containers = {row.id: row for row in rows}
        now = self._clock.time()
        found = (inward.sandbox_stats(each, now) for each in (await self._of_sandboxes()).get("stats") or ())
        self.sandboxes = [row for row in found if row is not None]
        disks = (await client.call("ImageFsInfo")).get("image_filesystems") or [None]
        self.images = inward.filesystem(disks[0])

    async def _of_sandboxes(self) -> Message:
        """The old interface has none, and some runtimes of the new one do not count them."""
        if self._client.api == "v1alpha2":
            return {}
        try:
            return await self._client.call("ListPodSandboxStats")
        except RuntimeFailure as failure:
            if failure.code == "Unimplemented":
                return {}
            raise


def _identity(message: Message) -> str:
    return (message.get("attributes") or {}).get("id", "")
