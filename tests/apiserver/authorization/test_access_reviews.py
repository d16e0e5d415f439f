"""Selectors limit what is asked; access reviews report those that cannot be parsed."""

from __future__ import annotations

from typing import Any

import pytest
from tests.apiserver.harness import start

from transom.apiserver.core.context import UserInfo
from transom.apiserver.serving.inprocess import InProcessClient
from transom.client.resources import GroupVersionResource
from transom.machinery.errors import ApiError

PATH = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
IGNORED = "ignored due to parse error"
FIELDS, LABELS = "spec.resourceAttributes.fieldSelector", "spec.resourceAttributes.labelSelector"


async def reviewed(release: str, **attributes: Any) -> dict[str, Any]:
    api = await start(release=release)
    try:
        spec = {
            "user": "system:node:n1",
            "groups": ["system:nodes"],
            "resourceAttributes": {"verb": "list", "resource": "pods", "version": "v1"}
            | attributes,
        }
        review = {"kind": "SubjectAccessReview", "apiVersion": "authorization.k8s.io/v1"}
        return (await api.ok("POST", PATH, {**review, "spec": spec}))["status"]
    finally:
        await api.server.stop()


@pytest.mark.parametrize(
    ("selector", "allowed"),
    [
        ({"rawSelector": "spec.nodeName=n1"}, True),
        ({"rawSelector": "spec.nodeName=n2"}, False),
        (
            {"requirements": [{"key": "spec.nodeName", "operator": "In", "values": ["n1"]}]},
            True,
        ),
        (
            {"requirements": [{"key": "spec.nodeName", "operator": "NotIn", "values": ["n1"]}]},
            False,
        ),
    ],
)
async def test_a_node_may_list_its_own_pods(selector: dict[str, Any], allowed: bool) -> None:
    status = await reviewed("1.36", fieldSelector=selector)
    assert (status["allowed"], "evaluationError" in status) == (allowed, False)


@pytest.mark.parametrize(
    ("selectors", "error"),
    [
        ({"fieldSelector": {"rawSelector": "a=b,c"}}, f"{FIELDS} {IGNORED}"),
        ({"labelSelector": {"rawSelector": "!!"}}, f"{LABELS} {IGNORED}"),
        (
            {"labelSelector": {"requirements": [{"key": "a", "operator": "Like"}]}},
            f"{LABELS} {IGNORED}",
        ),
        (
            {
                "fieldSelector": {
                    "requirements": [
                        {"key": "a", "operator": "In", "values": ["x"]},
                        {"key": "b", "operator": "Exists"},
                    ]
                },
                "labelSelector": {
                    "requirements": [
                        {"key": "a", "operator": "In", "values": ["x"]},
                        {"key": "b", "operator": "Like", "values": ["x"]},
                    ]
                },
            },
            f"{FIELDS} partially {IGNORED}; {LABELS} partially {IGNORED}",
        ),
    ],
)
async def test_what_cannot_be_parsed_is_reported(selectors: dict[str, Any], error: str) -> None:
    assert (await reviewed("1.36", **selectors))["evaluationError"] == error


async def test_older_releases_know_no_selectors() -> None:
    status = await reviewed("1.30", fieldSelector={"rawSelector": "a=b,c"})
    assert "evaluationError" not in status


async def test_a_node_in_this_process_may_delete_its_own_slices() -> None:
    """Its kubelet does so when a driver is gone."""
    api = await start(release="1.36")
    try:
        user = UserInfo("system:node:n1", ("system:nodes", "system:authenticated"))
        client = InProcessClient(api.server, user)
        slices = GroupVersionResource("resource.k8s.io", "v1", "resourceslices", False)
        await client.delete_collection(slices, field_selector="spec.nodeName=n1")
        with pytest.raises(ApiError, match="with nodeName field selector"):
            await client.delete_collection(slices, field_selector="spec.nodeName=n2")
    finally:
        await api.server.stop()
