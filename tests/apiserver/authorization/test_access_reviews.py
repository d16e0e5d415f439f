"""Selectors in access reviews: they limit what is asked, and what cannot be parsed is reported."""

from __future__ import annotations

from typing import Any

import pytest
from tests.apiserver.harness import start

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
