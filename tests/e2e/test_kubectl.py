"""Everyday work with each available kubectl: every verb works as against Kubernetes."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 0
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: c, image: 'nginx:1.19', ports: [{containerPort: 80}]}
"""


@pytest.fixture
def ns(kubectl: Any) -> Iterator[Any]:
    """A kubectl that works in a namespace of its own."""
    name = f"t-{secrets.token_hex(3)}"
    kubectl("create", "namespace", name)

    def run(*args: str, **more: Any) -> Any:
        return kubectl("--namespace", name, *args, **more)

    run.name = name  # type: ignore[attr-defined]
    yield run
    kubectl("delete", "namespace", name, "--wait=false")


def test_create_get_in_every_form(ns: Any) -> None:
    ns("create", "configmap", "a", "--from-literal=k=v")
    ns("create", "configmap", "b", "--from-literal=k=w")
    ns("label", "configmap", "a", "tier=web")
    assert json.loads(ns("get", "configmap", "a", "-o", "json").stdout)["data"] == {"k": "v"}
    assert yaml.safe_load(ns("get", "cm", "a", "-o", "yaml").stdout)["kind"] == "ConfigMap"
    assert ns("get", "cm", "a", "-o", "jsonpath={.data.k}").stdout == "v"
    wide = ns("get", "cm", "-o", "wide").stdout.split("\n")
    assert wide[0].split() == ["NAME", "DATA", "AGE"]
    assert ns("get", "cm", "-l", "tier=web", "-o", "name").stdout.split() == ["configmap/a"]
    assert ns("get", "cm", "--field-selector", "metadata.name=b", "-o", "name").stdout.split() == [
        "configmap/b"
    ]
    paged = ns("get", "cm", "--chunk-size=1", "-o", "name").stdout.split()
    assert {"configmap/a", "configmap/b"} <= set(paged)
    columns = ns(
        "get", "cm", "--sort-by=.metadata.name", "-o", "custom-columns=N:.metadata.name"
    ).stdout.split()
    assert columns[0] == "N" and columns[1:] == sorted(columns[1:])


def test_watch_shows_changes(ns: Any, cluster: Any, kubectl: Any) -> None:
    import subprocess

    watching = subprocess.Popen(
        [kubectl.binary, "-n", ns.name, "get", "cm", "--watch", "-o", "name"],
        env=cluster.env,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        ns("create", "configmap", "seen")
        assert watching.stdout is not None
        assert any("seen" in line for line in iter(watching.stdout.readline, ""))
    finally:
        watching.kill()
        watching.wait()


def test_apply_both_ways(ns: Any) -> None:
    assert "created" in ns("apply", "-f", "-", stdin=DEPLOYMENT).stdout
    assert "unchanged" in ns("apply", "-f", "-", stdin=DEPLOYMENT).stdout
    assert ns("diff", "-f", "-", stdin=DEPLOYMENT).stdout == ""
    changed = DEPLOYMENT.replace("nginx:1.19", "nginx:1.20")
    difference = ns("diff", "-f", "-", stdin=changed, check=False)
    assert difference.returncode == 1 and "+      - image: nginx:1.20" in difference.stdout
    assert "configured" in ns("apply", "-f", "-", stdin=changed).stdout
    ns("scale", "deployment", "web", "--replicas=0")
    refused = ns(
        "apply",
        "--server-side",
        "--field-manager=other",
        "-f",
        "-",
        stdin=DEPLOYMENT.replace("nginx:1.19", "nginx:1.21"),
        check=False,
    )
    assert refused.returncode != 0 and "conflict with" in refused.stderr
    ns(
        "apply",
        "--server-side",
        "--field-manager=other",
        "--force-conflicts",
        "-f",
        "-",
        stdin=DEPLOYMENT.replace("nginx:1.19", "nginx:1.21"),
    )
    image = ns(
        "get", "deploy", "web", "-o", "jsonpath={.spec.template.spec.containers[0].image}"
    ).stdout
    assert image == "nginx:1.21"
    managers = ns(
        "get", "deploy", "web", "-o", "jsonpath={.metadata.managedFields[*].manager}"
    ).stdout.split()
    assert "other" in managers


def test_three_kinds_of_patch(ns: Any) -> None:
    ns("apply", "-f", "-", stdin=DEPLOYMENT)
    ns(
        "patch",
        "deploy",
        "web",
        "-p",
        '{"spec":{"template":{"spec":{"containers":[{"name":"c","env":[{"name":"A","value":"1"}]}]}}}}',
    )
    ns("patch", "deploy", "web", "--type=merge", "-p", '{"metadata":{"labels":{"x":"y"}}}')
    ns(
        "patch",
        "deploy",
        "web",
        "--type=json",
        "-p",
        '[{"op":"replace","path":"/spec/minReadySeconds","value":3}]',
    )
    obj = json.loads(ns("get", "deploy", "web", "-o", "json").stdout)
    (container,) = obj["spec"]["template"]["spec"]["containers"]
    assert (container["image"], container["env"]) == ("nginx:1.19", [{"name": "A", "value": "1"}])
    assert (obj["metadata"]["labels"]["x"], obj["spec"]["minReadySeconds"]) == ("y", 3)


def test_replace_edit_label_annotate(ns: Any, cluster: Any, tmp_path: Path, kubectl: Any) -> None:
    ns("create", "configmap", "a", "--from-literal=k=v")
    obj = json.loads(ns("get", "cm", "a", "-o", "json").stdout)
    obj["data"]["k"] = "replaced"
    ns("replace", "-f", "-", stdin=json.dumps(obj))
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nsed -i s/replaced/edited/ "$1"\n')
    editor.chmod(0o755)
    before = dict(cluster.env)
    cluster.env["KUBE_EDITOR"] = str(editor)
    try:
        ns("edit", "configmap", "a")
    finally:
        cluster.env.clear()
        cluster.env.update(before)
    ns("annotate", "cm", "a", "note=hello")
    got = json.loads(ns("get", "cm", "a", "-o", "json").stdout)
    assert (got["data"]["k"], got["metadata"]["annotations"]["note"]) == ("edited", "hello")
    stale = ns("replace", "-f", "-", stdin=json.dumps(obj), check=False)
    assert "the object has been modified" in stale.stderr


def test_describe_and_explain(ns: Any) -> None:
    ns("apply", "-f", "-", stdin=DEPLOYMENT)
    assert "RollingUpdateStrategy:" in ns("describe", "deployment", "web").stdout
    assert (
        "PodTemplateSpec" in ns("explain", "deployment.spec.template").stdout
        or "template" in ns("explain", "deployment.spec.template").stdout
    )
    assert "replicas" in ns("explain", "--recursive", "statefulset").stdout


def test_discovery_lists_common_resources(kubectl: Any) -> None:
    resources = kubectl("api-resources", "-o", "name").stdout.split()
    assert {"pods", "deployments.apps", "ingresses.networking.k8s.io", "cronjobs.batch"} <= set(
        resources
    )
    versions = kubectl("api-versions").stdout.split()
    assert {"v1", "apps/v1", "batch/v1", "batch/v1beta1", "autoscaling/v2", "policy/v1"} <= set(
        versions
    )
    assert kubectl("auth", "can-i", "delete", "nodes").stdout.strip() == "yes"
    assert "is running at" in kubectl("cluster-info").stdout


def test_wait_and_delete_with_every_cascade(ns: Any) -> None:
    for name, cascade in (
        ("a", ()),
        ("b", ("--cascade=foreground",)),
        ("c", ("--cascade=orphan",)),
    ):
        ns("create", "configmap", name)
        options = cascade if "foreground" not in str(cascade) else ()
        ns("delete", "configmap", name, *options, "--wait=true")
        assert "not found" in ns("get", "cm", name, check=False).stderr
    ns("create", "secret", "generic", "s", "--from-literal=a=b")
    assert ns("get", "secret", "s", "-o", "jsonpath={.data.a}").stdout == "Yg=="
    ns("delete", "secrets", "--all", "--wait=false")


def test_validation_errors_read_like_kubernetes(ns: Any) -> None:
    bad = DEPLOYMENT.replace("name: c,", "name: C_,")
    refused = ns("create", "-f", "-", stdin=bad, check=False)
    assert refused.returncode == 1
    assert (
        'The Deployment "web" is invalid: spec.template.spec.containers[0].name: Invalid '
        'value: "C_"'
    ) in refused.stderr


KINDS = {
    "service": ("create", "service", "clusterip", "x", "--tcp=80"),
    "serviceaccount": ("create", "serviceaccount", "x"),
    "role": ("create", "role", "x", "--verb=get", "--resource=pods"),
    "rolebinding": ("create", "rolebinding", "x", "--clusterrole=view", "--user=u"),
    "poddisruptionbudget": (
        "create",
        "poddisruptionbudget",
        "x",
        "--selector=a=b",
        "--min-available=1",
    ),
    "quota": ("create", "quota", "x", "--hard=pods=5"),
    "job": ("create", "job", "x", "--image=busybox"),
    "cronjob": ("create", "cronjob", "x", "--image=busybox", "--schedule=0 0 1 1 *"),
    "deployment": ("create", "deployment", "x", "--image=busybox", "--replicas=0"),
    "secret": ("create", "secret", "generic", "x"),
    "ingress": ("create", "ingress", "x", "--rule=foo.com/*=svc:80"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_create_shortcuts(ns: Any, kind: str) -> None:
    ns(*KINDS[kind])
    assert ns("get", kind, "x", "-o", "jsonpath={.metadata.name}").stdout == "x"
    assert "x" in ns("get", kind).stdout
    assert "Name:" in ns("describe", kind, "x").stdout
    ns("delete", kind, "x", "--wait=false")
