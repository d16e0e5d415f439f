"""Cluster IPs as objects: IPAddress of each service, and ranges that ServiceCIDR objects add."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.apiserver.harness import Api, start

SERVICES = "/api/v1/namespaces/default/services"
ADDRESSES = "/apis/networking.k8s.io/v1/ipaddresses"
CIDRS = "/apis/networking.k8s.io/v1/servicecidrs"


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    made = await start(release="1.36", service_cidr="10.96.0.0/16")
    yield made
    await made.server.stop()


def service(name: str, **spec: Any) -> Any:
    return {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **spec}}


async def set_ready(api: Api, name: str) -> None:
    """As the ServiceCIDR controller does it."""
    cidr = await api.ok("GET", f"{CIDRS}/{name}")
    condition = {
        "type": "Ready",
        "status": "True",
        "reason": "",
        "message": "Kubernetes Service CIDR is ready",
        "lastTransitionTime": "2020-01-01T00:00:00Z",
    }
    await api.ok("PUT", f"{CIDRS}/{name}/status", {**cidr, "status": {"conditions": [condition]}})


async def test_each_cluster_ip_has_an_address_object(api: Api) -> None:
    made = await api.ok("POST", SERVICES, service("s"))
    ip = made["spec"]["clusterIP"]
    address = await api.ok("GET", f"{ADDRESSES}/{ip}")
    parent = {"resource": "services", "namespace": "default", "name": "s"}
    assert address["spec"]["parentRef"] == parent
    assert address["metadata"]["labels"]["ipaddress.kubernetes.io/ip-family"] == "IPv4"
    assert int(address["metadata"]["resourceVersion"]) > 0
    await api.ok("DELETE", f"{SERVICES}/s")
    assert (await api.call("GET", f"{ADDRESSES}/{ip}"))[0] == 404


async def test_the_server_has_an_address_object_too(api: Api) -> None:
    address = await api.ok("GET", f"{ADDRESSES}/10.96.0.1")
    assert address["spec"]["parentRef"]["name"] == "kubernetes"


async def test_an_address_object_of_a_user_reserves_the_address(api: Api) -> None:
    parent = {"resource": "gateways", "group": "example.com", "name": "g"}
    body = {"metadata": {"name": "10.96.5.5"}, "spec": {"parentRef": parent}}
    await api.ok("POST", ADDRESSES, body)
    status, problem = await api.call("POST", SERVICES, service("s", clusterIP="10.96.5.5"))
    assert status == 422
    assert "provided IP is already allocated" in problem["message"]


async def test_the_default_range_is_ready(api: Api) -> None:
    cidr = await api.ok("GET", f"{CIDRS}/kubernetes")
    assert cidr["spec"]["cidrs"] == ["10.96.0.0/16"]
    [condition] = cidr["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("Ready", "True")


async def test_a_new_range_can_be_used_until_it_is_deleted(api: Api) -> None:
    status, _ = await api.call("POST", SERVICES, service("s", clusterIP="10.97.0.9"))
    assert status == 422
    meta = {"name": "more", "finalizers": ["networking.k8s.io/service-cidr-finalizer"]}
    await api.ok("POST", CIDRS, {"metadata": meta, "spec": {"cidrs": ["10.97.0.0/24"]}})
    await set_ready(api, "more")
    await api.ok("POST", SERVICES, service("s", clusterIP="10.97.0.9"))

    await api.ok("DELETE", f"{CIDRS}/more")
    status, _ = await api.call("POST", SERVICES, service("t", clusterIP="10.97.0.10"))
    assert status == 422


async def test_a_dry_run_shows_an_address_and_takes_none(api: Api) -> None:
    made = await api.ok("POST", f"{SERVICES}?dryRun=All", service("s"))
    ip = made["spec"]["clusterIP"]
    assert (await api.call("GET", f"{ADDRESSES}/{ip}"))[0] == 404
    await api.ok("POST", SERVICES, service("s", clusterIP=ip))


async def test_older_releases_have_no_address_objects() -> None:
    api = await start(release="1.32")
    await api.ok("POST", SERVICES, service("s"))
    assert (await api.call("GET", ADDRESSES))[0] == 404
    await api.server.stop()
