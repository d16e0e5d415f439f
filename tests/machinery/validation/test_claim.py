"""Claims, volumes and classes of storage at release 1.36."""

from __future__ import annotations

from typing import Any

from transom.machinery.kinds import BY_KEY
from transom.machinery.releases import Release
from transom.machinery.releases.features import FeatureSet
from transom.machinery.releases.kinds import release_kinds
from transom.machinery.validation import validate_create, validate_update

CURRENT = FeatureSet(Release(1, 36))
KINDS = {kind.key: kind for kind in release_kinds(CURRENT.release)}
META = {"name": "c", "namespace": "default", "uid": "1", "resourceVersion": "1"}


def claim(storage: str = "1Gi", phase: str = "Pending", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": META,
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": storage}},
            **spec,
        },
        "status": {"phase": phase},
    }


def create(obj: dict[str, Any], features: FeatureSet = CURRENT) -> list[str]:
    return [str(e) for e in validate_create(BY_KEY["/PersistentVolumeClaim"], obj, "", features)]


def update(new: dict[str, Any], old: dict[str, Any]) -> list[str]:
    kind = BY_KEY["/PersistentVolumeClaim"]
    return [str(e) for e in validate_update(kind, new, old, "", "", CURRENT)]


def test_read_write_once_pod_stands_alone() -> None:
    assert create(claim(accessModes=["ReadWriteOncePod"])) == []
    assert create(claim(accessModes=["ReadWriteOncePod", "ReadWriteOnce"])) == [
        "spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes"
    ]
    [error] = create(claim(accessModes=["ReadWriteOncePod"]), FeatureSet(Release(1, 20)))
    assert "Unsupported value" in error


def test_a_bound_claim_may_change_its_attributes_class_and_grow() -> None:
    old = claim(phase="Bound", volumeAttributesClassName="a")
    assert update(claim("2Gi", "Bound", volumeAttributesClassName="b"), old) == []
    [error] = update(claim(volumeAttributesClassName="b"), claim(volumeAttributesClassName="a"))
    assert '\n- "VolumeAttributesClassName": "a"\n+ "VolumeAttributesClassName": "b"\n' in error


def test_a_claim_may_shrink_to_more_than_its_capacity() -> None:
    old = {**claim("3Gi", "Bound"), "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}}
    assert update({**claim("2Gi"), "status": old["status"]}, old) == []
    assert update({**claim("1Gi"), "status": old["status"]}, old) == [
        "spec.resources.requests.storage: Forbidden: field can not be less than status.capacity"
    ]


def test_a_claim_without_a_class_may_get_one() -> None:
    assert update(claim(storageClassName="a"), claim()) == []
    [error] = update(claim(storageClassName="b"), claim(storageClassName="a"))
    assert error.startswith("spec: Forbidden: spec is immutable after creation")


def test_most_fields_of_a_driver_may_change() -> None:
    kind = KINDS["storage.k8s.io/CSIDriver"]
    spec = {
        "attachRequired": True,
        "podInfoOnMount": False,
        "storageCapacity": False,
        "seLinuxMount": False,
    }
    old = {"metadata": {"name": "d", "uid": "1", "resourceVersion": "1"}, "spec": spec}
    new = {**old, "spec": {**spec, "podInfoOnMount": True}}
    assert validate_update(kind, new, old, "", "", CURRENT) == []
    assert len(validate_update(kind, new, old, "", "", FeatureSet(Release(1, 29)))) == 1
    assert len(validate_update(kind, new, old)) == 1
