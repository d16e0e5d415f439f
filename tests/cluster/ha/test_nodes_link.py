"""The link between API servers and the process of the nodes: calls to the emulated cloud."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import cast

import pytest
from tests.etcd_process import eventually

from transom.cloud.calls import CloudCalls
from transom.cloud.errors import CloudError
from transom.cloud.provider import CloudProvider
from transom.cluster.config import ClusterConfig
from transom.cluster.ha.nodes_link import NodesLinkServer, RemoteNodes
from transom.cluster.ha.sockets import connect_unix
from transom.cluster.pki import ClusterPki
from transom.cluster.run import ClusterNodes
from transom.kit.clock import RealClock

NAME = "kubernetes.io/gce-pd/data"


class NodesWithCloud:
    """The part of the nodes that these calls use."""

    def __init__(self, provider: CloudProvider) -> None:
        self._provider = provider

    def cloud(self) -> CloudProvider:
        return self._provider


async def _exists(path: Path) -> bool:
    return path.exists()


@asynccontextmanager
async def linked(config: ClusterConfig, provider: CloudProvider) -> AsyncIterator[CloudCalls]:
    server = NodesLinkServer(config, cast(ClusterNodes, NodesWithCloud(provider)))
    running = asyncio.create_task(server.run())
    await eventually(partial(_exists, config.state / "nodes.sock"))
    try:
        yield RemoteNodes(config, ClusterPki(config.pki)).cloud_calls()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterConfig:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    made = ClusterConfig(name="link")
    made.state.mkdir(parents=True)
    return made


async def test_controllers_of_another_process_use_the_cloud(config: ClusterConfig) -> None:
    provider = CloudProvider(RealClock())
    async with linked(config, provider) as cloud:
        await cloud.create_disk(NAME, 2 << 30, "zone-a")
        disk = provider.disk(NAME)
        assert disk is not None and (disk.size, disk.zone) == (2 << 30, "zone-a")
        assert await cloud.attach(NAME, "a") == "/dev/disk/by-id/google-data"
        assert await cloud.is_attached(NAME, "a")
        assert not await cloud.is_attached(NAME, "b")
        with pytest.raises(CloudError, match="RESOURCE_IN_USE") as refused:
            await cloud.attach(NAME, "b")
        assert refused.value.current_node == "a"
        await cloud.resize_disk(NAME, 3 << 30)
        await cloud.detach(NAME, "a", force=True)
        assert (disk.size, disk.attachments) == (3 << 30, {})
        await cloud.delete_disk(NAME)
        assert provider.disk(NAME) is None
        await cloud.create_share("s.example", "x", account="me", key="secret", size=5)
        [share] = provider.shares()
        assert (share.accounts, share.size) == ({"me": "secret"}, 5)
        await cloud.delete_share("s.example", "x")
        assert not list(provider.shares())


async def test_a_cloud_that_does_not_answer_rejects_calls(config: ClusterConfig) -> None:
    cloud = RemoteNodes(config, ClusterPki(config.pki)).cloud_calls()
    with pytest.raises(CloudError, match="does not answer"):
        await cloud.attach(NAME, "a")


@pytest.mark.parametrize(
    "request_of", [b"", b"\xff\n", b"5", b"null", b"[]", b'["a"]', b'["a", "b"]', b"[" * 4000]
)
async def test_an_incomplete_request_for_a_connection_ends_only_itself(
    config: ClusterConfig, request_of: bytes
) -> None:
    """An API server that is killed after it has connected sends nothing."""
    provider = CloudProvider(RealClock())
    loop = asyncio.get_running_loop()
    async with linked(config, provider) as cloud:
        await eventually(partial(_exists, config.state / "dial.sock"))
        with connect_unix(config.state / "dial.sock") as asking:
            if request_of:
                await loop.sock_sendall(asking, request_of)
            asking.shutdown(socket.SHUT_WR)
            assert await loop.sock_recv(asking, 100) == b""
        await cloud.create_disk(NAME, 1 << 30, "zone-a")
        assert provider.disk(NAME) is not None
