"""A cluster as input, through the interface of clients."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from transom.client.api import ObjectList
from transom.client.resources import GroupVersionResource
from transom.lint.config import LintConfig
from transom.lint.engine import lint_sources
from transom.lint.live import LiveCluster, read_live_cluster
from transom.lint.sources import SourcesRead
from transom.machinery.errors import ApiError
from transom.windows.target_nodes import target_nodes_of_cluster

NODE = {
    "metadata": {"name": "win", "labels": {"kubernetes.io/os": "windows"}},
    "status": {
        "nodeInfo": {
            "operatingSystem": "windows",
            "kernelVersion": "10.0.17763.1697",
            "containerRuntimeVersion": "docker://19.3.14",
            "kubeletVersion": "v1.20.15",
        }
    },
}
SPEC = {
    "nodeSelector": {"kubernetes.io/os": "windows"},
    "hostNetwork": True,
    "containers": [{"name": "a", "image": "x", "resources": {"limits": {"memory": "1Gi"}}}],
}
OWNED = {
    "name": "b",
    "namespace": "n",
    "ownerReferences": [{"kind": "ReplicaSet", "controller": True}],
}


class Fake:
    """Lists what it is given; a reason for what it refuses."""

    def __init__(self, content: dict[tuple[str, str], Any]) -> None:
        self.content = content
        self.requested: list[tuple[str, str, str]] = []

    async def list(
        self, resource: GroupVersionResource, namespace: str = "", **_: Any
    ) -> ObjectList:
        self.requested.append((resource.plural, resource.version, namespace))
        found = self.content.get((resource.plural, resource.version), [])
        if isinstance(found, str):
            raise ApiError(404 if found == "NotFound" else 403, found, "no")
        return ObjectList(found, "1")


def cluster(content: dict[tuple[str, str], Any], **options: Any) -> tuple[LiveCluster, Fake]:
    client = Fake({("nodes", "v1"): [NODE], **content})
    return asyncio.run(read_live_cluster(client, "prod", **options)), client  # type: ignore[arg-type]


def test_objects_and_nodes() -> None:
    live, _ = cluster(
        {
            ("pods", "v1"): [
                {"metadata": {"name": "a", "namespace": "n"}, "spec": SPEC},
                {"metadata": OWNED, "spec": SPEC},
            ],
            ("cronjobs", "v1"): "NotFound",
            ("cronjobs", "v1beta1"): [
                {
                    "metadata": {"name": "c"},
                    "spec": {"jobTemplate": {"spec": {"template": {"spec": SPEC}}}},
                }
            ],
            ("configmaps", "v1"): "Forbidden",
        }
    )
    report = lint_sources(
        SourcesRead(), target_nodes_of_cluster(live.nodes), LintConfig(), live.objects
    )
    assert [
        (f.id, f.obj.title if f.obj else "", f.nodes, f.source.name) for f in report.findings
    ] == [
        ("WIN-POD-002", "CronJob c", ("win",), "prod"),
        ("WIN-POD-002", "Pod n/a", ("win",), "prod"),
    ]
    assert live.notes == ["configmaps left out: you may not list them"]


def test_only_what_files_refer_to() -> None:
    classes = [
        {
            "metadata": {"name": "w"},
            "handler": "x",
            "scheduling": {"nodeSelector": {"kubernetes.io/os": "windows"}},
        }
    ]
    live, client = cluster({("runtimeclasses", "v1"): classes}, all_kinds=False)
    assert {plural for plural, _, _ in client.requested} == {"nodes", "runtimeclasses"}
    assert [obj.kind for obj in live.objects] == ["RuntimeClass"]


def test_a_namespace() -> None:
    _, client = cluster({}, namespace="n")
    assert ("pods", "v1", "n") in client.requested and ("namespaces", "v1", "") in client.requested


def test_other_problems_are_not_hidden() -> None:
    with pytest.raises(ApiError):
        cluster({("pods", "v1"): "ServiceUnavailable"})
