from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.runtime.cri.fakecri import FakeCri

from transom.runtime.api import RuntimeFailure
from transom.runtime.cri.client import CriClient


def test_versions_of_the_interface(tmp_path: Path) -> None:
    async def main(versions: tuple[str, ...]) -> str:
        fake = FakeCri(versions)
        async with fake.server.listening(tmp_path / "s") as endpoint:
            client = CriClient(endpoint)
            assert client.api == ""
            await asyncio.gather(*(client.call("ListImages") for _ in range(3)))
            assert (fake.counted()["Version"], len(fake.server.connections)) == (1, 1)
            client.close()
            return client.api

    assert asyncio.run(main(("v1", "v1alpha2"))) == "v1"
    assert asyncio.run(main(("v1",))) == "v1"
    assert asyncio.run(main(("v1alpha2",))) == "v1alpha2"
    with pytest.raises(
        RuntimeFailure,
        match=r"Unimplemented desc = unknown service runtime\.v1alpha2\.RuntimeService",
    ):
        asyncio.run(main(()))


async def test_the_runtime_restarts_with_an_older_version(tmp_path: Path) -> None:
    fake = FakeCri(("v1",))
    client = CriClient(f"unix://{tmp_path}/s")
    with pytest.raises(RuntimeFailure) as away:
        await client.call("ListImages")
    assert str(away.value) == (
        'rpc error: code = Unavailable desc = connection error: desc = "transport: Error '
        "while dialing dial unix "
        f'{tmp_path}/s: connect: no such file or directory"'
    )
    async with fake.server.listening(tmp_path / "s"):
        await client.call("ListImages")
        assert client.api == "v1"
    with pytest.raises(RuntimeFailure, match="Unavailable"):
        await client.call("ListImages")
    fake.versions = ("v1alpha2",)
    async with fake.server.listening(tmp_path / "s"):
        await client.call("ListImages")
        assert client.api == "v1alpha2"
    client.close()


async def test_an_answer_that_is_none(tmp_path: Path) -> None:
    fake = FakeCri()
    async with fake.server.listening(tmp_path / "s") as endpoint:
        client = CriClient(endpoint)
        await client.call("Version")

        async def garbage(path: str, message: bytes) -> bytes:
            return b"\x0a\xff"

        fake.server.handler = garbage
        with pytest.raises(RuntimeFailure, match="Internal desc = grpc: failed to unmarshal"):
            await client.call("ListImages")
        client.close()
