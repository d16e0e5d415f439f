"""The API extended with kubectl only: a CustomResourceDefinition from creation to deletion, and a
webhook that denies requests.
"""

from __future__ import annotations

import base64
import json
import secrets
import ssl
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.identities import eventually

from transom.kit import pki

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

DEFINITION = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: boats.GROUP}
spec:
  group: GROUP
  scope: Namespaced
  names: {plural: boats, singular: boat, kind: Boat, shortNames: [bt], categories: [pool]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.crew, statusReplicasPath: .status.aboard, labelSelectorPath: .status.selector}
    additionalPrinterColumns:
    - {name: Crew, type: integer, jsonPath: .spec.crew}
    - {name: Flag, type: string, jsonPath: .spec.flag, priority: 1}
    schema:
      openAPIV3Schema:
        description: A boat that floats.
        type: object
        properties:
          spec:
            type: object
            required: [crew]
            properties:
              crew: {type: integer, minimum: 1, description: How many sail it.}
              flag: {type: string, default: plain}
          status:
            type: object
            properties: {aboard: {type: integer}, selector: {type: string}}
"""
BOAT = """
apiVersion: GROUP/v1
kind: Boat
metadata: {name: anna}
spec: {crew: 2}
"""


@pytest.fixture
def ns(kubectl: Any) -> Iterator[str]:
    name = f"ext-{secrets.token_hex(3)}"
    kubectl("create", "namespace", name)
    yield name
    kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def group(kubectl: Any) -> Iterator[str]:
    name = f"{secrets.token_hex(3)}.example.com"
    yield name
    kubectl("delete", "crd", f"boats.{name}", "--ignore-not-found", "--timeout=20s")


def test_rules_have_the_cost_limits_of_kubernetes(kubectl: Any, ns: str, group: str) -> None:
    def run(*args: str, **more: Any) -> Any:
        return kubectl("-n", ns, *args, **more)

    ports = """
              ports:
                type: array
                maxItems: 1000
                items: {type: string, maxLength: 10}
                x-kubernetes-validations:
                - rule: RULE
"""
    definition = DEFINITION.replace("GROUP", group).replace(
        "              flag: {type", ports.lstrip("\n") + "              flag: {type"
    )
    refused = run(
        "create",
        "-f",
        "-",
        stdin=definition.replace("RULE", "self.all(x, self.all(y, self.all(z, x != y + z)))"),
        check=False,
    )
    assert (
        refused.returncode != 0
        and (
            "estimated rule cost exceeds budget by factor of more than 100x (try simplifying "
            "the rule, or adding maxItems, "
            "maxProperties, and maxLength where arrays, maps, and strings are declared)"
        )
        in refused.stderr
    )
    run(
        "create",
        "-f",
        "-",
        stdin=definition.replace("RULE", "self.all(x, self.exists_one(y, y == x))"),
    )
    run("wait", "--for=condition=Established", f"crd/boats.{group}", "--timeout=10s")
    boat = BOAT.replace("GROUP", group)
    eventually(lambda: run("get", f"boats.{group}", check=False).returncode == 0)
    many = json.dumps([f"p{i}" for i in range(1000)])
    expensive = run(
        "create", "-f", "-", stdin=boat.replace("crew: 2", f"crew: 2, ports: {many}"), check=False
    )
    assert (
        expensive.returncode != 0
        and (
            "'operation cancelled: actual cost limit exceeded': no further validation rules "
            "will be run due to call cost "
            "exceeds limit for rule: self.all(x, self.exists_one(y, y == x))"
        )
        in expensive.stderr
    )
    twice = run(
        "create", "-f", "-", stdin=boat.replace("crew: 2", "crew: 2, ports: [a, a]"), check=False
    )
    assert "failed rule: self.all(x, self.exists_one(y, y == x))" in twice.stderr
    run("create", "-f", "-", stdin=boat.replace("crew: 2", "crew: 2, ports: [a, b]"))


def test_life_of_a_definition(kubectl: Any, cluster: Any, ns: str, group: str) -> None:
    def run(*args: str, **more: Any) -> Any:
        return kubectl("-n", ns, *args, **more)

    run("create", "-f", "-", stdin=DEFINITION.replace("GROUP", group))
    run("wait", "--for=condition=Established", f"crd/boats.{group}", "--timeout=10s")
    explained = eventually(
        lambda: run("explain", "boats.spec.crew", f"--api-version={group}/v1", check=False).stdout
    )
    assert "How many sail it." in explained and "<integer>" in explained
    assert "A boat that floats." in run("explain", "boats", f"--api-version={group}/v1").stdout
    line = next(
        li
        for li in run("api-resources", f"--api-group={group}").stdout.splitlines()
        if li.startswith("boats")
    )
    assert line.split()[:2] == ["boats", "bt"] and line.split()[-2:] == ["true", "Boat"]

    boat = BOAT.replace("GROUP", group)
    for change, printed in (
        (("crew: 2", "crew: 0"), "should be greater than or equal to 1"),
        (("crew: 2", "crew: two"), "must be of type integer"),
        (("crew: 2", "flag: x"), "spec.crew: Required value"),
    ):
        refused = run(
            "create", "--validate=false", "-f", "-", stdin=boat.replace(*change), check=False
        )
        assert (
            refused.returncode != 0
            and 'The Boat "anna" is invalid' in refused.stderr
            and printed in refused.stderr
        )
    unknown = run(
        "create", "-f", "-", stdin=boat.replace("crew: 2", "crew: 2, oars: 9"), check=False
    )
    assert unknown.returncode != 0 and "oars" in unknown.stderr

    watching = subprocess.Popen(
        [kubectl.binary, "-n", ns, "get", "bt", "--watch", "--no-headers"],
        env=cluster.env,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert watching.stdout is not None
        run("apply", "-f", "-", stdin=boat)
        assert watching.stdout.readline().split()[:2] == ["anna", "2"]
        run("scale", "boat/anna", "--replicas=5")
        assert watching.stdout.readline().split()[:2] == ["anna", "5"]
    finally:
        watching.kill()
        watching.wait()
    wide = run("get", "pool", "-o", "wide").stdout.splitlines()
    assert wide[0].split() == ["NAME", "CREW", "FLAG"] and wide[1].split()[:3] == [
        "anna",
        "5",
        "plain",
    ]
    scale = json.loads(
        run("get", "--raw", f"/apis/{group}/v1/namespaces/{ns}/boats/anna/scale").stdout
    )
    assert (scale["kind"], scale["spec"], scale["status"]) == (
        "Scale",
        {"replicas": 5},
        {"replicas": 0},
    )
    stale = run("scale", "bt/anna", "--current-replicas=2", "--replicas=3", check=False)
    assert "xpected" in stale.stderr and "5" in stale.stderr
    assert "unchanged" not in run("apply", "-f", "-", stdin=boat).stdout
    assert run("get", "bt", "anna", "-o", "jsonpath={.spec.crew}").stdout == "2"
    strategic = run("patch", "boat", "anna", "-p", '{"spec":{"crew":3}}', check=False)
    assert "accepted media types include: application/json-patch+json" in strategic.stderr
    assert "Crew:" in run("describe", "boat", "anna").stdout

    # With its definition a kind is gone, its objects with it.
    run("delete", "crd", f"boats.{group}", "--timeout=20s")
    assert (
        "the server doesn't have a resource type"
        in run("get", f"boats.{group}", check=False).stderr
    )
    run("create", "-f", "-", stdin=DEFINITION.replace("GROUP", group))
    run("wait", "--for=condition=Established", f"crd/boats.{group}", "--timeout=10s")
    assert run("get", f"boats.{group}", "-o", "name").stdout == ""


class Guard:
    """A validating webhook of the standard library's HTTP server, over TLS."""

    def __init__(self, folder: Path) -> None:
        authority = pki.make_ca("guard-ca")
        self.bundle = base64.b64encode(authority.certificate).decode()
        certificate, key = folder / "guard.crt", folder / "guard.key"
        pki.save_key_pair(pki.issue_server(authority, "guard", [], ["127.0.0.1"]), certificate, key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self.seen: list[dict[str, Any]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self._server.server_port}/check"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def _handler(guard) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                review = json.loads(self.rfile.read(int(self.headers["content-length"])))
                guard.seen.append(review["request"])
                answer = guard.decide(review["request"])
                body = json.dumps({**review, "request": None, "response": answer}).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Quiet."""

        return Handler

    def decide(self, request: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = {"uid": request["uid"], "allowed": True}
        data = (request.get("object") or {}).get("data") or {}
        if "password" in data:
            return {
                **answer,
                "allowed": False,
                "status": {"message": "passwords belong in secrets", "code": 422},
            }
        if "old" in data:
            answer["warnings"] = ["old is old"]
        return answer

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def guard(tmp_path: Path) -> Iterator[Guard]:
    made = Guard(tmp_path)
    yield made
    made.close()


def configuration(name: str, ns: str, guard: Guard) -> str:
    return json.dumps(
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": name},
            "webhooks": [
                {
                    "name": "guard.example.com",
                    "admissionReviewVersions": ["v1"],
                    "sideEffects": "None",
                    "timeoutSeconds": 5,
                    "clientConfig": {"url": guard.url, "caBundle": guard.bundle},
                    "namespaceSelector": {"matchLabels": {"guarded": ns}},
                    "rules": [
                        {
                            "apiGroups": [""],
                            "apiVersions": ["v1"],
                            "operations": ["CREATE", "UPDATE"],
                            "resources": ["configmaps"],
                        }
                    ],
                }
            ],
        }
    )


def test_webhook_denies(kubectl: Any, ns: str, guard: Guard) -> None:
    def run(*args: str, **more: Any) -> Any:
        return kubectl("-n", ns, *args, **more)

    denial = 'admission webhook "guard.example.com" denied the request: passwords belong in secrets'
    run("label", "namespace", ns, f"guarded={ns}")
    kubectl("create", "-f", "-", stdin=configuration(ns, ns, guard))
    try:
        eventually(
            lambda: (
                denial
                in run(
                    "create",
                    "cm",
                    "probe",
                    "--dry-run=server",
                    "--from-literal=password=x",
                    check=False,
                ).stderr
            )
        )
        refused = run("create", "configmap", "a", "--from-literal=password=x", check=False)
        assert refused.returncode != 0 and denial in refused.stderr
        run("create", "configmap", "a", "--from-literal=k=v")
        edited = run("patch", "configmap", "a", "-p", '{"data":{"password":"x"}}', check=False)
        assert denial in edited.stderr
        assert run("get", "configmap", "a", "-o", "jsonpath={.data}").stdout == '{"k":"v"}'
        assert (
            "Warning: old is old" in run("create", "configmap", "b", "--from-literal=old=x").stderr
        )
        run("create", "secret", "generic", "s", "--from-literal=password=x")
        request = next(r for r in guard.seen if r["name"] == "b")
        assert (request["operation"], request["namespace"], request["userInfo"]["username"]) == (
            "CREATE",
            ns,
            "admin",
        )

        guard.close()
        address = guard.url.removeprefix("https://").removesuffix("/check")
        assert run("create", "configmap", "c", check=False).stderr.endswith(
            'Internal error occurred: failed calling webhook "guard.example.com": Post '
            f'"{guard.url}?timeout=5s": '
            f"dial tcp {address}: connect: connection refused\n"
        )
        run(
            "patch",
            "validatingwebhookconfiguration",
            ns,
            "--type=json",
            "-p",
            '[{"op":"replace","path":"/webhooks/0/failurePolicy","value":"Ignore"}]',
        )
        eventually(lambda: run("create", "configmap", "c", check=False).returncode == 0)
    finally:
        kubectl("delete", "validatingwebhookconfiguration", ns)
