"""Clusters of 1.14 to 1.19 serve no API version that came later, in discovery, OpenAPI or
requests, and those of 1.14 and 1.15 serve the betas of workloads that 1.16 removed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.apiserver.harness import Api, start

from transom.apiserver.core import discovery
from transom.apiserver.core.context import UserInfo
from transom.apiserver.serving.inprocess import InProcessClient
from transom.client.resources import builtin_resource
from transom.machinery.kinds import KINDS
from transom.machinery.releases import DEFAULT, Release
from transom.machinery.served_since import FIRST_SERVED, is_served_by, kinds_of, served_kinds

# What the default configuration of each release's API server enables, of the group versions that
# Transom knows.
_FIRST = {
    "admissionregistration.k8s.io/v1beta1",
    "apiextensions.k8s.io/v1beta1",
    "apiregistration.k8s.io/v1",
    "apiregistration.k8s.io/v1beta1",
    "apps/v1",
    "authentication.k8s.io/v1",
    "authentication.k8s.io/v1beta1",
    "authorization.k8s.io/v1",
    "authorization.k8s.io/v1beta1",
    "autoscaling/v1",
    "autoscaling/v2beta1",
    "autoscaling/v2beta2",
    "batch/v1",
    "batch/v1beta1",
    "certificates.k8s.io/v1beta1",
    "coordination.k8s.io/v1",
    "coordination.k8s.io/v1beta1",
    "events.k8s.io/v1beta1",
    "extensions/v1beta1",
    "networking.k8s.io/v1",
    "networking.k8s.io/v1beta1",
    "node.k8s.io/v1beta1",
    "policy/v1beta1",
    "rbac.authorization.k8s.io/v1",
    "rbac.authorization.k8s.io/v1beta1",
    "scheduling.k8s.io/v1",
    "scheduling.k8s.io/v1beta1",
    "storage.k8s.io/v1",
    "storage.k8s.io/v1beta1",
    "v1",
}
_ADDED = {
    16: {"admissionregistration.k8s.io/v1", "apiextensions.k8s.io/v1"},
    17: {"discovery.k8s.io/v1beta1"},
    19: {"certificates.k8s.io/v1", "events.k8s.io/v1"},
}


_REMOVED_IN_16 = {"apps/v1beta1", "apps/v1beta2"}


def served_by(minor: int) -> list[discovery.ServedVersion]:
    release = (1, minor)
    of = Release(*release)
    return discovery.served_versions(served_kinds(is_served_by(of), kinds_of(of)), (), of)


@pytest.mark.parametrize("minor", range(14, 20))
def test_group_versions_of_each_release(minor: int) -> None:
    expected = _FIRST.union(*(added for since, added in _ADDED.items() if since <= minor))
    if minor < 16:
        expected |= _REMOVED_IN_16
    assert {s.group_version for s in served_by(minor)} == expected


@pytest.mark.parametrize(
    ("minor", "group_version", "resources", "absent"),
    [
        (14, "networking.k8s.io/v1", {"networkpolicies"}, {"ingresses", "ingressclasses"}),
        (17, "networking.k8s.io/v1beta1", {"ingresses"}, {"ingressclasses"}),
        (18, "networking.k8s.io/v1beta1", {"ingresses", "ingressclasses"}, set()),
        (19, "networking.k8s.io/v1", {"ingresses", "ingressclasses", "networkpolicies"}, set()),
        (
            16,
            "storage.k8s.io/v1",
            {"storageclasses", "volumeattachments"},
            {"csinodes", "csidrivers", "csistoragecapacities"},
        ),
        (17, "storage.k8s.io/v1", {"csinodes"}, {"csidrivers"}),
        (18, "storage.k8s.io/v1", {"csinodes", "csidrivers"}, {"csistoragecapacities"}),
        (19, "batch/v1", {"jobs"}, {"cronjobs"}),
        (19, "authentication.k8s.io/v1", {"tokenreviews"}, {"selfsubjectreviews"}),
        (
            15,
            "extensions/v1beta1",
            {
                "daemonsets",
                "deployments",
                "deployments/rollback",
                "deployments/scale",
                "ingresses",
                "networkpolicies",
                "podsecuritypolicies",
                "replicasets",
            },
            {"statefulsets"},
        ),
        (16, "extensions/v1beta1", {"ingresses"}, {"deployments", "networkpolicies"}),
        (
            15,
            "apps/v1beta1",
            {"controllerrevisions", "deployments", "deployments/rollback", "statefulsets/scale"},
            {"daemonsets", "replicasets"},
        ),
        (
            14,
            "apps/v1beta2",
            {"daemonsets", "deployments", "replicasets/scale", "statefulsets"},
            {"deployments/rollback"},
        ),
    ],
)
def test_kinds_of_a_group_version(
    minor: int, group_version: str, resources: set[str], absent: set[str]
) -> None:
    [found] = [s for s in served_by(minor) if s.group_version == group_version]
    names = {row["name"] for row in found.resources}
    assert resources <= names and not absent & names


def test_1_20_keeps_its_newer_versions() -> None:
    assert list(served_kinds(is_served_by(DEFAULT), kinds_of(DEFAULT))) == list(KINDS)


def test_the_group_extensions_came_before_apps_until_1_19() -> None:
    for minor, first in ((15, "extensions"), (19, "extensions"), (20, "apps")):
        groups = [s.group for s in served_by(minor)]
        assert min(("extensions", "apps"), key=groups.index) == first


@pytest.mark.parametrize("minor", [14, 15])
def test_betas_have_a_scale_of_their_own(minor: int) -> None:
    scales = {
        (s.group_version, row["name"]): f"{row['group']}/{row['version']}"
        for s in served_by(minor)
        if s.group in ("apps", "extensions")
        for row in s.resources
        if row["name"].endswith("/scale")
    }
    assert scales["apps/v1", "deployments/scale"] == "autoscaling/v1"
    for (group_version, _), of in scales.items():
        assert of == (group_version if "beta" in group_version else "autoscaling/v1")


def test_the_table_names_kinds_that_exist() -> None:
    known = {
        (group, version, kind.kind)
        for kind in KINDS
        for group, versions in ((kind.group, kind.versions), *kind.also)
        for version in versions
    }
    versions = {(group, version) for group, version, _ in known}
    for group, version, name in FIRST_SERVED:
        assert (group, version, name) in known if name else (group, version) in versions


@asynccontextmanager
async def on_1_14() -> AsyncIterator[Api]:
    api = await start(release="1.14")
    try:
        yield api
    finally:
        await api.server.stop()


async def _later_versions_are_not_found(api: Api) -> None:
    hpa = {
        "apiVersion": "autoscaling/v1",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "a"},
        "spec": {"maxReplicas": 2, "scaleTargetRef": {"kind": "Deployment", "name": "a"}},
    }
    await api.ok("POST", "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers", hpa)
    for path in (
        "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers",
        "/apis/autoscaling/v2",
        "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/a",
        "/openapi/v3",
        "/apis/discovery.k8s.io",
        "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas",
        "/apis/networking.k8s.io/v1/ingresses",
        "/apis/batch/v1/cronjobs",
    ):
        status, _ = await api.call("GET", path)
        assert status == 404, path
    assert (await api.call("GET", "/apis/autoscaling/v2/horizontalpodautoscalers"))[
        1
    ] == "404 page not found\n"
    _, known = await api.call("GET", "/apis/batch/v1/cronjobs")
    assert known["message"] == "the server could not find the requested resource"
    for path in (
        "/apis/autoscaling/v2beta2/namespaces/default/horizontalpodautoscalers/a",
        "/apis/batch/v1beta1/cronjobs",
        "/apis/networking.k8s.io/v1beta1/ingresses",
        "/apis/networking.k8s.io/v1/networkpolicies",
    ):
        await api.ok("GET", path)
    paths = (await api.ok("GET", "/"))["paths"]
    assert "/apis/autoscaling/v2beta2" in paths and not {
        "/apis/autoscaling/v2",
        "/openapi/v3",
    } & set(paths)
    for path in ("/api/v1/componentstatuses", "/apis/rbac.authorization.k8s.io/v1beta1/roles"):
        answer = await api.send("GET", path)
        assert answer.status == 200 and b"Warning" not in dict(answer.headers)
    listed = await api.ok("GET", "/apis/apiregistration.k8s.io/v1/apiservices")
    services = [item["metadata"]["name"] for item in listed["items"]]
    assert "v2beta2.autoscaling" in services and "v2.autoscaling" not in services
    document = await api.ok("GET", "/openapi/v2")
    assert "io.k8s.api.autoscaling.v2beta2.HorizontalPodAutoscaler" in document["definitions"]
    newer = ("io.k8s.api.autoscaling.v2.", "io.k8s.api.policy.v1.")
    assert not [name for name in document["definitions"] if name.startswith(newer)]
    assert not [
        path
        for path in document["paths"]
        if path.startswith(("/apis/autoscaling/v2/", "/apis/discovery"))
    ]


async def test_requests_for_versions_that_came_later_are_not_found() -> None:
    async with on_1_14() as made:
        await _later_versions_are_not_found(made)


async def _components_use_all_versions(api: Api) -> None:
    client = InProcessClient(
        api.server, UserInfo("system:admin", ("system:masters",)), user_agent="tests"
    )
    assert "discovery.k8s.io" in [
        group["name"] for group in (await client.get_json("/apis"))["groups"]
    ]
    assert (
        list((await client.list(builtin_resource("discovery.k8s.io/EndpointSlice"), "")).items)
        == []
    )


async def test_the_clusters_own_components_use_all_versions() -> None:
    async with on_1_14() as made:
        await _components_use_all_versions(made)


_TEMPLATE = {
    "metadata": {"labels": {"app": "a"}},
    "spec": {"containers": [{"name": "c", "image": "nginx"}]},
}
_EXTENSIONS = "/apis/extensions/v1beta1/namespaces/default"
_APPS = "/apis/apps/{}/namespaces/default"


async def _workloads_of_the_first_betas(api: Api) -> None:
    made = await api.ok(
        "POST",
        f"{_EXTENSIONS}/deployments",
        {
            "apiVersion": "extensions/v1beta1",
            "kind": "Deployment",
            "metadata": {"name": "a"},
            "spec": {"template": _TEMPLATE},
        },
    )
    assert made["apiVersion"] == "extensions/v1beta1"
    assert made["metadata"]["labels"] == {"app": "a"}
    spec = made["spec"]
    assert spec["selector"] == {"matchLabels": {"app": "a"}}
    assert spec["strategy"]["rollingUpdate"] == {"maxUnavailable": 1, "maxSurge": 1}
    assert spec["progressDeadlineSeconds"] == spec["revisionHistoryLimit"] == 2**31 - 1
    for version in ("v1", "v1beta1", "v1beta2"):
        seen = await api.ok("GET", f"{_APPS.format(version)}/deployments/a")
        assert (seen["apiVersion"], seen["spec"]) == (f"apps/{version}", spec)
    scale = await api.ok("GET", f"{_EXTENSIONS}/deployments/a/scale")
    assert scale["apiVersion"] == "extensions/v1beta1"
    assert scale["status"] == {
        "replicas": 0,
        "selector": {"app": "a"},
        "targetSelector": "app=a",
    }
    scale["spec"]["replicas"] = 3
    scaled = await api.ok("PUT", f"{_EXTENSIONS}/deployments/a/scale", scale)
    assert scaled["spec"] == {"replicas": 3}
    # Another selector: the first betas allow it, later versions do not.
    seen = await api.ok("GET", f"{_EXTENSIONS}/deployments/a")
    seen["spec"]["selector"]["matchLabels"]["b"] = "b"
    seen["spec"]["template"]["metadata"]["labels"]["b"] = "b"
    await api.ok("PUT", f"{_EXTENSIONS}/deployments/a", seen)
    seen = await api.ok("GET", f"{_APPS.format('v1beta2')}/deployments/a")
    seen["spec"]["selector"]["matchLabels"] = {"app": "a"}
    status, _ = await api.call("PUT", f"{_APPS.format('v1beta2')}/deployments/a", seen)
    assert status == 422
    # A rollback is a field of the first betas, and an annotation of the later ones.
    rollback = {
        "apiVersion": "extensions/v1beta1",
        "kind": "DeploymentRollback",
        "name": "a",
        "rollbackTo": {"revision": 7},
        "updatedAnnotations": {"by": "hand"},
    }
    done = await api.ok("POST", f"{_EXTENSIONS}/deployments/a/rollback", rollback)
    assert done["message"] == 'rollback request for deployment "a" succeeded'
    seen = await api.ok("GET", f"{_EXTENSIONS}/deployments/a")
    assert seen["spec"]["rollbackTo"] == {"revision": 7}
    assert seen["metadata"]["annotations"] == {"by": "hand"}
    stored = (await api.ok("GET", f"{_APPS.format('v1')}/deployments/a"))["metadata"]
    assert stored["annotations"]["deprecated.deployment.rollback.to"] == "7"
    status, _ = await api.call(
        "POST", f"{_EXTENSIONS}/deployments/a/rollback", {**rollback, "name": "other"}
    )
    assert status == 400
    # Deleting one leaves its replica sets, unless the client asks for more.
    gone = await api.ok("DELETE", f"{_EXTENSIONS}/deployments/a")
    assert gone["metadata"]["finalizers"] == ["orphan"]


async def test_deployments_of_the_first_betas() -> None:
    async with on_1_14() as made:
        await _workloads_of_the_first_betas(made)


async def _other_kinds_of_the_first_betas(api: Api) -> None:
    spec = {"template": _TEMPLATE}
    made = await api.ok(
        "POST",
        f"{_EXTENSIONS}/daemonsets",
        {
            "apiVersion": "extensions/v1beta1",
            "kind": "DaemonSet",
            "metadata": {"name": "a"},
            "spec": spec,
        },
    )
    assert made["spec"]["templateGeneration"] == 1
    assert made["spec"]["updateStrategy"] == {"type": "OnDelete"}
    later = await api.ok("GET", f"{_APPS.format('v1')}/daemonsets/a")
    assert later["metadata"]["annotations"] == {"deprecated.daemonset.template.generation": "1"}
    made = await api.ok(
        "POST",
        f"{_APPS.format('v1beta1')}/statefulsets",
        {
            "apiVersion": "apps/v1beta1",
            "kind": "StatefulSet",
            "metadata": {"name": "a"},
            "spec": {**spec, "serviceName": "a"},
        },
    )
    assert made["spec"]["updateStrategy"] == {"type": "OnDelete"}
    assert made["spec"]["selector"] == {"matchLabels": {"app": "a"}}
    made = await api.ok(
        "POST",
        f"{_EXTENSIONS}/networkpolicies",
        {
            "apiVersion": "extensions/v1beta1",
            "kind": "NetworkPolicy",
            "metadata": {"name": "a"},
            "spec": {"podSelector": {}, "ingress": [{"ports": [{"port": 80}]}]},
        },
    )
    assert made["spec"]["policyTypes"] == ["Ingress"]
    path = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies/a"
    assert (await api.ok("GET", path))["spec"] == made["spec"]
    document = await api.ok("GET", "/openapi/v2")
    assert "io.k8s.api.extensions.v1beta1.Deployment" in document["definitions"]
    services = await api.ok("GET", "/apis/apiregistration.k8s.io/v1/apiservices")
    priorities = {
        item["metadata"]["name"]: item["spec"]["groupPriorityMinimum"] for item in services["items"]
    }
    assert priorities["v1beta1.extensions"] == 17900
    assert priorities["v1beta2.apps"] == 17800


async def test_other_kinds_of_the_first_betas() -> None:
    async with on_1_14() as made:
        await _other_kinds_of_the_first_betas(made)
