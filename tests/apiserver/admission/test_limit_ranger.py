from __future__ import annotations

from typing import Any

import pytest
from tests.apiserver.admission.support import MERGE, NS, PODS, claim, cpu, pod, refused, run
from tests.apiserver.harness import Api

RANGES = f"{NS}/limitranges"


async def limit(api: Api, kind: str, **bounds: dict[str, str]) -> None:
    spec = {"limits": [{"type": kind, **bounds}]}
    await api.ok("POST", RANGES, {"metadata": {"name": kind.lower()}, "spec": spec})


async def test_every_container_gets_defaults_and_an_annotation() -> None:
    async with run() as api:
        await limit(
            api, "Container", default={"cpu": "2", "memory": "1Gi"}, defaultRequest={"cpu": "1"}
        )
        two = pod()
        two["spec"]["initContainers"] = [{"name": "i", "image": "i", "resources": cpu("500m", "1")}]
        made = await api.ok("POST", PODS, two)
        assert made["spec"]["containers"][0]["resources"] == {
            "limits": {"cpu": "2", "memory": "1Gi"},
            "requests": {"cpu": "1", "memory": "1Gi"},
        }
        assert made["spec"]["initContainers"][0]["resources"] == {
            "limits": {"cpu": "1", "memory": "1Gi"},
            "requests": {"cpu": "500m", "memory": "1Gi"},
        }
        assert made["metadata"]["annotations"]["kubernetes.io/limit-ranger"] == (
            "LimitRanger plugin set: cpu, memory request for container c; cpu, memory limit "
            "for container c; "
            "memory request for init container i; memory limit for init container i"
        )


@pytest.mark.parametrize(
    ("bounds", "resources", "problem"),
    [
        ({"min": {"cpu": "1"}}, {}, ""),  # the minimum is the default, too
        (
            {"min": {"cpu": "1"}},
            cpu("999m", "1"),
            "minimum cpu usage per Container is 1, but request is 999m",
        ),
        (
            {"max": {"cpu": "1"}},
            cpu("1", "1001m"),
            "maximum cpu usage per Container is 1, but limit is 1001m",
        ),
        ({"max": {"cpu": "1"}}, cpu("1", "1"), ""),
        ({"maxLimitRequestRatio": {"cpu": "1500m"}}, cpu("1", "1500m"), ""),
        (
            {"maxLimitRequestRatio": {"cpu": "1500m"}},
            cpu("1", "1600m"),
            "cpu max limit to request ratio per Container is 1500m, but provided ratio is 1.600000",
        ),
        (
            {"maxLimitRequestRatio": {"cpu": "2"}},
            cpu("0", "1"),
            (
                "cpu max limit to request ratio per Container is 2, but no request is specified "
                "or request is 0"
            ),
        ),
        (
            {"maxLimitRequestRatio": {"cpu": "2"}},
            cpu("1"),
            (
                "cpu max limit to request ratio per Container is 2, but no limit is specified or "
                "limit is 0"
            ),
        ),
        # Beyond what thousandths can hold, whole numbers are compared.
        (
            {"max": {"memory": "5E"}},
            {"limits": {"memory": "6E"}},
            "maximum memory usage per Container is 5E, but limit is 6E",
        ),
    ],
)
async def test_bounds_of_containers(
    bounds: dict[str, Any], resources: dict[str, Any], problem: str
) -> None:
    async with run() as api:
        await limit(api, "Container", **bounds)
        if problem:
            assert await refused(api, "POST", PODS, pod(resources=resources)) == problem
        else:
            await api.ok("POST", PODS, pod(resources=resources))


async def test_equal_errors_are_reported_once_and_several_in_brackets() -> None:
    async with run() as api:
        await limit(api, "Container", max={"cpu": "1"})
        two = pod(resources=cpu("2", "2"))
        two["spec"]["containers"].append({**two["spec"]["containers"][0], "name": "d"})
        assert (
            await refused(api, "POST", PODS, two)
            == "maximum cpu usage per Container is 1, but limit is 2"
        )
        two["spec"]["containers"].append({"name": "e", "image": "i", "resources": cpu("3", "3")})
        assert await refused(api, "POST", PODS, two) == (
            "[maximum cpu usage per Container is 1, but limit is 2, maximum cpu usage per "
            "Container is 1, but limit is 3]"
        )


async def test_a_pod_counts_only_what_all_its_containers_name() -> None:
    async with run() as api:
        await limit(api, "Pod", max={"cpu": "2", "memory": "1Gi"})
        two = pod(resources={"limits": {"cpu": "1", "memory": "768Mi"}})
        two["spec"]["containers"].append(
            {"name": "d", "image": "i", "resources": {"limits": {"memory": "512Mi"}}}
        )
        assert await refused(api, "POST", PODS, two) == (
            "[maximum cpu usage per Pod is 2.  No limit is specified, "
            "maximum memory usage per Pod is 1Gi, but limit is 1342177280]"
        )


async def test_claims_are_bounded_when_made_and_when_they_grow() -> None:
    async with run() as api:
        claims = f"{NS}/persistentvolumeclaims"
        await api.ok(
            "POST",
            "/apis/storage.k8s.io/v1/storageclasses",
            {"metadata": {"name": "s"}, "provisioner": "p", "allowVolumeExpansion": True},
        )
        await limit(api, "PersistentVolumeClaim", max={"storage": "2Gi"})
        assert await refused(api, "POST", claims, claim(size="3Gi")) == (
            "maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi"
        )
        await api.ok("POST", claims, claim(storageClassName="s"))
        await api.ok("PATCH", f"{claims}/c/status", {"status": {"phase": "Bound"}}, media=MERGE)
        await api.ok("PATCH", f"{claims}/c", {"spec": {"volumeName": "v"}}, media=MERGE)
        grow = {"spec": {"resources": {"requests": {"storage": "3Gi"}}}}
        assert "but request is 3Gi" in await refused(api, "PATCH", f"{claims}/c", grow, media=MERGE)
