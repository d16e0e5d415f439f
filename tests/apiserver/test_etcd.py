"""API servers on one etcd: what one writes, the others serve, and nothing is granted twice."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from tests.apiserver.harness import Api
from tests.etcd_process import EtcdProcess, eventually, require_etcd

from transom.apiserver.core.registry_layout import RegistryLayout
from transom.apiserver.server import ServerOptions, build_api_server
from transom.kit.clock import RealClock
from transom.machinery import protobuf
from transom.machinery.kinds import GVK
from transom.machinery.releases import Release
from transom.store.etcd import wire
from transom.store.etcd.client import EtcdClient, parse_etcd_address
from transom.store.etcd.store import EtcdStore

MAPS = "/api/v1/namespaces/default/configmaps"
SERVICES = "/api/v1/namespaces/default/services"
PODS = "/api/v1/namespaces/default/pods"
DEFINITION = {
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": data}


async def answers(api: Api, target: str, status: int, body: Any = None) -> bool:
    return (await api.call("GET" if body is None else "POST", target, body))[0] == status


async def start_server(url: str, advertised: str = "", key: bytes = b"") -> Api:
    address = parse_etcd_address(url)
    store = EtcdStore(EtcdClient(address), address.prefix, RegistryLayout())
    server = build_api_server(
        ServerOptions(
            store=store,
            address="127.0.0.1:6443",
            advertised_address=advertised,
            service_account_key=key,
        )
    )
    await server.start()
    return Api(server, RealClock())


@contextlib.asynccontextmanager
async def servers(url: str, count: int = 2) -> AsyncIterator[list[Api]]:
    """That start at the same time."""
    running = await asyncio.gather(*(start_server(url) for _ in range(count)))
    try:
        yield list(running)
    finally:
        for api in running:
            await api.server.stop()


@asynccontextmanager
async def run_with_servers(etcd: EtcdProcess) -> AsyncIterator[tuple[Api, Api]]:
    async with servers(etcd.fresh_url()) as (first, second):
        yield (first, second)


async def test_a_write_is_served_and_watched_on_the_other_server(etcd: EtcdProcess) -> None:
    async with run_with_servers(etcd) as (first, second):
        stream = await second.watch(MAPS + "?watch=1")
        made = await first.ok("POST", MAPS, config_map("a", x="1"))
        assert await second.ok("GET", f"{MAPS}/a") == made
        [event] = stream.events()
        assert (event["type"], event["object"]["metadata"]) == ("ADDED", made["metadata"])
        listed = await second.ok("GET", MAPS)
        assert [one["metadata"]["name"] for one in listed["items"]] == ["a"]
        assert int(listed["metadata"]["resourceVersion"]) >= int(
            made["metadata"]["resourceVersion"]
        )
        # An exact version, and one that this server may not have seen yet.
        version = listed["metadata"]["resourceVersion"]
        await second.ok("PUT", f"{MAPS}/a", {**made, "data": {"x": "2"}})
        old = await first.ok("GET", f"{MAPS}?resourceVersion={version}&resourceVersionMatch=Exact")
        assert [one["data"] for one in old["items"]] == [{"x": "1"}]
        gone = await first.ok("DELETE", f"{MAPS}/a")
        assert gone["status"] == "Success"
        spec = {"containers": [{"name": "c", "image": "i"}], "automountServiceAccountToken": False}
        accounts = "/api/v1/namespaces/default/serviceaccounts"
        await first.ok("POST", accounts, {"metadata": {"name": "default"}})
        await first.ok("POST", PODS, {"metadata": {"name": "p"}, "spec": spec})
        last = await second.ok("DELETE", f"{PODS}/p")  # not scheduled: deleted at once
        assert int(last["metadata"]["resourceVersion"]) < int(
            (await first.ok("GET", PODS))["metadata"]["resourceVersion"]
        )
        assert (await second.call("GET", f"{MAPS}/a"))[0] == 404
        assert [event["type"] for event in stream.events()] == ["MODIFIED", "DELETED"]


async def test_conflicts_are_detected_across_servers(etcd: EtcdProcess) -> None:
    async with run_with_servers(etcd) as (first, second):
        made = await first.ok("POST", MAPS, config_map("a"))
        answers = await asyncio.gather(
            *(
                api.call("PUT", f"{MAPS}/a", {**made, "data": {"by": name}})
                for name, api in (("first", first), ("second", second))
            )
        )
        assert sorted(status for status, _ in answers) == [200, 409]
        created = await asyncio.gather(
            *(api.call("POST", MAPS, config_map("b")) for api in (first, second))
        )
        assert sorted(status for status, _ in created) == [201, 409]
        assert [body["reason"] for status, body in created if status == 409] == ["AlreadyExists"]
        # Patches have no version: the servers retry them.
        await asyncio.gather(
            *(
                api.ok(
                    "PATCH",
                    f"{MAPS}/a",
                    {"data": {f"k{number}": "x"}},
                    media="application/merge-patch+json",
                )
                for number, api in enumerate([first, second] * 12)
            )
        )
        found = await first.ok("GET", f"{MAPS}/a")
        assert {f"k{number}" for number in range(24)} <= found["data"].keys()


async def test_no_address_or_port_is_allocated_twice(etcd: EtcdProcess) -> None:
    async with run_with_servers(etcd) as (first, second):

        async def create(api: Api, number: int, **spec: Any) -> tuple[int, Any]:
            spec = {"type": "NodePort", "ports": [{"port": 80}], **spec}
            body = {"metadata": {"name": f"s{number}"}, "spec": spec}
            return await api.call("POST", SERVICES, body)

        made = await asyncio.gather(
            *(create((first, second)[number % 2], number) for number in range(30))
        )
        assert {status for status, _ in made} == {201}
        specs = [service["spec"] for _, service in made]
        assert len({spec["clusterIP"] for spec in specs}) == 30
        assert len({spec["ports"][0]["nodePort"] for spec in specs}) == 30
        # The same fixed address on both: one gets it.
        fixed = await asyncio.gather(
            create(first, 100, clusterIP="10.96.0.77", type="ClusterIP"),
            create(second, 101, clusterIP="10.96.0.77", type="ClusterIP"),
        )
        assert sorted(status for status, _ in fixed) == [201, 422]
        [refused] = [body for status, body in fixed if status == 422]
        assert "already allocated" in refused["message"]
        # What one releases, the other may use.
        [owner] = [body["metadata"]["name"] for status, body in fixed if status == 201]
        await first.ok(
            "POST",
            "/api/v1/namespaces/default/endpoints",
            {"metadata": {"name": owner}, "subsets": []},
        )
        ended = await asyncio.gather(
            first.ok("DELETE", f"{SERVICES}/{owner}"),
            *(
                second.call(
                    "PATCH",
                    f"/api/v1/namespaces/default/endpoints/{owner}",
                    {"metadata": {"labels": {"n": str(number)}}},
                    media="application/merge-patch+json",
                )
                for number in range(5)
            ),
        )
        assert ended[0]["status"] == "Success"
        missing = f"/api/v1/namespaces/default/endpoints/{owner}"
        assert (await second.call("GET", missing))[0] == 404
        status, _ = await create(second, 102, clusterIP="10.96.0.77", type="ClusterIP")
        assert status == 201


async def test_quota_is_not_exceeded_by_two_servers(etcd: EtcdProcess) -> None:
    async with run_with_servers(etcd) as (first, second):
        quota = "/api/v1/namespaces/default/resourcequotas"
        hard = {"configmaps": "7"}
        made = await first.ok("POST", quota, {"metadata": {"name": "q"}, "spec": {"hard": hard}})
        made["status"] = {"hard": hard, "used": {"configmaps": "0"}}
        await first.ok("PUT", f"{quota}/q/status", made)
        await second.ok("GET", f"{quota}/q")
        answers = await asyncio.gather(
            *(
                (first, second)[number % 2].call("POST", MAPS, config_map(f"m{number}"))
                for number in range(20)
            )
        )
        assert [status for status, _ in answers].count(201) == 7
        assert [status for status, _ in answers].count(403) == 13
        used = await second.ok("GET", f"{quota}/q")
        # Object and charge are one transaction: no recount can come between them.
        maps = await second.ok("GET", "/api/v1/namespaces/default/configmaps")
        newest = max(int(one["metadata"]["resourceVersion"]) for one in maps["items"])
        assert used["metadata"]["resourceVersion"] == str(newest)
        assert used["status"]["used"] == {"configmaps": "7"}


async def test_namespaces_and_definitions_of_one_server_are_used_by_the_other(
    etcd: EtcdProcess,
) -> None:
    async with run_with_servers(etcd) as (first, second):
        for number in range(5):
            name = f"ns-{number}"
            await first.ok("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
            await second.ok("POST", f"/api/v1/namespaces/{name}/configmaps", config_map("a"))
            account = {"metadata": {"name": "robot"}}
            await second.ok("POST", f"/api/v1/namespaces/{name}/serviceaccounts", account)
            spec = {
                "serviceAccountName": "robot",
                "automountServiceAccountToken": False,
                "containers": [{"name": "c", "image": "i"}],
            }
            pod = {"metadata": {"name": "p"}, "spec": spec}
            await first.ok("POST", f"/api/v1/namespaces/{name}/pods", pod)
        await first.ok(
            "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", DEFINITION
        )
        widgets = "/apis/example.com/v1/namespaces/default/widgets"
        await eventually(lambda: answers(second, widgets, 200))
        widget = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}}
        made = await second.ok("POST", widgets, {**widget, "spec": {"size": 3}})
        await eventually(lambda: answers(first, widgets, 200))
        assert await first.ok("GET", f"{widgets}/w") == made
        await first.ok(
            "PATCH",
            f"{widgets}/w",
            {"spec": {"size": 4}},
            media="application/merge-patch+json",
        )
        assert (await second.ok("GET", f"{widgets}/w"))["spec"] == {"size": 4}


async def test_the_endpoints_of_kubernetes_are_the_servers_that_run(etcd: EtcdProcess) -> None:
    url = etcd.fresh_url()
    first, second = await asyncio.gather(
        start_server(url, "10.0.0.1"), start_server(url, "10.0.0.2")
    )
    endpoints = "/api/v1/namespaces/default/endpoints/kubernetes"
    slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes"

    async def listed(api: Api, *wanted: str) -> bool:
        status, found = await api.call("GET", endpoints)
        if status != 200:
            return False
        subsets = found.get("subsets") or []
        there = [one["ip"] for subset in subsets for one in subset["addresses"]]
        _, part = await api.call("GET", slices)
        mirrored = [one["addresses"][0] for one in part["endpoints"] or ()]
        return there == mirrored == list(wanted)

    await eventually(lambda: listed(first, "10.0.0.1", "10.0.0.2"))
    found = await second.ok("GET", endpoints)
    assert found["metadata"]["labels"] == {"endpointslice.kubernetes.io/skip-mirror": "true"}
    port = {"name": "https", "port": 6443, "protocol": "TCP"}
    assert found["subsets"][0]["ports"] == [port]
    client = EtcdClient(parse_etcd_address(url))
    prefix = parse_etcd_address(url).prefix
    lease = await client.range(wire.range_request(f"{prefix}/masterleases/10.0.0.1".encode()))
    assert lease.kvs[0].lease  # it expires unless it is renewed
    assert orjson.loads(lease.kvs[0].value)["subsets"] == [{"addresses": [{"ip": "10.0.0.1"}]}]
    # An apiserver of Kubernetes that runs beside them writes protobuf; one that died is gone.
    other = {"metadata": {"generation": 1}, "subsets": [{"addresses": [{"ip": "10.0.0.9"}]}]}
    value = protobuf.encode_protobuf(other, GVK("", "v1", "Endpoints"))
    key = f"{prefix}/masterleases/10.0.0.9".encode()
    await client.txn(wire.txn_request((), (wire.op_put(wire.put_request(key, value)),)))
    await eventually(lambda: listed(second, "10.0.0.1", "10.0.0.2", "10.0.0.9"))
    await client.txn(wire.txn_request((), (wire.op_delete(wire.delete_request(key)),)))
    await eventually(lambda: listed(second, "10.0.0.1", "10.0.0.2"))
    await client.close()
    # One that ends removes itself.
    await first.server.stop()
    assert await listed(second, "10.0.0.2")
    await second.server.stop()


async def test_a_token_is_not_valid_on_any_server_once_its_pod_is_gone(etcd: EtcdProcess) -> None:
    url = etcd.fresh_url()
    key = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    first, second = await asyncio.gather(start_server(url, key=key), start_server(url, key=key))
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    await first.ok("POST", accounts, {"metadata": {"name": "robot"}})
    spec = {
        "serviceAccountName": "robot",
        "automountServiceAccountToken": False,
        "containers": [{"name": "c", "image": "i"}],
    }
    pod = await second.ok("POST", PODS, {"metadata": {"name": "p"}, "spec": spec})
    bound = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": pod["metadata"]["uid"]}
    request = {"spec": {"boundObjectRef": bound, "audiences": [], "expirationSeconds": 600}}
    made = await first.ok("POST", f"{accounts}/robot/token", request)
    headers = {b"authorization": b"Bearer " + made["status"]["token"].encode()}

    async def valid(api: Api) -> bool:
        review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        body = {"spec": {"nonResourceAttributes": {"path": "/api", "verb": "get"}}}
        status, _ = await api.call("POST", review, body, peer=None, headers=headers)
        return status == 201

    async def refused(api: Api) -> bool:
        return not await valid(api)

    assert await valid(first) and await valid(second)
    await first.ok("DELETE", f"{PODS}/p?gracePeriodSeconds=0")
    assert not await valid(first)
    await eventually(lambda: refused(second))
    await asyncio.gather(first.server.stop(), second.server.stop())


async def test_webhooks_and_priority_levels_of_one_server_apply_on_the_other(
    etcd: EtcdProcess,
) -> None:
    async with run_with_servers(etcd) as (first, second):
        rule = {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "operations": ["CREATE"],
            "resources": ["configmaps"],
        }
        webhook = {
            "name": "w.example.com",
            "rules": [rule],
            "clientConfig": {"url": "https://127.0.0.1:1/"},
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "timeoutSeconds": 1,
        }
        hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
        await first.ok("POST", hooks, {"metadata": {"name": "w"}, "webhooks": [webhook]})
        await eventually(lambda: answers(second, MAPS, 500, config_map("refused")))
        await first.ok("DELETE", f"{hooks}/w")
        await eventually(lambda: answers(second, MAPS, 201, config_map("allowed")))
        level = {
            "metadata": {"name": "small"},
            "spec": {
                "type": "Limited",
                "limited": {"assuredConcurrencyShares": 7, "limitResponse": {"type": "Reject"}},
            },
        }
        group = "/apis/flowcontrol.apiserver.k8s.io/v1beta1"
        await first.ok("POST", f"{group}/prioritylevelconfigurations", level)

        async def has_level() -> bool:
            _, text = await second.call("GET", "/metrics")
            return 'priority_level="small"' in text

        await eventually(has_level)


async def test_continue_tokens_work_on_every_server(etcd: EtcdProcess) -> None:
    url = etcd.fresh_url()

    async def scenario(first: Api, second: Api) -> None:
        for number in range(5):
            await first.ok("POST", MAPS, config_map(f"m{number}"))
        page = await first.ok("GET", MAPS + "?limit=2")
        await first.ok("DELETE", f"{MAPS}/m4")
        token = page["metadata"]["continue"]
        rest = await second.ok("GET", f"{MAPS}?limit=9&continue={token}")
        assert [one["metadata"]["name"] for one in rest["items"]] == ["m2", "m3", "m4"]
        assert rest["metadata"]["resourceVersion"] == page["metadata"]["resourceVersion"]
        # One that started later has no history of its own, and asks etcd.
        late = await start_server(url)
        for selector in ("", "&labelSelector=!x"):
            late_rest = await late.ok("GET", f"{MAPS}?limit=2{selector}&continue={token}")
            names = [one["metadata"]["name"] for one in late_rest["items"]]
            assert names == ["m2", "m3"]
            assert late_rest["metadata"].get("remainingItemCount") == (None if selector else 1)
            more = late_rest["metadata"]["continue"]
            last = await late.ok("GET", f"{MAPS}?limit=2{selector}&continue={more}")
            assert [one["metadata"]["name"] for one in last["items"]] == ["m4"]
        await late.server.stop()

    async with servers(url) as (first, second):
        await scenario(first, second)


async def test_objects_in_etcd_look_as_in_kubernetes(etcd: EtcdProcess) -> None:
    url = etcd.fresh_url()
    prefix = parse_etcd_address(url).prefix
    async with servers(url, 1) as [api]:
        await api.ok(
            "POST", SERVICES, {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 1}]}}
        )
        await api.ok("POST", "/api/v1/nodes", {"metadata": {"name": "n"}})
        event = {
            "metadata": {"name": "e"},
            "involvedObject": {"kind": "Pod", "namespace": "default", "resourceVersion": "5"},
        }
        made = await api.ok("POST", "/api/v1/namespaces/default/events", event)
        assert made["involvedObject"]["resourceVersion"] == "5"
        client = EtcdClient(parse_etcd_address(url))
        start = prefix.encode() + b"/"
        found = await client.range(wire.range_request(start, wire.prefix_end(start)))
        by_key = {kv.key.decode()[len(start) :]: kv for kv in found.kvs}
        for key, kind in (
            ("services/specs/default/s", "Service"),
            ("minions/n", "Node"),
            ("events/default/e", "Event"),
            ("clusterroles/admin", "ClusterRole"),
            ("apiregistration.k8s.io/apiservices/v1.apps", "APIService"),
        ):
            stored = orjson.loads(by_key[key].value)
            assert stored["kind"] == kind and stored["apiVersion"]
            assert "resourceVersion" not in stored["metadata"]
            assert list(stored)[:3] == ["kind", "apiVersion", "metadata"]
        assert by_key["events/default/e"].lease
        assert not by_key["minions/n"].lease
        await client.close()


async def test_values_of_a_kube_apiserver_can_be_read(etcd: EtcdProcess) -> None:
    """JSON with other members first, protobuf, and keys that are none of ours."""
    meta = {"name": "k", "namespace": "default", "uid": "u", "creationTimestamp": None}

    url = etcd.fresh_url()
    prefix = parse_etcd_address(url).prefix
    client = EtcdClient(parse_etcd_address(url))
    secret = {"metadata": meta, "type": "Opaque", "data": {"a": "eA=="}}
    values = {
        "configmaps/default/k": orjson.dumps(
            {"data": {"a": "b"}, "apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}
        ),
        "secrets/default/k": protobuf.encode_protobuf(secret, GVK("", "v1", "Secret")),
        "ranges/serviceips": b"k8s\x00...",
        "masterleases/10.0.0.1": protobuf.encode_protobuf(
            {"subsets": [{"addresses": [{"ip": "10.0.0.1"}]}]}, GVK("", "v1", "Endpoints")
        ),
    }
    revisions = {}
    for key, value in values.items():
        put = wire.op_put(wire.put_request(f"{prefix}/{key}".encode(), value))
        revisions[key] = (await client.txn(wire.txn_request((), (put,)))).revision
    async with servers(url, 1) as [api]:
        found = await api.ok("GET", f"{MAPS}/k")
        assert found["data"] == {"a": "b"}
        assert found["metadata"]["resourceVersion"] == str(revisions["configmaps/default/k"])
        found = await api.ok("GET", "/api/v1/namespaces/default/secrets/k")
        assert (found["data"], found["type"]) == ({"a": "eA=="}, "Opaque")
        assert found["metadata"]["resourceVersion"] == str(revisions["secrets/default/k"])
        found["data"]["b"] = "eQ=="
        await api.ok("PUT", "/api/v1/namespaces/default/secrets/k", found)
    await client.close()


def test_without_etcd_reads_of_the_cache_continue_and_everything_else_fails(
    tmp_path: Path,
) -> None:
    require_etcd()
    member = EtcdProcess(tmp_path / "etcd").start()

    async def main() -> None:
        async with servers(member.fresh_url(), 1) as [api]:
            await api.ok("POST", MAPS, config_map("a"))
            stream = await api.watch(MAPS + "?watch=1")
            assert [event["type"] for event in stream.events()] == ["ADDED"]
            member.kill()
            status, body = await api.call("POST", MAPS, config_map("b"))
            assert (status, body.get("reason", "")) == (500, "")
            assert body["message"].startswith("rpc error: code = Unavailable desc = ")
            assert (await api.call("GET", f"{MAPS}/a"))[0] == 500
            found = await api.ok("GET", MAPS + "?resourceVersion=0")
            assert [one["metadata"]["name"] for one in found["items"]] == ["a"]
            await eventually(lambda: answers(api, "/readyz", 500))
            _, text = await api.call("GET", "/readyz/etcd")
            assert "error getting data from etcd" in text
            await asyncio.to_thread(member.start)
            await eventually(lambda: answers(api, MAPS, 201, config_map("c")))
            await eventually(lambda: answers(api, "/readyz", 200))
            assert [event["object"]["metadata"]["name"] for event in stream.events()] == ["c"]
            assert stream.alive

    try:
        asyncio.run(main())
    finally:
        member.kill()


async def test_values_at_former_paths_move_when_a_server_starts(etcd: EtcdProcess) -> None:
    """Kinds that came after 1.20 were written with their group in the key, where a kube-apiserver does
    not look for them.
    """
    address = parse_etcd_address(etcd.fresh_url())
    client = EtcdClient(address)
    former, current = (
        f"{address.prefix}/{path}".encode()
        for path in ("resource.k8s.io/deviceclasses/a", "deviceclasses/a")
    )
    value = b'{"kind":"DeviceClass","apiVersion":"resource.k8s.io/v1","metadata":{"name":"a"}}'
    await client.txn(wire.txn_request((), (wire.op_put(wire.put_request(former, value)),)))
    layout = RegistryLayout(Release(1, 36))
    stores = [EtcdStore(EtcdClient(address), address.prefix, layout) for _ in range(2)]
    await asyncio.gather(*(store.start() for store in stores))
    [kv] = (await client.range(wire.range_request(current))).kvs
    assert kv.value == value
    assert not (await client.range(wire.range_request(former))).kvs
    for store in stores:
        await store.sync()
        record = store.get("deviceclasses.resource.k8s.io/a")
        assert record is not None and record.mod_revision == kv.mod_revision
        assert store.count("deviceclasses.resource.k8s.io/") == 1
        await store.close()
    await client.close()
