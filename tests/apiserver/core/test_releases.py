"""API servers of releases 1.21 to 1.37: they start, and serve what the release serves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.apiserver.harness import Api, start

from transom.machinery.releases import BUILDS, TABLES_SINCE, parse_release

TABLED = [name for name in BUILDS if parse_release(name) >= TABLES_SINCE]
POD = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


@asynccontextmanager
async def on(release: str, **options: Any) -> AsyncIterator[Api]:
    api = await start(release=release, **options)
    try:
        yield api
    finally:
        await api.server.stop()


@pytest.mark.parametrize("release", TABLED)
async def test_every_listed_resource_can_be_listed(release: str) -> None:
    async with on(release) as api:
        version = await api.ok("GET", "/version")
        assert version["gitVersion"] == BUILDS[release].git_version
        groups = (await api.ok("GET", "/apis"))["groups"]
        paths = [f"/apis/{v['groupVersion']}" for g in groups for v in g["versions"]]
        for path in ["/api/v1", *paths]:
            for row in (await api.ok("GET", path))["resources"]:
                if "/" not in row["name"] and "list" in row["verbs"]:
                    found = await api.ok("GET", f"{path}/{row['name']}")
                    assert found["kind"].endswith("List"), row


async def test_removed_versions_are_not_found_and_deprecated_ones_warn() -> None:
    async with on("1.25") as api:
        for path in ("/apis/batch/v1beta1/cronjobs", "/apis/policy/v1beta1/podsecuritypolicies"):
            status, body = await api.call("GET", path)
            assert (status, body["reason"]) == (404, "NotFound")

    async with on("1.24") as api:
        answer = await api.send("GET", "/apis/batch/v1beta1/cronjobs")
        assert any(b"unavailable in v1.25+" in value for _, value in answer.headers)


async def test_runtime_config_serves_a_beta() -> None:
    path = "/apis/resource.k8s.io/v1beta1/resourceclaims"

    async with on("1.36") as api:
        assert (await api.call("GET", path))[0] == 404
    async with on("1.36", runtime_config={"resource.k8s.io/v1beta1": True}) as api:
        assert (await api.ok("GET", path))["kind"] == "ResourceClaimList"


async def test_pods_have_a_generation_since_1_33() -> None:
    async def scenario(api: Api, expected: int | None) -> None:
        await api.ok("POST", "/api/v1/namespaces/default/serviceaccounts", ACCOUNT)
        pod = await api.ok("POST", "/api/v1/namespaces/default/pods", POD)
        assert pod["metadata"].get("generation") == expected

    async with on("1.32") as made:
        await scenario(made, None)
    async with on("1.33") as made:
        await scenario(made, 1)


ACCOUNT = {"metadata": {"name": "default"}}


@pytest.mark.parametrize("version", ["latest", "v1.34", "v1.99"])
@pytest.mark.parametrize(("release", "status"), [("1.32", 201), ("1.33", 201), ("1.34", 403)])
async def test_a_server_knows_the_pod_security_standards_up_to_its_own_version(
    release: str, status: int, version: str
) -> None:
    """Hosts of probes are checked since version 1.34 of the standards."""
    labels = {
        "pod-security.kubernetes.io/enforce": "baseline",
        "pod-security.kubernetes.io/enforce-version": version,
    }
    probe = {"httpGet": {"host": "10.0.0.1", "port": 80}}
    container = {**POD["spec"]["containers"][0], "livenessProbe": probe}
    async with on(release) as api:
        await api.ok(
            "POST", "/api/v1/namespaces", {"metadata": {"name": "strict", "labels": labels}}
        )
        await api.ok("POST", "/api/v1/namespaces/strict/serviceaccounts", ACCOUNT)
        pod = {**POD, "spec": {**POD["spec"], "containers": [container]}}
        found, body = await api.call("POST", "/api/v1/namespaces/strict/pods", pod)
        assert found == status, body


async def test_pod_security_labels_reject_and_warn_since_1_23() -> None:
    async def scenario(api: Api, status: int) -> None:
        labels = {"pod-security.kubernetes.io/enforce": "baseline"}
        await api.ok(
            "POST", "/api/v1/namespaces", {"metadata": {"name": "strict", "labels": labels}}
        )
        await api.ok("POST", "/api/v1/namespaces/strict/serviceaccounts", ACCOUNT)
        pod = {**POD, "spec": {**POD["spec"], "hostNetwork": True}}
        found, body = await api.call("POST", "/api/v1/namespaces/strict/pods", pod)
        assert found == status, body
        if status == 403:
            assert body["message"] == (
                'pods "p" is forbidden: violates PodSecurity "baseline:latest": host namespaces '
                "(hostNetwork=true)"
            )

    async with on("1.22") as made:
        await scenario(made, 201)
    async with on("1.23") as made:
        await scenario(made, 403)


async def test_a_namespace_with_an_unknown_level_is_invalid() -> None:
    async with on("1.36") as api:
        labels = {"pod-security.kubernetes.io/enforce": "strict"}
        namespace = {"metadata": {"name": "x", "labels": labels}}
        status, body = await api.call("POST", "/api/v1/namespaces", namespace)
        assert status == 422
        assert body["message"].endswith("must be one of privileged, baseline, restricted")


async def test_unknown_fields_warn_since_1_25() -> None:
    async def scenario(api: Api, expected: int) -> None:
        answer = await api.send(
            "POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "a"}, "nope": 1}
        )
        assert answer.status == 201
        assert sum(name.lower() == b"warning" for name, _ in answer.headers) == expected

    async with on("1.24") as made:
        await scenario(made, 0)
    async with on("1.25") as made:
        await scenario(made, 1)


@pytest.mark.parametrize(
    ("release", "gates", "served"),
    [
        ("1.32", {}, False),
        ("1.32", {"InPlacePodVerticalScaling": True}, True),
        ("1.33", {}, True),
    ],
)
async def test_the_resize_subresource_follows_its_gate(
    release: str, gates: dict[str, bool], served: bool
) -> None:
    async with on(release, feature_gates=gates) as api:
        rows = (await api.ok("GET", "/api/v1"))["resources"]
        assert ("pods/resize" in [row["name"] for row in rows]) is served


async def test_the_writer_of_a_daemon_set_owns_its_template_generation() -> None:
    key = "deprecated.daemonset.template.generation"
    spec = {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": POD["spec"]},
    }
    async with on("1.36") as api:
        path = "/apis/apps/v1/namespaces/default/daemonsets"
        made = await api.ok("POST", path, {"metadata": {"name": "d"}, "spec": spec})
        assert made["metadata"]["annotations"] == {key: "1"}
        owned = made["metadata"]["managedFields"][0]["fieldsV1"]
        assert owned["f:metadata"]["f:annotations"] == {".": {}, f"f:{key}": {}}


@pytest.mark.windows("W-POD-03", "SUP-POD-103")
@pytest.mark.parametrize(
    ("release", "gates", "kept"),
    [
        ("1.22", {}, False),
        ("1.23", {}, False),
        ("1.23", {"IdentifyPodOS": True}, True),
        ("1.24", {}, True),
        ("1.36", {}, True),
    ],
)
async def test_the_operating_system_of_a_pod_needs_a_gate_before_1_24(
    release: str, gates: dict[str, bool], kept: bool
) -> None:
    async with on(release, feature_gates=gates) as api:
        spec = {**POD["spec"], "os": {"name": "windows"}}
        template = {"metadata": {"name": "t"}, "template": {**POD, "spec": spec}}
        made = await api.ok("POST", "/api/v1/namespaces/default/podtemplates", template)
        assert ("os" in made["template"]["spec"]) is kept
