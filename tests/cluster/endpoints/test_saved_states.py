"""Saving the objects of a cluster and restoring them as ordinary changes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Sequence
from typing import Any

import orjson

from transom.cluster.endpoints.saved_states import SavedStates
from transom.http.messages import HttpRequest, HttpResponse
from transom.kit.clock import VirtualClock
from transom.store.api import StoreEvent
from transom.store.memory import MemoryStore


class States:
    """A store with a clock, and the requests of a test."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.store = MemoryStore(self.clock)
        self.services: list[tuple[bool, bool]] = []
        self.states = SavedStates(
            self.store,
            self.clock,
            random.Random(1),
            lambda old, new: self.services.append((old is not None, new is not None)),
        )

    async def put(self, key: str, obj: dict[str, Any], ttl: float | None = None) -> None:
        def encode(revision: int) -> bytes:
            obj["metadata"]["resourceVersion"] = str(revision)
            return orjson.dumps(obj)

        await self.store.put(key, encode, ttl=ttl)

    def get(self, key: str) -> Any:
        record = self.store.get(key)
        return None if record is None else orjson.loads(record.value)

    async def request(self, method: str, path: str) -> tuple[int, Any]:
        whole = "/transom/states" + path
        request = HttpRequest(method, whole.encode(), whole, {})
        answer = await self.states(request)
        assert isinstance(answer, HttpResponse)
        return answer.status, orjson.loads(bytes(answer.body))

    async def save(self) -> str:
        status, answer = await self.request("POST", "")
        assert status == 201
        return str(answer["id"])

    async def restore(self, name: str) -> int:
        status, answer = await self.request("POST", f"/{name}/restore")
        assert status == 200, answer
        return int(answer["changes"])


def config_map(uid: str, colour: str, **meta: Any) -> dict[str, Any]:
    return {"metadata": {"name": "a", "uid": uid, **meta}, "data": {"colour": colour}}


def pod(uid: str, phase: str, node: str = "linux-1") -> dict[str, Any]:
    return {
        "metadata": {"name": "web", "uid": uid},
        "spec": {"nodeName": node} if node else {},
        "status": {"phase": phase, "qosClass": "BestEffort", "podIP": "10.0.0.1"},
    }


async def test_objects_come_back_and_watchers_see_ordinary_changes() -> None:
    own = States()
    await own.store.start()
    await own.put("configmaps/default/changed", config_map("u1", "blue"))
    await own.put("configmaps/default/deleted", config_map("u2", "blue"))
    await own.put("configmaps/default/same", config_map("u3", "blue"))
    name = await own.save()
    seen: list[StoreEvent] = []

    def note(events: Sequence[StoreEvent]) -> None:
        seen.extend(events)

    await own.put("configmaps/default/changed", config_map("u1", "red"))
    await own.store.delete("configmaps/default/deleted")
    await own.put("configmaps/default/new", config_map("u4", "red"))
    revision = own.store.revision
    own.store.watch("configmaps/", revision, note)
    assert await own.restore(name) == 3
    assert [(e.key.rpartition("/")[2], e.record is not None) for e in seen] == [
        ("new", False),
        ("changed", True),
        ("deleted", True),
    ]
    changed = own.get("configmaps/default/changed")
    assert changed["data"] == {"colour": "blue"} and changed["metadata"]["uid"] == "u1"
    assert changed["metadata"]["resourceVersion"] == str(revision + 2)
    assert own.get("configmaps/default/deleted")["data"] == {"colour": "blue"}
    assert own.get("configmaps/default/new") is None
    assert await own.restore(name) == 0
    await own.store.close()


async def test_writes_that_are_not_durable_yet_count() -> None:
    """A kubelet deletes a pod, and a controller changes an object, while a test restores."""
    own = States()
    await own.store.start()
    await own.put("pods/default/web", pod("u1", "Running"))
    await own.put("configmaps/default/a", config_map("u2", "blue"))
    name = await own.save()
    await own.put("pods/default/web", pod("u3", "Running"))
    red = orjson.dumps(config_map("u2", "red"))
    accepted: list[Awaitable[object]] = [
        own.store.delete("pods/default/web"),
        own.store.put("configmaps/default/a", lambda revision: red),
    ]
    assert await own.restore(name) == 2
    for write in accepted:
        await write
    assert own.get("pods/default/web")["status"]["phase"] == "Pending"
    assert own.get("configmaps/default/a")["data"] == {"colour": "blue"}
    await own.store.close()


async def test_a_created_object_has_a_new_uid_and_references_follow() -> None:
    own = States()
    await own.store.start()
    owner = {"ownerReferences": [{"kind": "ConfigMap", "name": "a", "uid": "uid-of-the-owner"}]}
    await own.put("configmaps/default/owner", config_map("uid-of-the-owner", "blue"))
    await own.put("configmaps/default/owned", config_map("u2", "blue", **owner))
    name = await own.save()
    for _ in range(2):
        before = own.get("configmaps/default/owner")["metadata"]["uid"]
        await own.store.delete("configmaps/default/owner")
        await own.restore(name)
        after = own.get("configmaps/default/owner")["metadata"]["uid"]
        assert after != before
        owned = own.get("configmaps/default/owned")["metadata"]
        assert owned["ownerReferences"][0]["uid"] == after and owned["uid"] == "u2"
    await own.store.close()


async def test_what_nodes_report_stays() -> None:
    own = States()
    await own.store.start()
    lease = "leases.coordination.k8s.io/kube-node-lease/linux-1"
    await own.put(lease, {"metadata": {"name": "linux-1", "uid": "l"}, "spec": {"renewTime": "1"}})
    node = {"metadata": {"name": "linux-1", "uid": "n"}, "status": {"phase": "old"}}
    await own.put("nodes/linux-1", node)
    await own.put("pods/default/running", pod("p1", "Running"))
    await own.put("pods/default/deleted", pod("p2", "Running"))
    await own.put("pods/default/finished", pod("p3", "Succeeded"))
    name = await own.save()
    await own.put(lease, {"metadata": {"name": "linux-1", "uid": "l"}, "spec": {"renewTime": "2"}})
    await own.put("nodes/linux-1", {**node, "spec": {"unschedulable": True}, "status": {"a": 1}})
    await own.put("nodes/linux-2", {"metadata": {"name": "linux-2", "uid": "n2"}})
    await own.put("pods/default/running", {**pod("p1", "Running"), "status": {"phase": "Pending"}})
    await own.store.delete("pods/default/deleted")
    await own.store.delete("pods/default/finished")
    await own.restore(name)
    assert own.get(lease)["spec"] == {"renewTime": "2"}
    restored = own.get("nodes/linux-1")
    assert "spec" not in restored and restored["status"] == {"a": 1}
    assert own.get("nodes/linux-2") is not None
    assert own.get("pods/default/running")["status"] == {"phase": "Pending"}
    assert own.get("pods/default/deleted")["status"] == {
        "phase": "Pending",
        "qosClass": "BestEffort",
    }
    assert own.get("pods/default/finished")["status"]["phase"] == "Succeeded"
    await own.store.close()


async def test_a_pod_that_its_kubelet_stops_is_replaced() -> None:
    own = States()
    await own.store.start()
    await own.put("pods/default/web", pod("p1", "Running"))
    name = await own.save()
    stopping = pod("p1", "Running")
    stopping["metadata"]["deletionTimestamp"] = "2020-01-02T03:04:05Z"
    await own.put("pods/default/web", stopping)
    assert await own.restore(name) == 2  # a deletion and a creation
    found = own.get("pods/default/web")["metadata"]
    assert found["uid"] != "p1" and "deletionTimestamp" not in found
    await own.store.close()


async def test_expired_objects_stay_away() -> None:
    own = States()
    await own.store.start()
    await own.put("events/default/short", config_map("e1", "blue"), ttl=10)
    await own.put("events/default/long", config_map("e2", "blue"), ttl=1000)
    name = await own.save()
    await own.store.delete("events/default/long")
    own.clock.advance(100)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert own.get("events/default/short") is None
    await own.restore(name)
    assert own.get("events/default/short") is None
    record = own.store.get("events/default/long")
    assert record is not None and record.expires == own.clock.time() + 900
    await own.store.close()


async def test_services_keep_their_allocations() -> None:
    own = States()
    await own.store.start()
    await own.put("services/default/old", config_map("s1", "blue"))
    name = await own.save()
    await own.put("services/default/new", config_map("s2", "blue"))
    await own.store.delete("services/default/old")
    await own.restore(name)
    assert own.services == [(True, False), (False, True)]
    await own.store.close()


async def test_unknown_states_and_paths() -> None:
    own = States()
    await own.store.start()
    assert (await own.request("POST", "/17/restore"))[0] == 404
    assert (await own.request("GET", "/17"))[0] == 404
    assert (await own.request("DELETE", "/17"))[0] == 200
    await own.store.close()
