"""The scale subresource: what it rejects, and how it can be patched."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.apiserver.harness import Api, start

SETS = "/apis/apps/v1/namespaces/default/statefulsets"
SCALE = SETS + "/s/scale"
APPLY, MERGE = "application/apply-patch+yaml", "application/merge-patch+json"
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"


@asynccontextmanager
async def run() -> AsyncIterator[Api]:
    api = await start()
    template = {
        "metadata": {"labels": {"a": "s"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    await api.ok(
        "POST",
        SETS,
        {
            "metadata": {"name": "s"},
            "spec": {
                "serviceName": "s",
                "selector": {"matchLabels": {"a": "s"}},
                "template": template,
            },
        },
    )
    yield api


def scale(replicas: int, **meta: Any) -> Any:
    return {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {"name": "s", "namespace": "default", **meta},
        "spec": {"replicas": replicas},
    }


@pytest.mark.parametrize(
    ("workloads", "read"),
    [
        ("/apis/apps/v1/namespaces/default/statefulsets", 'statefulsets.apps "none" not found'),
        ("/apis/apps/v1/namespaces/default/deployments", 'deployments/scale.apps "none" not found'),
        ("/apis/apps/v1/namespaces/default/replicasets", 'replicasets/scale.apps "none" not found'),
        (
            "/api/v1/namespaces/default/replicationcontrollers",
            'replicationcontrollers/scale.autoscaling "none" not found',
        ),
    ],
)
async def test_how_a_missing_workload_is_named(workloads: str, read: str) -> None:
    async with run() as api:
        written = read.replace("/scale.autoscaling", "").replace("/scale", "")
        missing = scale(1) | {"metadata": {"name": "none", "namespace": "default"}}
        for method, media, text in (
            ("GET", "", read),
            ("PUT", "application/json", written),
            ("PATCH", MERGE, written),
        ):
            sent = {} if method == "GET" else {"body": missing, "media": media}
            status, problem = await api.call(method, workloads + "/none/scale", **sent)
            assert (status, problem["message"]) == (404, text)


async def test_another_workload_is_named_by_the_sub_resource() -> None:
    async with run() as api:
        uid = (await api.ok("GET", SCALE))["metadata"]["uid"]
        status, problem = await api.call("PUT", SCALE, scale(2, uid="other"))
        assert status == 409
        assert problem["message"].endswith(
            f"Precondition failed: UID in precondition: other, UID in object meta: {uid}"
        )
        status, problem = await api.call("PUT", SCALE, scale(2, resourceVersion="1"))
        assert (status, problem["details"]["kind"]) == (409, "statefulsets")


async def test_applying_a_scale_conflicts_with_what_was_there() -> None:
    async with run() as api:
        status, problem = await api.call("PATCH", SCALE + "?fieldManager=m", scale(2), media=APPLY)
        assert (status, problem["message"]) == (
            409,
            (
                'Apply failed with 1 conflict: conflict with "before-first-apply" using '
                "autoscaling/v1: .spec.replicas"
            ),
        )
        done = await api.ok("PATCH", SCALE + "?fieldManager=m&force=true", scale(2), media=APPLY)
        assert done["spec"] == {"replicas": 2}
        assert "managedFields" not in done["metadata"]
        assert (await api.ok("GET", SETS + "/s"))["spec"]["replicas"] == 2


async def test_a_patch_that_does_not_fit() -> None:
    async with run() as api:
        status, problem = await api.call("PATCH", SCALE, {"spec": {"replicas": "x"}}, media=MERGE)
        assert (status, problem["details"]["causes"][0]["field"]) == (422, "patch")


@pytest.mark.parametrize(
    ("body", "query", "code", "end"),
    [
        ({"foo": 1}, "?fieldValidation=Strict", 422, 'strict decoding error: unknown field "foo"'),
        ({"foo": 1}, "?fieldValidation=Ignore", 200, ""),
        ({"spec": {"replicas": 3}}, "?fieldValidation=Strict", 200, ""),
        (
            {"kind": "X"},
            "",
            422,
            'no kind "X" is registered for version "autoscaling/v1" in scheme '
            '"k8s.io/kubernetes/pkg/api/legacyscheme/scheme.go:30"',
        ),
    ],
)
async def test_a_patched_scale_is_decoded(body: Any, query: str, code: int, end: str) -> None:
    api = await start(release="1.36")
    labels = {"a": "s"}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    spec = {"selector": {"matchLabels": labels}, "template": template}
    await api.ok("POST", SETS, {"metadata": {"name": "s"}, "spec": spec})
    status, answer = await api.call("PATCH", SCALE + query, body, media=MERGE)
    assert status == code
    assert answer.get("message", "").endswith(end)
    if code == 422:
        assert "managedFields" not in answer["message"]
    await api.server.stop()


async def test_sub_resources_have_metadata_but_no_tables() -> None:
    async with run() as api:
        for path in (SCALE, SETS + "/s/status"):
            assert (await api.call("GET", path, accept=TABLE))[0] == 406
            assert (await api.ok("GET", path, accept=TABLE + ", application/json"))["kind"] in (
                "Scale",
                "StatefulSet",
            )
            partial = await api.ok(
                "GET", path, accept=TABLE.replace("Table", "PartialObjectMetadata")
            )
            assert partial["kind"] == "PartialObjectMetadata"


async def test_the_version_of_a_read_is_checked() -> None:
    api = await start()
    target = "/apis/apps/v1/namespaces/default/deployments/none/scale"
    status, problem = await api.call("GET", f"{target}?resourceVersion=x")
    assert (status, problem["message"].startswith("resourceVersion: Invalid value")) == (500, True)
    assert (await api.call("GET", f"{target}?resourceVersion=99999999"))[0] == 504
