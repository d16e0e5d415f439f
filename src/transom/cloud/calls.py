"""What controllers ask of the emulated cloud provider: calls with plain values, so that they can also
come from another process (`transom up --servers`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:  # importing it would import disks and file systems into every controller manager
    from transom.cloud.provider import CloudProvider

Call = Callable[[str, Mapping[str, Any]], Awaitable[Any]]


class CloudCalls:
    """Every method raises CloudError if the provider rejects the call, or does not answer."""

    def __init__(self, call: Call) -> None:
        self._call = call

    async def attach(
        self, name: str, node: str, *, size: int = 0, read_only: bool = False, zone: str = ""
    ) -> str:
        """The device path for the node's status. `zone` is the node's."""
        found: str = await self._call(
            "attach",
            {"name": name, "node": node, "size": size, "read_only": read_only, "zone": zone},
        )
        return found

    async def detach(self, name: str, node: str, *, force: bool = False) -> None:
        await self._call("detach", {"name": name, "node": node, "force": force})

    async def is_attached(self, name: str, node: str) -> bool:
        return bool(await self._call("is_attached", {"name": name, "node": node}))

    async def create_disk(self, name: str, size: int, zone: str = "") -> None:
        await self._call("create_disk", {"name": name, "size": size, "zone": zone})

    async def delete_disk(self, name: str) -> None:
        await self._call("delete_disk", {"name": name})

    async def resize_disk(self, name: str, size: int) -> None:
        await self._call("resize_disk", {"name": name, "size": size})

    async def create_share(
        self, server: str, name: str, *, account: str, key: str, size: int
    ) -> None:
        values = {"server": server, "name": name, "account": account, "key": key, "size": size}
        await self._call("create_share", values)

    async def delete_share(self, server: str, name: str) -> None:
        await self._call("delete_share", {"server": server, "name": name})


def local_cloud(provider: CloudProvider) -> CloudCalls:
    return CloudCalls(partial(call_cloud, provider))


async def call_cloud(provider: CloudProvider, verb: str, values: Mapping[str, Any]) -> Any:
    """Raises CloudError."""
    return await _VERBS[verb](provider, **values)


async def _attach(provider: CloudProvider, name: str, node: str, **options: Any) -> str:
    return await provider.attach(name, node, **options)


async def _detach(provider: CloudProvider, name: str, node: str, force: bool) -> None:
    await provider.detach(name, node, force=force)


async def _is_attached(provider: CloudProvider, name: str, node: str) -> bool:
    disk = provider.disk(name)
    return disk is not None and node in disk.attachments


async def _create_disk(provider: CloudProvider, name: str, size: int, zone: str) -> None:
    provider.create_disk(name, size, zone)


async def _delete_disk(provider: CloudProvider, name: str) -> None:
    provider.delete_disk(name)


async def _resize_disk(provider: CloudProvider, name: str, size: int) -> None:
    provider.resize_disk(name, size)


async def _create_share(
    provider: CloudProvider, server: str, name: str, account: str, key: str, size: int
) -> None:
    made = provider.share(server, name)
    made.accounts.setdefault(account, key)
    made.size = size


async def _delete_share(provider: CloudProvider, server: str, name: str) -> None:
    provider.delete_share(server, name)


_VERBS: Final[Mapping[str, Callable[..., Awaitable[Any]]]] = {
    "attach": _attach,
    "detach": _detach,
    "is_attached": _is_attached,
    "create_disk": _create_disk,
    "delete_disk": _delete_disk,
    "resize_disk": _resize_disk,
    "create_share": _create_share,
    "delete_share": _delete_share,
}
