"""Claims and volumes: on which nodes they are available, and how WaitForFirstConsumer claims are
bound with the pod.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.conftest import ContextFactory

from transom.client.resources import (
    CSI_NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
)
from transom.machinery.objects import copy_object

from .conftest import SchedulerHarness
from .objects import Object, node, pod

BOUND = {"pv.kubernetes.io/bind-completed": "yes"}


def storage_class(
    name: str = "wait",
    mode: str = "WaitForFirstConsumer",
    provisioner: str = "kubernetes.io/no-provisioner",
    **more: Any,
) -> Object:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": mode,
        **more,
    }


def claim(name: str, size: str = "1Gi", volume: str = "", cls: str = "wait", **more: Any) -> Object:
    spec: Object = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": size}},
        "storageClassName": cls,
    }
    if volume:
        spec["volumeName"] = volume
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"u-{name}",
            "annotations": more.pop("annotations", {}),
        },
        "spec": {**spec, **more},
    }


def volume(
    name: str,
    where: str = "",
    size: str = "1Gi",
    cls: str = "wait",
    labels: dict[str, str] | None = None,
    **more: Any,
) -> Object:
    spec: Object = {
        "capacity": {"storage": size},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": cls,
        "hostPath": {"path": "/x"},
        **more,
    }
    if where:
        expressions = [{"key": "kubernetes.io/hostname", "operator": "In", "values": [where]}]
        spec["nodeAffinity"] = {
            "required": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
        }
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": spec,
        "status": {"phase": "Available"},
    }


def user(*claims: str) -> Object:
    return pod(
        "p", volumes=[{"name": c, "persistentVolumeClaim": {"claimName": c}} for c in claims]
    )


ZONE = "topology.kubernetes.io/zone"
CASES: list[tuple[str, list[Object], list[Object], list[Object], Object, str]] = [
    (
        "missing claim",
        [],
        [],
        [],
        user("c"),
        '0/2 nodes are available: 2 persistentvolumeclaim "c" not found.',
    ),
    (
        "immediate",
        [storage_class("now", "Immediate")],
        [claim("c", cls="now")],
        [],
        user("c"),
        "0/2 nodes are available: 2 pod has unbound immediate PersistentVolumeClaims.",
    ),
    (
        "bound here",
        [],
        [claim("c", volume="v", annotations=BOUND)],
        [volume("v", "b")],
        user("c"),
        "b",
    ),
    (
        "bound elsewhere",
        [],
        [claim("c", volume="v", annotations=BOUND)],
        [volume("v", "z")],
        user("c"),
        "0/2 nodes are available: 2 node(s) had volume node affinity conflict.",
    ),
    (
        "bound to nothing",
        [],
        [claim("c", volume="v", annotations=BOUND)],
        [],
        user("c"),
        "0/2 nodes are available: 2 pvc(s) bound to non-existent pv(s).",
    ),
    (
        "nothing to bind",
        [storage_class()],
        [claim("c")],
        [],
        user("c"),
        "0/2 nodes are available: 2 node(s) didn't find available persistent volumes to bind.",
    ),
    ("one volume", [storage_class()], [claim("c")], [volume("v", "b")], user("c"), "b"),
    (
        "too small",
        [storage_class()],
        [claim("c", "2Gi")],
        [volume("v", "b")],
        user("c"),
        "0/2 nodes are available: 2 node(s) didn't find available persistent volumes to bind.",
    ),
    (
        "kept for another",
        [storage_class()],
        [claim("c")],
        [volume("v", "b", claimRef={"name": "x", "namespace": "default"})],
        user("c"),
        "0/2 nodes are available: 2 node(s) didn't find available persistent volumes to bind.",
    ),
    (
        "two claims, one volume on each node",
        [storage_class()],
        [claim("c"), claim("d")],
        [volume("v", "a"), volume("w", "b")],
        user("c", "d"),
        "0/2 nodes are available: 2 node(s) didn't find available persistent volumes to bind.",
    ),
    (
        "two claims, two volumes",
        [storage_class()],
        [claim("c"), claim("d")],
        [volume("v", "a"), volume("w", "b"), volume("x", "b")],
        user("c", "d"),
        "b",
    ),
    (
        "made where the class allows",
        [
            storage_class(
                provisioner="example.org/disk",
                allowedTopologies=[
                    {"matchLabelExpressions": [{"key": "kubernetes.io/hostname", "values": ["b"]}]}
                ],
            )
        ],
        [claim("c")],
        [],
        user("c"),
        "b",
    ),
    (
        "already promised to a node",
        [storage_class(provisioner="example.org/disk")],
        [claim("c", annotations={"volume.kubernetes.io/selected-node": "b"})],
        [],
        user("c"),
        "b",
    ),
    (
        "no such class",
        [],
        [claim("c", annotations={"volume.kubernetes.io/selected-node": "b"})],
        [],
        user("c"),
        "0/2 nodes are available: 2 pod has unbound immediate PersistentVolumeClaims.",
    ),
    (
        "another zone",
        [],
        [claim("c", volume="v", annotations=BOUND)],
        [volume("v", labels={ZONE: "z2__z3"})],
        user("c"),
        "b",
    ),
]


@pytest.mark.parametrize(
    ("classes", "claims", "volumes", "wanted", "expected"),
    [c[1:] for c in CASES],
    ids=[c[0] for c in CASES],
)
def test_where_volumes_are(
    harness: SchedulerHarness,
    classes: list[Object],
    claims: list[Object],
    volumes: list[Object],
    wanted: Object,
    expected: str,
) -> None:
    harness.nodes(node("a", labels={ZONE: "z1"}), node("b", labels={ZONE: "z2"}))
    for resource, objects in (
        (STORAGE_CLASSES, classes),
        (PERSISTENT_VOLUME_CLAIMS, claims),
        (PERSISTENT_VOLUMES, volumes),
    ):
        harness.put(resource, *copy_object(objects))
    assert harness.decide(wanted) == expected


def test_csi_drivers_have_their_limits(harness: SchedulerHarness) -> None:
    harness.nodes(node("a"))
    harness.put(
        CSI_NODES,
        {
            "metadata": {"name": "a"},
            "spec": {"drivers": [{"name": "d.example", "allocatable": {"count": 1}}]},
        },
    )
    for name in ("c", "e"):
        harness.put(
            PERSISTENT_VOLUME_CLAIMS, claim(name, volume=f"v-{name}", annotations=dict(BOUND))
        )
        harness.put(
            PERSISTENT_VOLUMES,
            volume(f"v-{name}", csi={"driver": "d.example", "volumeHandle": name}),
        )
    assert harness.decide(user("c")) == "a"
    harness.running({**user("c"), "spec": {**user("c")["spec"], "nodeName": "a"}})
    assert harness.decide(user("c")) == "a"  # the same volume needs no second place
    assert (
        harness.decide(user("e")) == "0/1 nodes are available: 1 node(s) exceed max volume count."
    )


async def test_a_waiting_claim_gets_the_smallest_volume_with_its_pod(
    running_cluster: ContextFactory,
) -> None:
    async with running_cluster() as cluster:
        await cluster.client.create(STORAGE_CLASSES, "", storage_class())
        await cluster.add_node(node("a"))
        for name, size in (("large", "5Gi"), ("small", "2Gi"), ("tiny", "1Gi")):
            await cluster.client.create(PERSISTENT_VOLUMES, "", volume(name, "a", size))
            await cluster.client.patch(
                PERSISTENT_VOLUMES,
                "",
                name,
                {"status": {"phase": "Available"}},
                subresource="status",
            )
        made = claim("c", "2Gi")
        del made["metadata"]["uid"]
        await cluster.client.create(PERSISTENT_VOLUME_CLAIMS, "default", made)
        await cluster.add_pod(user("c"))
        await cluster.settle()
        bound = await cluster.client.get(PERSISTENT_VOLUMES, "", "small")
        assert bound["spec"]["claimRef"]["name"] == "c"
        assert bound["metadata"]["annotations"]["pv.kubernetes.io/bound-by-controller"] == "yes"
        assert await cluster.node_of("p") == ""  # until the volume controller has done its part
        done = {"metadata": {"annotations": BOUND}, "spec": {"volumeName": "small"}}
        await cluster.client.patch(PERSISTENT_VOLUME_CLAIMS, "default", "c", done)
        await cluster.settle(1.5)
        assert await cluster.node_of("p") == "a"
