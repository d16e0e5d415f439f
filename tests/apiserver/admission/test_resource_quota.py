"""Quotas: what they reject, what they charge, and that concurrent requests cannot exceed them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.apiserver.admission.support import (
    MERGE,
    NS,
    PODS,
    QUOTAS,
    claim,
    cpu,
    pod,
    refused,
    run,
    store_quota,
    used,
)

from transom.apiserver.admission import resource_quota
from transom.kit import time_slice

SERVICES = f"{NS}/services"
MAPS = f"{NS}/configmaps"


@pytest.fixture(autouse=True, params=["in one step", "in steps"])
def steps(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few and small quotas are charged in one step, others one after the other."""
    if request.param == "in steps":
        monkeypatch.setattr(resource_quota, "_ONE_STEP_BYTES", 0)
        monkeypatch.setattr(time_slice, "_SECONDS", -1)


def service(name: str, kind: str, *ports: int) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {"type": kind, "ports": [{"name": f"p{port}", "port": port} for port in ports]},
    }


async def test_two_hundred_at_once_never_exceed_by_one() -> None:
    async with run() as api:
        await store_quota(api, "q", {"pods": "120", "requests.cpu": "10"})
        answers = await asyncio.gather(
            *(api.call("POST", PODS, pod(f"p{i}", cpu("100m"))) for i in range(200))
        )
        assert sorted(status for status, _ in answers) == [201] * 100 + [403] * 100
        assert await used(api, "q") == {"pods": "100", "requests.cpu": "10"}
        assert len((await api.ok("GET", PODS))["items"]) == 100


async def test_two_quotas_are_charged_together_or_not_at_all() -> None:
    async with run() as api:
        await store_quota(api, "loose", {"pods": "10"})
        await store_quota(api, "tight", {"pods": "3"})
        answers = await asyncio.gather(*(api.call("POST", PODS, pod(f"p{i}")) for i in range(8)))
        assert sum(status == 201 for status, _ in answers) == 3
        assert (await used(api, "loose"), await used(api, "tight")) == (
            {"pods": "3"},
            {"pods": "3"},
        )


async def test_a_failed_write_returns_what_it_reserved() -> None:
    async with run() as api:
        await store_quota(api, "q", {"configmaps": "3"})
        await store_quota(api, "r", {"configmaps": "4"})
        await api.ok("POST", MAPS, {"metadata": {"name": "a"}})
        for _ in range(5):
            assert (await api.call("POST", MAPS, {"metadata": {"name": "a"}}))[0] == 409
        for name in ("b", "c"):
            await api.ok("POST", MAPS, {"metadata": {"name": name}})
        for _ in range(3):
            status, answer = await api.call("POST", MAPS, {"metadata": {"name": "d"}})
            assert status == 403
            assert "requested: configmaps=1, used: configmaps=3" in answer["message"]
        assert await used(api, "r") == {"configmaps": "3"}


@pytest.mark.parametrize(
    ("target", "again", "status"),
    [
        (MAPS, {"metadata": {"name": "a"}}, 409),  # exists
        (MAPS, {"metadata": {"name": "B A D"}}, 422),
        (f"{MAPS}?dryRun=All", {"metadata": {"name": "b"}}, 201),
    ],
)
async def test_what_is_not_written_is_not_charged(
    target: str, again: dict[str, Any], status: int
) -> None:
    async with run() as api:
        await store_quota(api, "q", {"configmaps": "5"})
        await api.ok("POST", MAPS, {"metadata": {"name": "a"}})
        assert (await api.call("POST", target, again))[0] == status
        assert await used(api, "q") == {"configmaps": "1"}


async def test_a_refused_address_is_not_charged() -> None:
    async with run() as api:
        await store_quota(api, "q", {"services": "5"})
        taken = (await api.ok("POST", SERVICES, service("a", "ClusterIP", 80)))["spec"]["clusterIP"]
        second = service("b", "ClusterIP", 80)
        second["spec"]["clusterIP"] = taken
        assert (await api.call("POST", SERVICES, second))[0] == 422
        assert await used(api, "q") == {"services": "1"}


async def test_a_dry_run_is_checked_all_the_same() -> None:
    async with run() as api:
        await store_quota(api, "q", {"configmaps": "0"})
        assert "exceeded quota: q" in await refused(
            api, "POST", f"{MAPS}?dryRun=All", {"metadata": {"name": "a"}}
        )


async def test_updates_pay_the_difference() -> None:
    async with run() as api:
        await store_quota(
            api, "q", {"services": "2", "services.nodeports": "2", "requests.storage": "3Gi"}
        )
        await api.ok("POST", SERVICES, service("a", "NodePort", 80))
        more = {"spec": service("a", "NodePort", 80, 81)["spec"]}
        await api.ok("PATCH", f"{SERVICES}/a", more, media=MERGE)
        assert (await used(api, "q"))["services.nodeports"] == "2"
        more["spec"] = service("a", "NodePort", 80, 81, 82)["spec"]
        assert await refused(api, "PATCH", f"{SERVICES}/a", more, media=MERGE) == (
            "exceeded quota: q, requested: services.nodeports=1, used: services.nodeports=2, "
            "limited: services.nodeports=2"
        )
        less = {
            "spec": {"type": "ClusterIP", "ports": [{"name": "p80", "port": 80, "nodePort": None}]}
        }
        await api.ok("PATCH", f"{SERVICES}/a", less, media=MERGE)
        assert (await used(api, "q"))[
            "services.nodeports"
        ] == "2"  # only a count gives something back


async def test_the_texts_of_refusals() -> None:
    async with run() as api:
        await store_quota(
            api,
            "q",
            {"pods": "2", "limits.cpu": "2", "memory": "1Gi", "ephemeral-storage": "1Gi"},
            {"pods": "2"},
        )
        two = pod(resources=cpu("1"))
        two["spec"]["initContainers"] = [
            {"name": "i", "image": "i", "resources": {"requests": {"memory": "1"}}}
        ]
        assert (
            await refused(api, "POST", PODS, two)
            == "failed quota: q: must specify limits.cpu,memory"
        )
        full = pod(
            resources={"requests": {"memory": "2Gi", "cpu": "1"}, "limits": {"cpu": "1500m"}}
        )
        assert await refused(api, "POST", PODS, full) == (
            "exceeded quota: q, requested: memory=2Gi,pods=1, used: memory=0,pods=2, "
            "limited: memory=1Gi,pods=2"
        )


async def test_uncounted_usage_is_refused() -> None:
    async with run() as api:
        await api.ok(
            "POST", QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "9", "cpu": "9"}}}
        )
        await api.ok("POST", PODS, pod("before"))  # a quota without status limits nothing yet
        status = {"status": {"hard": {"pods": "9", "requests.cpu": "9"}, "used": {"pods": "1"}}}
        await api.ok("PATCH", f"{QUOTAS}/q/status", status, media=MERGE)
        assert await refused(api, "POST", PODS, pod("after", cpu("1"))) == (
            "status unknown for quota: q, resources: pods,requests.cpu"
        )


@pytest.mark.parametrize(
    ("spec", "matching", "other"),
    [
        ({"scopes": ["BestEffort"]}, pod(), pod(resources=cpu("1"))),
        ({"scopes": ["NotBestEffort"]}, pod(resources=cpu("1")), pod()),
        ({"scopes": ["Terminating"]}, pod(activeDeadlineSeconds=1), pod()),
        ({"scopes": ["NotTerminating", "BestEffort"]}, pod(), pod(activeDeadlineSeconds=1)),
        ({"scopes": ["PriorityClass"]}, pod(priorityClassName="system-node-critical"), pod()),
        (
            {
                "scopeSelector": {
                    "matchExpressions": [
                        {
                            "scopeName": "PriorityClass",
                            "operator": "NotIn",
                            "values": ["system-node-critical"],
                        }
                    ]
                }
            },
            pod(),
            pod(priorityClassName="system-node-critical"),
        ),
        (
            {
                "scopeSelector": {
                    "matchExpressions": [{"scopeName": "PriorityClass", "operator": "DoesNotExist"}]
                }
            },
            pod(),
            pod(priorityClassName="system-node-critical"),
        ),
    ],
)
async def test_scopes(
    spec: dict[str, Any], matching: dict[str, Any], other: dict[str, Any]
) -> None:
    async with run() as api:
        await store_quota(api, "q", {"pods": "0"}, **spec)
        assert "exceeded quota: q" in await refused(api, "POST", PODS, matching)
        await api.ok("POST", PODS, other)


async def test_claims_of_a_class_and_counts_of_any_resource() -> None:
    async with run() as api:
        by_class = "gold.storageclass.storage.k8s.io/requests.storage"
        await store_quota(api, "q", {by_class: "1Gi", "count/leases.coordination.k8s.io": "1"})
        claims = f"{NS}/persistentvolumeclaims"
        await api.ok("POST", claims, claim("a", "5Gi", storageClassName="silver"))
        assert await refused(api, "POST", claims, claim("b", "2Gi", storageClassName="gold")) == (
            f"exceeded quota: q, requested: {by_class}=2Gi, used: {by_class}=0, limited: "
            f"{by_class}=1Gi"
        )
        leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
        await api.ok("PUT", f"{leases}/a", {"metadata": {"name": "a"}})  # a PUT that creates
        assert "count/leases.coordination.k8s.io=1" in await refused(
            api, "POST", leases, {"metadata": {"name": "b"}}
        )


async def test_what_two_groups_serve_is_charged_to_the_one_that_was_asked() -> None:
    async with run() as api:
        name = "count/ingresses.extensions"
        await store_quota(api, "q", {name: "1"})
        old, new = (
            f"/apis/{gv}/v1beta1/namespaces/default/ingresses"
            for gv in ("extensions", "networking.k8s.io")
        )
        spec = {"backend": {"serviceName": "s", "servicePort": 80}}
        await api.ok("POST", new, {"metadata": {"name": "a"}, "spec": spec})
        await api.ok("POST", old, {"metadata": {"name": "b"}, "spec": spec})
        status, answer = await api.call("POST", old, {"metadata": {"name": "c"}, "spec": spec})
        assert (status, answer["message"]) == (
            403,
            f'ingresses.extensions "c" is forbidden: exceeded quota: q, requested: {name}=1, '
            f"used: {name}=1, "
            f"limited: {name}=1",
        )
        assert [(await api.call("GET", f"{at}/x"))[1]["details"]["group"] for at in (old, new)] == [
            "extensions",
            "networking.k8s.io",
        ]
        shown = await api.ok("GET", old + "/a")
        assert (shown["apiVersion"], shown["spec"]) == ("extensions/v1beta1", spec)


@pytest.mark.parametrize(("release", "subresource"), [("1.20", None), ("1.36", "status")])
async def test_the_server_owns_what_it_charges(release: str, subresource: str | None) -> None:
    async with run(release=release) as api:
        await store_quota(api, "q", {"pods": "2"})
        await api.ok("POST", PODS, pod())
        owners = (await api.ok("GET", f"{QUOTAS}/q"))["metadata"]["managedFields"]
        (ours,) = [entry for entry in owners if entry["manager"] == "kube-apiserver"]
        assert ours["fieldsV1"] == {"f:status": {"f:used": {"f:pods": {}}}}
        assert ours.get("subresource") == subresource


async def test_pods_that_name_other_namespaces_in_their_affinity_have_their_own_quota() -> None:
    async with run(release="1.36") as api:
        scope = {"scopeName": "CrossNamespacePodAffinity", "operator": "Exists"}
        await store_quota(api, "q", {"pods": "0"}, scopeSelector={"matchExpressions": [scope]})
        term = {"topologyKey": "zone", "labelSelector": {}, "namespaces": ["other"]}
        affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        assert await refused(api, "POST", PODS, pod("p", affinity=affinity)) == (
            "exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0"
        )
        await api.ok("POST", PODS, pod("p"))
        scope["operator"] = "DoesNotExist"
        body = {
            "metadata": {"name": "r"},
            "spec": {"scopeSelector": {"matchExpressions": [scope]}, "hard": {"pods": "1"}},
        }
        status, answer = await api.call("POST", QUOTAS, body)
        assert status == 422
        assert "must be 'Exists' when scope is any of" in answer["message"]


async def test_setting_a_deadline_moves_a_pod_to_the_quota_of_terminating_pods() -> None:
    async with run(release="1.36") as api:
        await api.ok("POST", PODS, pod("p"))
        await store_quota(api, "q", {"pods": "0"}, scopes=["Terminating"])
        change = {"spec": {"activeDeadlineSeconds": 5}}
        assert (await refused(api, "PATCH", f"{PODS}/p", change, media=MERGE)).startswith(
            "exceeded quota: q, requested: pods=1"
        )
