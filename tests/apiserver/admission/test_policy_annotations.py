"""What policies and Pod Security write into the audit log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.apiserver.admission.test_policies import GROUP, MAPS, checks, config, define
from tests.apiserver.harness import Api

from transom.apiserver.audit import policy
from transom.apiserver.audit.auditor import Auditor
from transom.apiserver.audit.log import AuditLog
from transom.apiserver.server import ServerOptions, build_api_server
from transom.kit.clock import VirtualClock
from transom.store.memory import MemoryStore


class AuditedServer:
    """A server of 1.36 with an audit log."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "audit.log"
        self._log = AuditLog(self._path)
        clock = VirtualClock()
        options = ServerOptions(store=MemoryStore(clock), clock=clock, release="1.36")
        rules = {"rules": [{"level": "Metadata"}], "omitStages": ["RequestReceived"]}
        content = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", **rules}
        options.audit = Auditor(policy.parse_audit_policy(content), self._log, options.rng)
        self._server = build_api_server(options)
        self.api = Api(self._server, clock)

    async def __aenter__(self) -> AuditedServer:
        await self._server.start()
        return self

    async def __aexit__(self, *problem: object) -> None:
        await self._server.stop()

    def annotations(self, name: str) -> dict[str, Any]:
        """Those of the request that created an object, without the authorizer's. The log is complete
        when the server has stopped.
        """
        events = [json.loads(line) for line in self._path.read_text().splitlines()]
        event = next(
            event
            for event in events
            if event["verb"] == "create"
            and event["objectRef"]["resource"] in ("configmaps", "pods")
            and event["objectRef"].get("name") == name
        )
        found = event.get("annotations") or {}
        return {k: v for k, v in found.items() if not k.startswith("authorization.k8s.io/")}


async def test_policies_write_failures_and_their_own_annotations(tmp_path: Path) -> None:
    async with AuditedServer(tmp_path) as server:
        spec = checks(
            "object.data.a == '2'",
            auditAnnotations=[
                {"key": "who", "valueExpression": "request.userInfo.username"},
                {"key": "none", "valueExpression": "null"},
            ],
        )
        await define(server.api, spec, {"validationActions": ["Audit"]})
        await server.api.ok("POST", MAPS, config("audited", a="1"))
        await server.api.ok("DELETE", f"{GROUP}/validatingadmissionpolicybindings/b")
        await server.api.ok("POST", MAPS, config("unbound", a="1"))
    found = server.annotations("audited")
    failure = json.loads(found.pop("validation.policy.admission.k8s.io/validation_failure"))
    assert found == {"p/who": "admin"}
    assert failure == [
        {
            "message": "failed expression: object.data.a == '2'",
            "policy": "p",
            "binding": "b",
            "expressionIndex": 0,
            "validationActions": ["Audit"],
        }
    ]
    assert server.annotations("unbound") == {}


async def test_pod_security_writes_its_level_and_violations(tmp_path: Path) -> None:
    async with AuditedServer(tmp_path) as server:
        labels = {
            "pod-security.kubernetes.io/audit": "baseline",
            "pod-security.kubernetes.io/enforce": "privileged",
        }
        namespace = {"metadata": {"name": "n", "labels": labels}}
        await server.api.ok("POST", "/api/v1/namespaces", namespace)
        account = {"metadata": {"name": "default"}, "automountServiceAccountToken": False}
        await server.api.ok("POST", "/api/v1/namespaces/n/serviceaccounts", account)
        pod = {
            "metadata": {"name": "p"},
            "spec": {"hostNetwork": True, "containers": [{"name": "c", "image": "i"}]},
        }
        await server.api.ok("POST", "/api/v1/namespaces/n/pods", pod)
    assert server.annotations("p") == {
        "pod-security.kubernetes.io/enforce-policy": "privileged:latest",
        "pod-security.kubernetes.io/audit-violations": (
            'would violate PodSecurity "baseline:latest": host namespaces (hostNetwork=true)'
        ),
    }
