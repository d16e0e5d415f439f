"""Warnings about valid objects, and the releases that return them."""

from __future__ import annotations

from typing import Any

import pytest

from transom.machinery.object_warnings import object_warnings
from transom.machinery.releases import Release

NEW = Release(1, 36)


def pod(container: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {"metadata": {}, "spec": {"containers": [container or {}], **spec}}


@pytest.mark.parametrize(
    ("kind", "obj", "expected"),
    [
        ("/Pod", pod(), []),
        (
            "/Pod",
            pod(nodeSelector={"beta.kubernetes.io/os": "linux"}),
            [
                "spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use "
                '"kubernetes.io/os" instead'
            ],
        ),
        (
            "/Pod",
            pod({"env": [{"name": "A"}, {"name": "A"}]}),
            [
                'spec.containers[0].env[1]: hides previous definition of "A", which may be dropped '
                "when using apply"
            ],
        ),
        ("/Pod", pod({"env": [{"name": "A", "value": "x"}, {"name": "A", "value": "$(A)y"}]}), []),
        (
            "/Pod",
            pod({"env": [{"name": "A", "value": "x"}, {"name": "A", "value": "$(A)"}]}),
            [
                'spec.containers[0].env[1]: hides previous definition of "A", which may be dropped '
                "when using apply"
            ],
        ),
        (
            "/Pod",
            pod({"resources": {"limits": {"memory": "1500m", "cpu": "1500m"}}}),
            [
                'spec.containers[0].resources.limits[memory]: fractional byte value "1500m" is '
                "invalid, must be an integer"
            ],
        ),
        (
            "/Pod",
            pod({"ports": [{"containerPort": 80}, {"containerPort": 80}]}),
            [
                "spec.containers[0].ports[1]: duplicate port definition with "
                "spec.containers[0].ports[0]"
            ],
        ),
        (
            "/Service",
            {"metadata": {}, "spec": {"externalIPs": ["1.1.1.1"]}},
            ["spec.externalIPs is deprecated and may no longer be implemented in some clusters"],
        ),
    ],
)
def test_warnings(kind: str, obj: dict[str, Any], expected: list[str]) -> None:
    assert object_warnings(NEW, kind, obj) == expected
    assert object_warnings(Release(1, 20), kind, obj) == []


def test_workloads_are_checked_by_their_template() -> None:
    selector = {"beta.kubernetes.io/arch": "amd64"}
    obj = {"metadata": {}, "spec": {"template": {"spec": {"nodeSelector": selector}}}}
    (text,) = object_warnings(NEW, "apps/Deployment", obj)
    assert text.startswith("spec.template.spec.nodeSelector[beta.kubernetes.io/arch]: deprecated")
