"""Hashes of pod templates are those that Kubernetes 1.20 gives."""

from __future__ import annotations

import re

import pytest

from transom.controllers import template_hash
from transom.machinery.hashes import fnv32, fnv32a
from transom.machinery.objects import Object

CONTAINER = {
    "resources": {},
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "imagePullPolicy": "IfNotPresent",
}
SPEC = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "securityContext": {},
    "schedulerName": "default-scheduler",
}


def nginx(image: str) -> Object:
    """The Deployment of Kubernetes' documentation."""
    container = {
        "name": "nginx",
        "image": image,
        "ports": [{"containerPort": 80, "protocol": "TCP"}],
        **CONTAINER,
    }
    meta = {"creationTimestamp": None, "labels": {"app": "nginx"}}
    return {"metadata": meta, "spec": {"containers": [container], **SPEC}}


@pytest.mark.parametrize(
    ("image", "expected"), [("nginx:1.14.2", "66b6c48dd5"), ("nginx:1.16.1", "559d658b74")]
)
def test_documented_hashes(image: str, expected: str) -> None:
    assert template_hash.compute_template_hash(nginx(image), None) == expected


def test_collisions_and_new_fields_change_the_hash() -> None:
    template = nginx("nginx:1.14.2")
    newer = {**template, "spec": {**template["spec"], "os": {"name": "windows"}}}
    found = {
        template_hash.compute_template_hash(template, None),
        template_hash.compute_template_hash(template, 0),
        template_hash.compute_template_hash(template, 1),
        template_hash.compute_template_hash(newer, None),
    }
    assert len(found) == 4


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "0",
            (
                "value:(int64)0 scale:(resource.Scale)0} .* s:\\(string\\)0 "
                "Format:\\(resource.Format\\)DecimalSI"
            ),
        ),
        (
            "100m",
            (
                "value:(int64)100 scale:(resource.Scale)-3} .* s:\\(string\\)100m "
                "Format:\\(resource.Format\\)DecimalSI"
            ),
        ),
        (
            "64Mi",
            (
                "value:(int64)67108864 scale:(resource.Scale)0} .* s:\\(string\\) "
                "Format:\\(resource.Format\\)BinarySI"
            ),
        ),
        ("1Gi", "value:(int64)1073741824 scale:(resource.Scale)0} .* s:\\(string\\)1Gi Format"),
        ("1500m", "value:(int64)1500 scale:(resource.Scale)-3} .* s:\\(string\\)1500m "),
        (
            "2e3",
            (
                "value:(int64)2 scale:(resource.Scale)3} .* s:\\(string\\)2e3 "
                "Format:\\(resource.Format\\)DecimalExponent"
            ),
        ),
    ],
)
def test_quantities(text: str, expected: str) -> None:
    head, _, tail = expected.partition(" .* ")
    assert re.fullmatch(
        re.escape("{i:(resource.int64Amount){" + head) + " .* " + tail + ".*",
        template_hash._quantity(text),
    )


@pytest.mark.parametrize(
    ("data", "a", "plain"), [(b"", 0x811C9DC5, 0x811C9DC5), (b"foobar", 0xBF9CF968, 0x31F0B262)]
)
def test_fnv(data: bytes, a: int, plain: int) -> None:
    assert (fnv32a(data), fnv32(data)) == (a, plain)
