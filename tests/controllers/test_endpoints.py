"""Endpoints and EndpointSlices show the pods behind a service as Kubernetes shows them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.conftest import ContextFactory

from transom.apiserver.serving.inprocess import InProcessClient
from transom.client.resources import (
    ENDPOINT_SLICES,
    ENDPOINTS,
    EVENTS,
    NODES,
    PODS,
    RESOURCE_QUOTAS,
    SERVICE_ACCOUNTS,
    SERVICES,
)
from transom.controllers.endpoints import endpoint_subsets, truncate_endpoints
from transom.machinery.errors import conflict
from transom.machinery.objects import Object

from .conftest import Plane

Play = Callable[..., None]
NS = "default"
BOTH = ("endpoint", "endpointslice")


async def begin(plane: Plane, labels: dict[str, str] | None = None) -> None:
    await plane.client.create(
        SERVICE_ACCOUNTS,
        NS,
        {"metadata": {"name": "default"}, "automountServiceAccountToken": False},
    )
    await plane.client.create(NODES, "", {"metadata": {"name": "n", "labels": labels or {}}})


async def add_pod(
    plane: Plane, name: str, ip: str, ready: bool = True, node: str = "n", **spec: Any
) -> None:
    ports = spec.pop("ports", [])
    containers = [{"name": "c", "image": "i", "ports": ports}]
    await plane.client.create(
        PODS,
        NS,
        {
            "metadata": {"name": name, "labels": {"app": "s"}},
            "spec": {"containers": containers, "nodeName": node, **spec},
        },
    )
    condition = {
        "type": "Ready",
        "status": "True" if ready else "False",
        "lastTransitionTime": "2020-01-02T03:04:06Z",
    }
    status = {
        "phase": "Running",
        "podIP": ip.split(",")[0],
        "podIPs": [{"ip": one} for one in ip.split(",")],
        "conditions": [condition],
    }
    await plane.client.patch(PODS, NS, name, {"status": status}, subresource="status")


async def add_service(plane: Plane, name: str = "s", **spec: Any) -> None:
    body = {"selector": {"app": "s"}, "ports": [{"port": 80, "targetPort": 8080}], **spec}
    body = {k: v for k, v in body.items() if v is not None}
    await plane.client.create(
        SERVICES, NS, {"metadata": {"name": name, "labels": {"own": "x"}}, "spec": body}
    )
    await plane.settle()


async def addresses(plane: Plane, name: str = "s") -> list[tuple[list[str], list[str], list[int]]]:
    """Of each subset: ready, not ready, ports."""
    found = (await plane.get(ENDPOINTS, NS, name)).get("subsets") or []
    return [
        (
            [a["ip"] for a in s.get("addresses") or ()],
            [a["ip"] for a in s.get("notReadyAddresses") or ()],
            [p["port"] for p in s.get("ports") or ()],
        )
        for s in found
    ]


async def slices(plane: Plane, name: str = "s") -> list[Object]:
    return (
        await plane.client.list(
            ENDPOINT_SLICES, NS, label_selector=f"kubernetes.io/service-name={name}"
        )
    ).items


def shown(pieces: list[Object]) -> list[tuple[str, list[tuple[str, bool]]]]:
    return sorted(
        (
            s["addressType"],
            sorted((e["addresses"][0], e["conditions"]["ready"]) for e in s["endpoints"] or ()),
        )
        for s in pieces
    )


async def test_pods_come_become_ready_and_go(control_plane: ContextFactory) -> None:
    async with control_plane(*BOTH) as plane:
        await begin(
            plane, {"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r"}
        )
        await add_service(plane)
        assert await addresses(plane) == [] and shown(await slices(plane)) == [("IPv4", [])]
        await add_pod(plane, "a", "10.0.0.1")
        await add_pod(plane, "b", "10.0.0.2", ready=False)
        await plane.settle(3)
        assert await addresses(plane) == [(["10.0.0.1"], ["10.0.0.2"], [8080])]
        (piece,) = await slices(plane)
        assert shown([piece]) == [("IPv4", [("10.0.0.1", True), ("10.0.0.2", False)])]
        assert piece["endpoints"][0]["zone"] == "z" and piece["metadata"]["labels"]["own"] == "x"
        old = (await plane.client.list(ENDPOINT_SLICES.at("v1beta1"), NS)).items[0]
        assert old["endpoints"][0]["topology"] == {
            "kubernetes.io/hostname": "n",
            "topology.kubernetes.io/zone": "z",
            "topology.kubernetes.io/region": "r",
        }
        assert "nodeName" not in old["endpoints"][0]
        ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        await plane.client.patch(PODS, NS, "b", ready, subresource="status")
        await plane.client.delete(PODS, NS, "a")
        await plane.settle(3)
        assert await addresses(plane) == [(["10.0.0.2"], [], [8080])]
        assert shown(await slices(plane)) == [("IPv4", [("10.0.0.2", True)])]
        await plane.client.delete(SERVICES, NS, "s")
        await plane.settle(3)
        assert await plane.missing(ENDPOINTS, NS, "s")


async def test_what_does_not_change_is_not_written(control_plane: ContextFactory) -> None:
    async with control_plane(*BOTH) as plane:
        await begin(plane)
        await add_pod(plane, "a", "10.0.0.1")
        await add_service(plane)
        await plane.settle(5)
        before = (await plane.get(ENDPOINTS, NS, "s")), (await slices(plane))
        await plane.client.patch(SERVICES, NS, "s", {"metadata": {"annotations": {"a": "b"}}})
        await plane.settle(5)
        assert ((await plane.get(ENDPOINTS, NS, "s")), (await slices(plane))) == before
        assert before[0]["metadata"]["annotations"] == {
            "endpoints.kubernetes.io/last-change-trigger-time": before[0]["metadata"][
                "creationTimestamp"
            ]
        }


async def test_labels_of_the_service_are_taken_over(control_plane: ContextFactory) -> None:
    async with control_plane(*BOTH) as plane:
        await begin(plane)
        await add_service(plane)
        labels = {"own": "y", "service.kubernetes.io/headless": "1"}
        await plane.client.patch(SERVICES, NS, "s", {"metadata": {"labels": labels}})
        await plane.settle(3)
        (piece,) = await slices(plane)
        assert piece["metadata"]["labels"] == {
            "own": "y",
            "kubernetes.io/service-name": "s",
            "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
        }
        assert (await plane.get(ENDPOINTS, NS, "s"))["metadata"]["labels"] == {"own": "y"}


async def test_headless_with_names_and_unready_addresses(control_plane: ContextFactory) -> None:
    async with control_plane(*BOTH, dual_stack=False) as plane:
        await begin(plane)
        await add_pod(plane, "a", "10.0.0.1", ready=False, hostname="one", subdomain="s")
        await add_service(plane, clusterIP="None", ports=None, publishNotReadyAddresses=True)
        (subset,) = (await plane.get(ENDPOINTS, NS, "s"))["subsets"]
        assert subset["addresses"][0]["hostname"] == "one" and "ports" not in subset
        assert shown(await slices(plane)) == [("IPv4", [("10.0.0.1", True)]), ("IPv6", [])]
        labels = (await plane.get(ENDPOINTS, NS, "s"))["metadata"]["labels"]
        assert labels == {"own": "x", "service.kubernetes.io/headless": ""}


async def test_both_families(control_plane: ContextFactory) -> None:
    """Endpoints have one family, slices both; a pod that has one address only is in one kind of
    slices.
    """

    async with control_plane(*BOTH) as plane:
        await begin(plane)
        await add_pod(plane, "a", "10.0.0.1,fd00::1")
        await add_pod(plane, "b", "10.0.0.2")
        four, six = [("10.0.0.1", True), ("10.0.0.2", True)], [("fd00::1", True)]
        await add_service(plane, "four")
        await add_service(plane, "six", ipFamilies=["IPv6"])
        await add_service(
            plane, "both", ipFamilyPolicy="RequireDualStack", ipFamilies=["IPv6", "IPv4"]
        )
        await plane.settle(3)
        assert shown(await slices(plane, "four")) == [("IPv4", four)]
        assert shown(await slices(plane, "six")) == [("IPv6", six)]
        assert shown(await slices(plane, "both")) == [("IPv4", four), ("IPv6", six)]
        assert await addresses(plane, "four") == [(["10.0.0.1", "10.0.0.2"], [], [8080])]
        assert (
            await addresses(plane, "both")
            == await addresses(plane, "six")
            == [(["fd00::1"], [], [8080])]
        )


async def test_named_ports_differ_from_pod_to_pod(control_plane: ContextFactory) -> None:
    async with control_plane(*BOTH) as plane:
        await begin(plane)
        await add_pod(plane, "a", "10.0.0.1", ports=[{"name": "web", "containerPort": 1}])
        await add_pod(plane, "b", "10.0.0.2", ports=[{"name": "web", "containerPort": 2}])
        await add_pod(
            plane, "c", "10.0.0.3", ports=[{"name": "web", "containerPort": 1, "protocol": "UDP"}]
        )
        await add_service(plane, ports=[{"port": 80, "targetPort": "web"}])
        assert sorted(await addresses(plane)) == [(["10.0.0.1"], [], [1]), (["10.0.0.2"], [], [2])]
        found = {
            e["addresses"][0]: [p["port"] for p in s["ports"] or ()]
            for s in await slices(plane)
            for e in s["endpoints"]
        }
        assert found == {"10.0.0.1": [1], "10.0.0.2": [2], "10.0.0.3": []}


async def test_without_its_node_nothing_is_written_of_a_pod(control_plane: ContextFactory) -> None:
    async with control_plane(*BOTH) as plane:
        await begin(plane)
        await add_pod(plane, "a", "10.0.0.1", node="absent")
        await add_service(plane)
        await plane.settle(5)
        assert await slices(plane) == [] and await addresses(plane) == [(["10.0.0.1"], [], [8080])]
        messages = [e["message"] for e in (await plane.client.list(EVENTS, NS)).items]
        assert messages == [
            'Error updating Endpoint Slices for Service default/s: node "absent" not found'
        ]
        await plane.client.create(NODES, "", {"metadata": {"name": "absent"}})
        await plane.settle(20)
        assert shown(await slices(plane)) == [("IPv4", [("10.0.0.1", True)])]


async def test_ended_and_leaving_pods_are_left_out(control_plane: ContextFactory) -> None:
    async with control_plane(*BOTH) as plane:
        await begin(plane)
        for name, ip, policy, phase in (
            ("a", "10.0.0.1", "Never", "Failed"),
            ("b", "10.0.0.2", "OnFailure", "Succeeded"),
            ("c", "10.0.0.3", "OnFailure", "Failed"),
            ("d", "10.0.0.4", "Always", "Succeeded"),
        ):
            await add_pod(plane, name, ip, ready=False, restartPolicy=policy)
            await plane.client.patch(
                PODS, NS, name, {"status": {"phase": phase}}, subresource="status"
            )
        await add_pod(plane, "e", "10.0.0.5")
        await plane.client.delete(PODS, NS, "e")
        await add_service(plane)
        assert await addresses(plane) == [([], ["10.0.0.3", "10.0.0.4"], [8080])]
        assert shown(await slices(plane)) == [("IPv4", [("10.0.0.3", False), ("10.0.0.4", False)])]


async def test_external_names_and_no_selector(control_plane: ContextFactory) -> None:
    async with control_plane(*BOTH) as plane:
        await begin(plane)
        await add_pod(plane, "a", "10.0.0.1")
        await add_service(plane, "ext", type="ExternalName", externalName="example.com")
        await add_service(plane, "none", selector=None)
        assert await addresses(plane, "ext") == [(["10.0.0.1"], [], [8080])]
        assert await plane.missing(ENDPOINTS, NS, "none") and await slices(plane, "none") == []


async def test_hundreds_of_pods_fill_slices_and_few_are_touched(
    control_plane: ContextFactory,
) -> None:
    async with control_plane("endpointslice") as plane:
        await begin(plane)
        for i in range(150):
            await add_pod(plane, f"p{i}", f"10.0.{i // 100}.{i % 100}")
        await add_service(plane)
        before = {s["metadata"]["name"]: s for s in await slices(plane)}
        assert sorted(len(s["endpoints"]) for s in before.values()) == [50, 100]
        small = next(n for n, s in before.items() if len(s["endpoints"]) == 50)
        await add_pod(plane, "q", "10.0.9.1")
        await plane.settle(3)
        after = {s["metadata"]["name"]: s for s in await slices(plane)}
        assert [n for n in after if after[n] != before[n]] == [small] and len(
            after[small]["endpoints"]
        ) == 51
        await plane.client.delete(
            PODS, NS, after[small]["endpoints"][0]["targetRef"]["name"], grace=0
        )
        await plane.settle(3)
        last = {s["metadata"]["name"]: s for s in await slices(plane)}
        assert [n for n in last if last[n] != after[n]] == [small]


async def test_slices_that_others_spoil_are_put_right(control_plane: ContextFactory) -> None:
    async with control_plane(*BOTH) as plane:
        await begin(plane)
        await add_pod(plane, "a", "10.0.0.1")
        await add_service(plane)
        (piece,) = await slices(plane)
        await plane.client.update(ENDPOINT_SLICES, {**piece, "endpoints": []})
        await plane.settle(3)
        assert shown(await slices(plane)) == [("IPv4", [("10.0.0.1", True)])]
        await plane.client.delete(ENDPOINT_SLICES, NS, piece["metadata"]["name"])
        await plane.settle(3)
        assert shown(await slices(plane)) == [("IPv4", [("10.0.0.1", True)])]
        await plane.client.delete(ENDPOINTS, NS, "s")
        await plane.settle(3)
        assert await addresses(plane) == [(["10.0.0.1"], [], [8080])]


async def test_conflicts_are_overcome(
    control_plane: ContextFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = InProcessClient.update
    refused: list[Any] = []

    async def update(self: InProcessClient, resource: Any, obj: Object, **more: Any) -> Object:
        if resource in (ENDPOINTS, ENDPOINT_SLICES) and len(refused) < 6:
            refused.append(resource)
            raise conflict(
                resource.group_resource, obj["metadata"]["name"], "the object has been modified"
            )
        return await original(self, resource, obj, **more)

    monkeypatch.setattr(InProcessClient, "update", update)

    async with control_plane(*BOTH) as plane:
        await begin(plane)
        await add_service(plane)
        await add_pod(plane, "a", "10.0.0.1")
        await plane.settle(60)
        assert await addresses(plane) == [(["10.0.0.1"], [], [8080])]
        assert shown(await slices(plane)) == [("IPv4", [("10.0.0.1", True)])]


async def test_left_over_endpoints_go_at_the_start_but_not_locks(
    control_plane: ContextFactory,
) -> None:
    async with control_plane("endpoint") as plane:
        await plane.stop_controllers()
        lock = {"control-plane.alpha.kubernetes.io/leader": "{}"}
        await plane.client.create(ENDPOINTS, NS, {"metadata": {"name": "old"}})
        await plane.client.create(
            ENDPOINTS, NS, {"metadata": {"name": "lock", "annotations": lock}}
        )
        plane.start_controllers()
        await plane.settle()
        assert await plane.missing(ENDPOINTS, NS, "old") and not await plane.missing(
            ENDPOINTS, NS, "lock"
        )


# ---- both families ----


def test_a_service_of_two_families(control_plane: ContextFactory) -> None:
    pod: Object = {
        "metadata": {"name": "a", "namespace": NS, "uid": "u", "resourceVersion": "1"},
        "spec": {"nodeName": "n", "containers": []},
        "status": {
            "phase": "Running",
            "podIP": "10.0.0.1",
            "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}],
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    service: Object = {
        "metadata": {"name": "s", "namespace": NS},
        "spec": {
            "clusterIP": "fd::1",
            "ipFamilies": ["IPv6", "IPv4"],
            "ports": [{"port": 1, "targetPort": 1}],
        },
    }
    assert endpoint_subsets(service, [pod])[0]["addresses"][0]["ip"] == "fd00::1"
    del service["spec"]["ipFamilies"]
    assert endpoint_subsets(service, [pod])[0]["addresses"][0]["ip"] == "10.0.0.1"


@pytest.mark.parametrize(
    ("sizes", "left"),
    [
        ([(900, 50)], [(900, 50)]),
        ([(900, 300)], [(900, 100)]),
        ([(1200, 300), (300, 0)], [(800, 0), (200, 0)]),
        ([(0, 1500), (1, 0)], [(0, 999), (1, 0)]),
    ],
)
def test_too_many_addresses_are_cut_fairly(
    sizes: list[tuple[int, int]], left: list[tuple[int, int]]
) -> None:
    fields = ("addresses", "notReadyAddresses")
    found = [
        {f: [{"ip": str(i)} for i in range(n)] for f, n in zip(fields, size, strict=True) if n}
        for size in sizes
    ]
    assert truncate_endpoints(found) == (sum(map(sum, sizes)) > 1000)
    assert [tuple(len(s.get(f) or ()) for f in fields) for s in found] == left


# ---- mirroring ----


async def test_written_endpoints_are_mirrored(control_plane: ContextFactory) -> None:
    skip = "endpointslice.kubernetes.io/skip-mirror"

    async with control_plane("endpointslicemirroring") as plane:
        await add_service(plane, "m", selector=None)
        body: Object = {
            "metadata": {"name": "m", "labels": {"mine": "1"}, "annotations": {"note": "n"}},
            "subsets": [
                {
                    "addresses": [
                        {"ip": "198.51.100.7", "hostname": "seven"},
                        {"ip": "2001:db8::1"},
                    ],
                    "notReadyAddresses": [{"ip": "198.51.100.8"}],
                    "ports": [{"port": 443, "name": "tls"}],
                }
            ],
        }
        await plane.client.create(ENDPOINTS, NS, body)
        await plane.settle(3)
        found = await slices(plane, "m")
        assert shown(found) == [
            ("IPv4", [("198.51.100.7", True), ("198.51.100.8", False)]),
            ("IPv6", [("2001:db8::1", True)]),
        ]
        meta = found[0]["metadata"]
        assert meta["labels"]["mine"] == "1" and meta["annotations"] == {"note": "n"}
        assert meta["ownerReferences"][0]["kind"] == "Endpoints"
        names = {s["metadata"]["name"] for s in found}
        subset = {"addresses": [{"ip": "198.51.100.9"}], "ports": [{"port": 80}]}
        await plane.client.patch(ENDPOINTS, NS, "m", {"subsets": [subset]})
        await plane.settle(3)
        (piece,) = await slices(plane, "m")
        assert (
            shown([piece]) == [("IPv4", [("198.51.100.9", True)])]
            and piece["metadata"]["name"] in names
        )
        await plane.client.patch(ENDPOINTS, NS, "m", {"metadata": {"labels": {skip: "true"}}})
        await plane.settle(3)
        assert await slices(plane, "m") == []
        await plane.client.patch(ENDPOINTS, NS, "m", {"metadata": {"labels": {skip: None}}})
        await plane.settle(3)
        assert len(await slices(plane, "m")) == 1
        await plane.client.patch(SERVICES, NS, "m", {"spec": {"selector": {"app": "s"}}})
        await plane.settle(3)
        assert await slices(plane, "m") == []


async def test_no_more_than_a_thousand_are_mirrored(control_plane: ContextFactory) -> None:
    async with control_plane("endpointslicemirroring") as plane:
        await add_service(plane, "m", selector=None)
        many = [{"ip": f"198.18.{i // 250}.{i % 250 + 1}"} for i in range(1010)]
        await plane.client.create(
            ENDPOINTS,
            NS,
            {"metadata": {"name": "m"}, "subsets": [{"addresses": many, "ports": [{"port": 1}]}]},
        )
        await plane.settle(3)
        (piece,) = await slices(plane, "m")
        assert len(piece["endpoints"]) == 1000
        (event,) = (await plane.client.list(EVENTS, NS)).items
        assert (event["reason"], event["message"]) == (
            "TooManyAddressesToMirror",
            (
                "A max of 1000 addresses can be mirrored to EndpointSlices per Endpoints subset. "
                "10 addresses were skipped"
            ),
        )


async def test_what_failed_too_often_is_looked_at_again_later(
    control_plane: ContextFactory,
) -> None:
    """Nothing that is watched changes when the obstacle goes."""

    async with control_plane("endpoint", "resourcequota") as plane:
        await begin(plane)
        quota = {"metadata": {"name": "q"}, "spec": {"hard": {"count/endpoints": "0"}}}
        await plane.client.create(RESOURCE_QUOTAS, NS, quota)
        await plane.settle(3)
        await add_service(plane)
        await plane.settle(400)  # 15 failures take less than 200 s
        await plane.client.delete(RESOURCE_QUOTAS, NS, "q")
        await plane.settle(400)
        assert await plane.missing(ENDPOINTS, NS, "s")
        await plane.settle(600)
        assert not await plane.missing(ENDPOINTS, NS, "s")
