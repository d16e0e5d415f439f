"""A server with admission webhooks, for tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.apiserver.harness import Api, start

Json = dict[str, Any]
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
HOOKS = "/apis/admissionregistration.k8s.io/v1/"
ALLOW = {"allowed": True}


@asynccontextmanager
async def run(**options: Any) -> AsyncIterator[Api]:
    api = await start(**options)
    try:
        yield api
    finally:
        await api.server.stop()


def hook(client: Json, name: str = "a.example.com", **more: Any) -> Json:
    rule = {
        "operations": ["*"],
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "resources": ["configmaps"],
    }
    return {
        "name": name,
        "clientConfig": client,
        "rules": [rule],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 3,
        **more,
    }


def rule(group: str, version: str, resource: str, *operations: str) -> list[Json]:
    return [
        {
            "operations": list(operations or "*"),
            "apiGroups": [group],
            "apiVersions": [version],
            "resources": [resource],
        }
    ]


async def install(api: Api, sort: str, *hooks: Json, name: str = "c") -> None:
    kind = (
        "MutatingWebhookConfiguration" if sort == "mutating" else "ValidatingWebhookConfiguration"
    )
    body = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "webhooks": list(hooks),
    }
    await api.ok("POST", f"{HOOKS}{sort}webhookconfigurations", body)


def configmap(name: str, **meta: Any) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, **meta},
        "data": {"k": "v"},
    }
