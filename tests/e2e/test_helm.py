"""Helm as the administrator of a namespace: install, upgrade, roll back, uninstall."""

from __future__ import annotations

import json
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import ROOT
from tests.e2e.identities import eventually, issued

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

CHART = {
    "Chart.yaml": "{apiVersion: v2, name: shop, version: 1.0.0, appVersion: '1'}",
    "values.yaml": "{greeting: hello, wide: false}",
    "templates/config.yaml": """
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-config}
data:
  greeting: {{ .Values.greeting }}
  revision: {{ .Release.Revision | quote }}
  cluster: {{ .Capabilities.KubeVersion.Version }}
  account: {{ (lookup "v1" "ServiceAccount" .Release.Namespace "default").metadata.name | default "none" }}
  hpa: {{ .Capabilities.APIVersions.Has "autoscaling/v2/HorizontalPodAutoscaler" | quote }}
""",
    "templates/deployment.yaml": """
apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ .Release.Name }}, labels: {app.kubernetes.io/managed-by: Helm}}
spec:
  replicas: 0
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec:
      containers:
      - {name: c, image: shop, env: [{name: GREETING, value: {{ .Values.greeting }}}]}
""",
    "templates/hook.yaml": """
apiVersion: v1
kind: ConfigMap
metadata: {name: before, annotations: {helm.sh/hook: pre-upgrade}}
""",
    "templates/wide.yaml": """
{{ if .Values.wide }}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: shop}
{{ end }}
""",
}


class Helm:
    def __init__(self, binary: str, owner: Any, ns: str) -> None:
        self._command = [binary, "--kubeconfig", str(owner.kubeconfig), "-n", ns]
        self._env = owner.env
        self.kubectl = owner

    def __call__(self, *args: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*self._command, *args], env=self._env, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0 or not check, (
            f"helm {' '.join(args)}\n{done.stdout}{done.stderr}"
        )
        return done

    def config(self, release: str) -> dict[str, str]:
        return json.loads(
            self.kubectl("get", "configmap", f"{release}-config", "-o", "jsonpath={.data}").stdout
        )


@pytest.fixture
def helm(admin: Any, tmp_path: Path) -> Iterator[Helm]:
    binary = next((str(p) for p in ROOT.glob(".tools/helm/bin/helm")), None) or shutil.which("helm")
    if binary is None:
        pytest.skip("no Helm on this machine")
    ns = f"helm-{secrets.token_hex(3)}"
    admin("create", "namespace", ns)
    admin(
        "-n", ns, "create", "rolebinding", "owner", "--clusterrole=admin", f"--user=owner-of-{ns}"
    )
    yield Helm(binary, issued(admin, tmp_path, f"owner-of-{ns}", namespace=ns), ns)
    admin("delete", "namespace", ns, "--wait=false")


@pytest.fixture
def chart(tmp_path: Path) -> str:
    for name, text in CHART.items():
        file = tmp_path / "shop" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return str(tmp_path / "shop")


def test_life_of_a_release(helm: Helm, chart: str) -> None:
    planned = helm("install", "web", chart, "--dry-run=server").stdout
    assert "account: default" in planned and not helm("list", "-q").stdout
    helm("install", "web", chart, "--wait", "--timeout=20s")
    assert helm.config("web") == {
        "greeting": "hello",
        "revision": "1",
        "cluster": "v1.20.15",
        "account": "default",
        "hpa": "true",
    }
    again = helm("install", "web", chart, check=False)
    assert again.returncode != 0 and "cannot re-use a name that is still in use" in again.stderr

    helm("upgrade", "web", chart, "--set", "greeting=bye")
    env = "jsonpath={.spec.template.spec.containers[0].env[0].value}"
    assert (
        helm.config("web")["greeting"],
        helm.kubectl("get", "deploy", "web", "-o", env).stdout,
    ) == ("bye", "bye")
    assert helm.kubectl("get", "configmap", "before", "-o", "name").stdout

    helm("rollback", "web", "1")
    assert (
        helm.config("web")["greeting"],
        helm.kubectl("get", "deploy", "web", "-o", env).stdout,
    ) == ("hello", "hello")
    history = json.loads(helm("history", "web", "-o", "json").stdout)
    assert [(r["revision"], r["status"]) for r in history] == [
        (1, "superseded"),
        (2, "superseded"),
        (3, "deployed"),
    ]

    helm("uninstall", "web")
    eventually(lambda: not helm.kubectl("get", "deploy", "-o", "name").stdout)
    assert helm("list", "-a", "-q").stdout == ""


def test_release_beyond_the_namespace_is_refused(helm: Helm, chart: str) -> None:
    refused = helm("install", "web", chart, "--set", "wide=true", check=False)
    assert refused.returncode != 0
    assert (
        'cannot get resource "clusterroles" in API group "rbac.authorization.k8s.io" at the '
        "cluster scope"
    ) in refused.stderr
