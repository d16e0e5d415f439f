"""Fields that 1.20 does not support are dropped from new objects."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.apiserver.harness import start

_NS = "/namespaces/default/"
_CONTAINERS = [{"name": "c", "image": "i"}]
_TARGET = {"type": "Utilization", "averageUtilization": 50}
_BETA_SLICES = "/apis/discovery.k8s.io/v1beta1" + _NS + "endpointslices"


def at(obj: Any, path: str) -> Any:
    for part in path.split("."):
        obj = obj[int(part)] if part.isdigit() else obj.get(part)
        if obj is None:
            return None
    return obj


def made(path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    async def main() -> tuple[int, dict[str, Any]]:
        api = await start()
        try:
            return await api.call(
                "POST", path, {**body, "metadata": {"name": "a", **body.get("metadata", {})}}
            )
        finally:
            await api.server.stop()

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("path", "body", "kept"),
    [
        (
            "/apis/storage.k8s.io/v1/csidrivers",
            {
                "spec": {
                    "storageCapacity": True,
                    "tokenRequests": [{"audience": ""}],
                    "requiresRepublish": True,
                }
            },
            {
                "spec.storageCapacity": None,
                "spec.tokenRequests": None,
                "spec.requiresRepublish": None,
                "spec.attachRequired": True,
            },
        ),
        (
            "/api/v1/nodes",
            {"spec": {"podCIDRs": ["10.1.0.0/24", "fd00::/64"]}},
            {"spec.podCIDRs": ["10.1.0.0/24"], "spec.podCIDR": "10.1.0.0/24"},
        ),
        (
            "/api/v1" + _NS + "podtemplates",
            {
                "template": {
                    "spec": {
                        "containers": _CONTAINERS,
                        "ephemeralContainers": [{"name": "e", "image": "i"}],
                    }
                }
            },
            {"template.spec.ephemeralContainers": None},
        ),
        (
            _BETA_SLICES,
            {
                "addressType": "IPv4",
                "endpoints": [
                    {
                        "addresses": ["10.0.0.1"],
                        "nodeName": "n",
                        "conditions": {"ready": True, "serving": True},
                    }
                ],
            },
            {
                "endpoints.0.nodeName": None,
                "endpoints.0.topology": None,
                "endpoints.0.conditions": {"ready": True},
            },
        ),
        (
            _BETA_SLICES.replace("v1beta1", "v1"),
            {"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"], "nodeName": "n"}]},
            {"endpoints.0.nodeName": "n"},
        ),
        (
            "/apis/storage.k8s.io/v1beta1/volumeattachments",
            {
                "spec": {
                    "attacher": "Any_Name",
                    "nodeName": "n",
                    "source": {"persistentVolumeName": "p"},
                },
                "status": {"attached": True},
            },
            {"status.attached": True},
        ),
        (
            "/apis/storage.k8s.io/v1/volumeattachments",
            {
                "spec": {
                    "attacher": "a.b",
                    "nodeName": "n",
                    "source": {"persistentVolumeName": "p"},
                },
                "status": {"attached": True},
            },
            {"status.attached": False},
        ),
        *[
            (
                "/api/v1" + _NS + "persistentvolumeclaims",
                {
                    "spec": {
                        "accessModes": ["ReadWriteOnce"],
                        "resources": {"requests": {"storage": "1Gi"}},
                        "dataSource": source,
                    }
                },
                {"spec.dataSource": shown},
            )
            for source, shown in (
                ({"apiGroup": "a.b", "kind": "C", "name": "d"}, None),
                (
                    {"kind": "PersistentVolumeClaim", "name": "d"},
                    {"kind": "PersistentVolumeClaim", "name": "d"},
                ),
            )
        ],
    ],
)
def test_what_is_kept_of_a_new_object(
    path: str, body: dict[str, Any], kept: dict[str, Any]
) -> None:
    status, obj = made(path, body)
    assert status == 201, obj
    shown = {where: at(obj, where) for where in kept}
    if (source := shown.get("spec.dataSource")) is not None:
        source.pop("apiGroup", None)
    assert shown == kept


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        (
            "/apis/autoscaling/v2beta2" + _NS + "horizontalpodautoscalers",
            {
                "spec": {
                    "maxReplicas": 2,
                    "scaleTargetRef": {"kind": "Deployment", "name": "d"},
                    "metrics": [
                        {
                            "type": "ContainerResource",
                            "containerResource": {
                                "name": "cpu",
                                "container": "c",
                                "target": _TARGET,
                            },
                        }
                    ],
                }
            },
            "spec.metrics[0].containerResource",
        ),
        (
            "/api/v1" + _NS + "podtemplates",
            {
                "template": {
                    "spec": {
                        "containers": _CONTAINERS,
                        "volumes": [
                            {"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}
                        ],
                    }
                }
            },
            "template.spec.volumes[0]",
        ),
        (
            "/apis/batch/v1" + _NS + "jobs",
            {
                "spec": {
                    "template": {
                        "metadata": {"labels": {"controller-uid": "mine"}},
                        "spec": {"restartPolicy": "Never", "containers": _CONTAINERS},
                    }
                }
            },
            "spec.template.metadata.labels[controller-uid]",
        ),
        (
            _BETA_SLICES,
            {
                "addressType": "IPv4",
                "endpoints": [
                    {"addresses": ["10.0.0.1"], "topology": {"topology.kubernetes.io/zone": "a b"}}
                ],
            },
            "endpoints[0].topology",
        ),
    ],
)
def test_what_is_missed_then(path: str, body: dict[str, Any], field: str) -> None:
    status, problem = made(path, body)
    assert (status, problem["details"]["causes"][0]["field"]) == (422, field)


@pytest.mark.parametrize(("own", "generated"), [({}, True), ({"labels": {"a": "b"}}, False)])
def test_labels_that_a_job_takes_from_its_template_include_the_generated_ones(
    own: dict[str, Any], generated: bool
) -> None:
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"restartPolicy": "Never", "containers": _CONTAINERS},
    }
    _, job = made(
        "/apis/batch/v1" + _NS + "jobs", {"metadata": own, "spec": {"template": template}}
    )
    assert ("job-name" in job["metadata"]["labels"]) is generated
    assert "job-name" in job["spec"]["template"]["metadata"]["labels"]
