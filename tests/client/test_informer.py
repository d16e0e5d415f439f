"""Informers against a real server: they follow changes and recover from lost watches."""

from __future__ import annotations

import asyncio
import math
import random
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import UVLOOP, ContextFactory

from transom.apiserver.core.typed import BuiltinType
from transom.apiserver.server import ServerOptions, build_api_server
from transom.apiserver.serving.inprocess import InProcessClient
from transom.client.api import ApiClient, ObjectList
from transom.client.informer import Informer, InformerFactory, LastKnownState
from transom.client.resources import CONFIG_MAPS, INGRESSES, PODS, GroupVersionResource
from transom.machinery.objects import Object
from transom.store.sqlite import SqliteStore

from .conftest import ADMIN, Hurried, until

Play = Callable[[Any], None]


class Diary:
    """What handlers received."""

    def __init__(self, informer: Informer) -> None:
        self.lines: list[str] = []
        informer.add_handler(
            add=lambda obj: self._note("add", obj),
            update=lambda _, new: self._note("update", new),
            delete=lambda obj: self._note(
                "lost" if isinstance(obj, LastKnownState) else "delete", obj
            ),
        )

    def _note(self, what: str, obj: Object) -> None:
        self.lines.append(f"{what} {obj['metadata']['name']}")


def config_map(name: str, **data: str) -> Object:
    return {"metadata": {"name": name}, "data": data}


async def running(client: ApiClient, **options: Any) -> tuple[Informer, Diary, asyncio.Task[None]]:
    informer = Informer(
        client, CONFIG_MAPS, Hurried(), random.Random(1), namespace="default", **options
    )
    diary = Diary(informer)
    task = asyncio.create_task(informer.run())
    await informer.synced()
    return informer, diary, task


async def stopped(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait((task,))


async def test_it_follows_every_change(api_server: ContextFactory) -> None:
    async with api_server() as server:
        client = server.client()
        await client.create(CONFIG_MAPS, "default", config_map("old"))
        informer, diary, task = await running(server.client())
        assert informer.has_synced and diary.lines == ["add old"]
        made = await client.create(CONFIG_MAPS, "default", config_map("a"))
        await client.update(CONFIG_MAPS, {**made, "data": {"k": "v"}})
        await client.delete(CONFIG_MAPS, "default", "old")
        await until(lambda: len(diary.lines) == 4)
        assert diary.lines[1:] == ["add a", "update a", "delete old"]
        stored = informer.get("default", "a")
        assert stored is not None and stored["data"] == {"k": "v"} and stored["kind"] == "ConfigMap"
        assert informer.get("default", "old") is None and len(informer.list("default")) == 1
        late = Diary(informer)
        assert late.lines == ["add a"]  # who comes late hears what there is
        await stopped(task)


async def test_indexes_follow(api_server: ContextFactory) -> None:
    async with api_server() as server:
        client = server.client()
        informer, diary, task = await running(server.client())
        informer.add_index(
            "owner",
            lambda obj: [obj["data"]["owner"]] if "owner" in (obj.get("data") or {}) else [],
        )
        for name, owner in (("a", "x"), ("b", "x"), ("c", "y")):
            await client.create(CONFIG_MAPS, "default", config_map(name, owner=owner))
        await until(lambda: len(diary.lines) == 3)

        def owned(owner: str) -> list[str]:
            return sorted(obj["metadata"]["name"] for obj in informer.by_index("owner", owner))

        assert (owned("x"), owned("y")) == (["a", "b"], ["c"])
        await client.patch(CONFIG_MAPS, "default", "a", {"data": {"owner": "y"}})
        await client.delete(CONFIG_MAPS, "default", "c")
        await until(lambda: len(diary.lines) == 5)
        assert (owned("x"), owned("y")) == (["b"], ["a"])
        await stopped(task)


async def test_a_selector_lets_objects_in_and_out(api_server: ContextFactory) -> None:
    async with api_server() as server:
        client = server.client()
        _, diary, task = await running(server.client(), label_selector="app=web")
        await client.create(CONFIG_MAPS, "default", config_map("a"))
        await client.patch(CONFIG_MAPS, "default", "a", {"metadata": {"labels": {"app": "web"}}})
        await client.patch(CONFIG_MAPS, "default", "a", {"metadata": {"labels": {"app": "db"}}})
        await until(lambda: len(diary.lines) == 2)
        assert diary.lines == ["add a", "delete a"]
        await stopped(task)


@pytest.mark.parametrize("anyio_backend", [UVLOOP], ids=["uvloop"])
async def test_it_continues_after_a_lost_connection(https_api_server: ContextFactory) -> None:
    async with https_api_server() as server:
        writer = InProcessClient(server.api, ADMIN)
        lists = Counting(server.client())
        await writer.create(CONFIG_MAPS, "default", config_map("a"))
        _, diary, task = await running(lists)
        await server.stop_serving()
        await writer.create(CONFIG_MAPS, "default", config_map("b"))
        await writer.delete(CONFIG_MAPS, "default", "a")
        await server.serve()
        await until(lambda: len(diary.lines) == 3)
        assert diary.lines == ["add a", "add b", "delete a"]
        assert lists.count == 1  # the watch went on from where it was
        await stopped(task)


@pytest.mark.parametrize("anyio_backend", [UVLOOP], ids=["uvloop"])
async def test_it_lists_again_when_its_version_is_forgotten(
    https_api_server: ContextFactory,
) -> None:
    async with https_api_server() as server:
        writer = InProcessClient(server.api, ADMIN)
        lists = Counting(server.client())
        for name in ("a", "b"):
            await writer.create(CONFIG_MAPS, "default", config_map(name))
        informer, diary, task = await running(lists)
        await server.stop_serving()
        await writer.delete(CONFIG_MAPS, "default", "a")
        await writer.patch(CONFIG_MAPS, "default", "b", {"data": {"k": "v"}})
        await writer.create(CONFIG_MAPS, "default", config_map("c"))
        server.api.storage.store.compact(server.api.storage.store.revision)
        await server.serve()
        await until(lambda: len(diary.lines) == 5)
        assert diary.lines == ["add a", "add b", "lost a", "update b", "add c"]
        assert lists.count == 2
        await writer.create(CONFIG_MAPS, "default", config_map("d"))
        await until(lambda: informer.get("default", "d") is not None)
        await stopped(task)


@pytest.mark.parametrize("anyio_backend", [UVLOOP], ids=["uvloop"])
async def test_it_survives_a_restart_of_the_server(
    https_api_server: ContextFactory, tmp_path: Path
) -> None:
    async with https_api_server() as server:
        await server.api.stop()

        async def boot() -> None:
            server.api = build_api_server(
                ServerOptions(store=SqliteStore(tmp_path / "store.db"), rng=random.Random(2))
            )
            await server.api.start()

        await server.stop_serving()
        await boot()
        await server.serve()
        await InProcessClient(server.api, ADMIN).create(CONFIG_MAPS, "default", config_map("a"))
        lists = Counting(server.client())
        _, diary, task = await running(lists)
        await server.stop_serving()
        await server.api.stop()
        await boot()
        await InProcessClient(server.api, ADMIN).create(CONFIG_MAPS, "default", config_map("b"))
        await server.serve()
        await until(lambda: len(diary.lines) == 2)
        assert diary.lines == ["add a", "add b"] and lists.count == 1
        await stopped(task)


class Counting:
    """A client that counts its lists."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self.count = 0

    async def list(self, *args: Any, **options: Any) -> ObjectList:
        self.count += 1
        return await self._client.list(*args, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


async def test_a_factory_shares_informers(api_server: ContextFactory) -> None:
    async with api_server() as server:
        factory = InformerFactory(server.client(), Hurried(), random.Random(1))
        assert factory(PODS) is factory(PODS)
        assert factory(PODS) is not factory(PODS, field_selector="spec.nodeName=")
        factory.start()
        await factory.synced()
        assert factory(PODS).has_synced
        await factory.stop()


async def test_in_one_process_nothing_is_copied() -> None:
    from .conftest import running_api_server

    async with running_api_server("inprocess", None) as server:
        client = server.client()
        await client.create(CONFIG_MAPS, "default", config_map("a"))
        first, _, one = await running(client)
        second, diary, two = await running(client)
        await client.create(CONFIG_MAPS, "default", config_map("b"))
        await until(lambda: len(diary.lines) == 2 and first.get("default", "b"))
        for name in ("a", "b"):
            assert first.get("default", name) is second.get("default", name)
        await stopped(one)
        await stopped(two)


async def test_other_tasks_run_between_slow_handlers(api_server: ContextFactory) -> None:
    async with api_server() as server:
        client = server.client()
        informer, diary, task = await running(server.client())
        turns: list[int] = []

        def slow(_: Object) -> None:
            end = time.perf_counter() + 0.025
            while time.perf_counter() < end:
                math.sqrt(2)
            asyncio.get_running_loop().call_soon(lambda: turns.append(len(diary.lines)))

        informer.add_handler(add=slow)
        await asyncio.gather(
            *(client.create(CONFIG_MAPS, "default", config_map(f"c{i}")) for i in range(6))
        )
        await until(lambda: len(diary.lines) == 6 and len(turns) == 6)
        assert turns == sorted(turns) and len(set(turns)) > 3  # not all at the end
        await stopped(task)


async def test_objects_are_prepared_before_handlers_get_them(api_server: ContextFactory) -> None:
    async with api_server() as server:
        client = server.client()
        await client.create(CONFIG_MAPS, "default", config_map("old"))
        informer = Informer(
            server.client(), CONFIG_MAPS, Hurried(), random.Random(1), namespace="default"
        )
        prepared: list[str] = []

        async def later(obj: Object) -> None:
            await asyncio.sleep(0)
            prepared.append(obj["metadata"]["name"])

        def prepare(obj: Object) -> Awaitable[None] | None:
            if obj["metadata"]["name"] == "bad":
                raise ValueError("hostile")
            return later(obj) if obj["metadata"]["name"] != "small" else None

        seen: list[tuple[str, list[str]]] = []
        informer.add_preparation(prepare)
        informer.add_handler(add=lambda obj: seen.append((obj["metadata"]["name"], [*prepared])))
        task = asyncio.create_task(informer.run())
        await informer.synced()
        for name in ("small", "bad", "new"):
            await client.create(CONFIG_MAPS, "default", config_map(name))
        await until(lambda: len(seen) == 4)
        assert seen == [
            ("old", ["old"]),
            ("small", ["old"]),
            ("bad", ["old"]),
            ("new", ["old", "new"]),
        ]
        await stopped(task)


async def test_only_what_the_transform_returns_is_kept(api_server: ContextFactory) -> None:
    async with api_server() as server:
        client = server.client()
        await client.create(CONFIG_MAPS, "default", config_map("old", k="v"))
        informer, diary, task = await running(
            server.client(), transform=lambda obj: {"metadata": obj["metadata"]}
        )
        await client.create(CONFIG_MAPS, "default", config_map("new", k="v"))
        await until(lambda: len(diary.lines) == 2)
        assert [set(obj) for obj in informer.list()] == [{"metadata"}, {"metadata"}]
        deleted: list[Object] = []
        informer.add_handler(delete=deleted.append)
        await client.delete(CONFIG_MAPS, "default", "old")
        await until(lambda: bool(deleted))
        assert set(deleted[0]) == {"metadata"}
        await stopped(task)


@pytest.mark.parametrize("resource", [CONFIG_MAPS, INGRESSES], ids=str)
async def test_large_objects_are_decoded_beside_the_loop_and_in_order(
    api_server: ContextFactory, resource: GroupVersionResource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in a version that is not the stored one."""
    threads: list[threading.Thread] = []
    original = BuiltinType.load

    def load(self: BuiltinType, value: bytes) -> Object:
        if len(value) > 128 * 1024:
            threads.append(threading.current_thread())
        return original(self, value)

    async with api_server() as server:
        client = InProcessClient(server.api, ADMIN)
        monkeypatch.setattr(BuiltinType, "load", load)
        informer = Informer(client, resource, Hurried(), random.Random(1), namespace="default")
        diary = Diary(informer)
        task = asyncio.create_task(informer.run())
        await informer.synced()
        threads.clear()
        spec = {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}
        for name, size in (("a", 1), ("b", 200_000), ("c", 1), ("d", 200_000)):
            notes = {"note": "x" * size}
            body: Object = {"metadata": {"name": name, "annotations": {"n": "1"}}}
            if resource is CONFIG_MAPS:
                body["data"] = notes
            else:
                rules = [{"host": f"h{i}.example"} for i in range(size // 25)]
                body["spec"] = {**spec, "rules": rules}
            await client.create(resource, "default", body)
        await until(lambda: len(diary.lines) == 4)
        assert diary.lines == ["add a", "add b", "add c", "add d"]
        await client.list(resource, "default")
        assert (await client.get(resource, "default", "b"))["metadata"]["name"] == "b"
        assert threading.main_thread() not in threads
        await stopped(task)
