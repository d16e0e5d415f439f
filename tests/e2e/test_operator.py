"""A real operator, built on kopf, with its CRD: it runs with its own service account and minimal
permissions.
"""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.identities import become, eventually, token_request

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

HANDLERS = Path(__file__).with_name("operator_handlers.py")
DEFINITION = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: databases.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: databases, singular: database, kind: Database, shortNames: [db]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    additionalPrinterColumns:
    - {name: Phase, type: string, jsonPath: .status.phase}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, required: [size], properties: {size: {type: string, enum: [small, large]}}}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
"""
# What kopf says an operator of one namespace needs.
ROLE = """
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: operator}
rules:
- {apiGroups: [example.com], resources: [databases, databases/status], verbs: [get, list, watch, patch]}
- {apiGroups: [""], resources: [events], verbs: [create]}
- {apiGroups: [""], resources: [configmaps], verbs: [create, patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: kopf-cluster}
rules:
- {apiGroups: [apiextensions.k8s.io], resources: [customresourcedefinitions], verbs: [list, watch]}
- {apiGroups: [""], resources: [namespaces], verbs: [list, watch]}
"""
DATABASE = """
apiVersion: example.com/v1
kind: Database
metadata: {name: %s}
spec: {size: small}
"""


class Operator:
    """kopf in a process of its own, as a service account of the namespace."""

    def __init__(self, kubectl: Any, folder: Path) -> None:
        self.ns = f"op-{secrets.token_hex(3)}"
        self._kubectl = kubectl
        self._log = folder / "operator.log"
        self._process: subprocess.Popen[bytes] | None = None
        kubectl("create", "namespace", self.ns)
        kubectl("apply", "-f", "-", stdin=DEFINITION)
        kubectl("wait", "--for=condition=Established", "crd/databases.example.com", "--timeout=10s")
        account = f"--serviceaccount={self.ns}:operator"
        self("create", "serviceaccount", "operator")
        self("create", "-f", "-", stdin=ROLE)
        self("create", "rolebinding", "operator", "--role=operator", account)
        self("create", "clusterrolebinding", "kopf-cluster", "--clusterrole=kopf-cluster", account)
        self._identity = become(
            kubectl, folder, {"token": token_request(kubectl, self.ns, "operator")}, self.ns
        )

    def __call__(self, *args: str, **more: Any) -> str:
        """kubectl of an administrator in the namespace."""
        return self._kubectl("-n", self.ns, *args, **more).stdout

    def start(self) -> None:
        with self._log.open("a") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "kopf", "run", "--standalone", "-n", self.ns, str(HANDLERS)],
                env={**self._identity.env, "KUBECONFIG": str(self._identity.kubeconfig)},
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    def stop(self) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def log(self) -> str:
        return self._log.read_text()

    def look(self, found: Any) -> Any:
        """What `found` returns as soon as it is something; the log of the operator if it never
        is.
        """
        try:
            return eventually(found)
        except AssertionError as late:
            raise AssertionError(f"{late}\n{self.log()}") from late

    def remove(self) -> None:
        self.stop()
        for name in self(
            "get", "databases", "-o", "name"
        ).split():  # no controller would remove the finalizers
            self(
                "patch", name, "--type=merge", "-p", '{"metadata":{"finalizers":null}}', check=False
            )
        self("delete", "clusterrolebinding,clusterrole", "kopf-cluster")
        self("delete", "crd", "databases.example.com", "--timeout=20s")
        self("delete", "namespace", self.ns, "--wait=false")


@pytest.fixture
def operator(admin: Any, tmp_path: Path) -> Iterator[Operator]:
    made = Operator(admin, tmp_path)
    yield made
    made.remove()


def test_operator_lives_with_its_objects(operator: Operator) -> None:
    run = operator
    operator.start()
    run("create", "-f", "-", stdin=DATABASE % "main")
    operator.look(lambda: run("get", "db", "main", "-o", "jsonpath={.status.phase}") == "Ready")
    made = json.loads(run("get", "database", "main", "-o", "json"))
    assert made["metadata"]["finalizers"] == ["example.com/databases"]
    assert made["status"] == {"create": {"configmap": "main-settings"}, "phase": "Ready"}
    assert run("get", "db", "--no-headers").split()[:2] == ["main", "Ready"]
    settings = json.loads(run("get", "configmap", "main-settings", "-o", "json"))
    assert settings["data"] == {"size": "small"}
    assert settings["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"]

    run("patch", "database", "main", "--type=merge", "-p", '{"spec":{"size":"large"}}')
    operator.look(
        lambda: run("get", "cm", "main-settings", "-o", "jsonpath={.data.size}") == "large"
    )

    def events() -> set[str]:
        found = json.loads(run("get", "events", "-o", "json"))["items"]
        return {
            f"{e['reason']}: {e['message']}"
            for e in found
            if e["involvedObject"]["kind"] == "Database"
        }

    operator.look(
        lambda: {"Resized: from small to large", "Logging: Handler 'create' succeeded."} <= events()
    )

    run("delete", "database", "main", "--timeout=20s")  # waits for the finalizer
    assert run("get", "configmap", "main-obituary", "-o", "name") == "configmap/main-obituary\n"
    operator.look(lambda: not run("get", "configmap", "main-settings", "--ignore-not-found"))
    complaints = [
        line for line in operator.log().splitlines() if "[ERROR" in line or "Traceback" in line
    ]
    assert [line.partition("main] ")[2] for line in complaints] == [
        "Handler 'delete' failed temporarily: not yet"
    ]


def test_operator_catches_up(operator: Operator) -> None:
    """What happened while it was away is done when it is there."""
    run = operator
    for name in ("a", "b"):
        run("create", "-f", "-", stdin=DATABASE % name)
    operator.start()
    operator.look(
        lambda: run("get", "db", "-o", "jsonpath={.items[*].status.phase}") == "Ready Ready"
    )
    operator.stop()
    run("patch", "db", "a", "--type=merge", "-p", '{"spec":{"size":"large"}}')
    run("delete", "db", "b", "--wait=false")
    operator.start()
    operator.look(lambda: run("get", "cm", "a-settings", "-o", "jsonpath={.data.size}") == "large")
    operator.look(lambda: run("get", "db", "-o", "name") == "database.example.com/a\n")
