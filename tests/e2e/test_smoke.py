"""The first minute with a cluster, with each available kubectl."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytestmark = pytest.mark.e2e


def test_cluster_is_what_it_says(cluster: Any) -> None:
    report = json.loads(
        cluster.transom("status", "--name", cluster.name, "--output", "json").stdout
    )
    assert (report["state"], report["ready"], report["version"]) == ("running", True, "v1.20.15")
    assert report["objects"]["namespaces"] >= 4


def test_kubectl_sees_kubernetes(kubectl: Any) -> None:
    version = json.loads(kubectl("version", "--output", "json").stdout)
    assert version["serverVersion"]["gitVersion"] == "v1.20.15"
    names = kubectl("get", "namespaces", "--output", "name").stdout.split()
    assert set(names) >= {"namespace/default", "namespace/kube-system"}


def test_object_comes_and_goes(kubectl: Any) -> None:
    kubectl("create", "configmap", "smoke", "--from-literal=a=b")
    assert kubectl("get", "configmap", "smoke", "--output", "jsonpath={.data.a}").stdout == "b"
    kubectl("delete", "configmap", "smoke")
    gone = kubectl("get", "configmap", "smoke", check=False)
    assert gone.returncode == 1
    assert 'configmaps "smoke" not found' in gone.stderr
