"""A server with its own keys, and requests as other users."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from tests.apiserver.harness import Api, start

RBAC = "/apis/rbac.authorization.k8s.io/v1"
RBAC_GROUP = "rbac.authorization.k8s.io"
DEFAULT = "/api/v1/namespaces/default"


@cache
def private_key(name: str = "cluster", kind: str = "ec") -> bytes:
    """A key in PEM; the same name gives the same key."""
    key: Any
    if kind == "ec":
        key = ec.generate_private_key(ec.SECP256R1())
    else:
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


@asynccontextmanager
async def run(**options: Any) -> AsyncIterator[Api]:
    api = await start(service_account_key=private_key(), **options)
    yield api
    await api.server.stop()


def as_user(name: str, *groups: str, **extra: str) -> dict[str, Any]:
    """Keyword arguments of a call that the administrator makes as another user."""
    headers = {b"impersonate-user": name.encode()}
    if groups:
        headers[b"impersonate-group"] = "\n".join(groups).encode()
    headers |= {
        b"impersonate-extra-" + key.encode(): value.encode() for key, value in extra.items()
    }
    return {"headers": headers}


def as_node(name: str) -> dict[str, Any]:
    return as_user(f"system:node:{name}", "system:nodes")


def with_token(token: str) -> dict[str, Any]:
    return {"headers": {b"authorization": f"Bearer {token}".encode()}, "peer": None}


def rule(verbs: str, resources: str, groups: str = "", names: str = "") -> dict[str, Any]:
    out = {"verbs": verbs.split(), "resources": resources.split(), "apiGroups": groups.split(",")}
    return {**out, "resourceNames": names.split()} if names else out


def role(name: str, *rules: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "rules": list(rules), **more}


def binding(name: str, kind: str, role_name: str, *users: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": kind, "name": role_name},
        "subjects": [{"kind": "User", "apiGroup": RBAC_GROUP, "name": user} for user in users],
    }


async def grant(
    api: Api, user: str, *rules: dict[str, Any], namespace: str = "default", name: str = "r"
) -> None:
    """Give a user rights in a namespace, or everywhere when it is ""."""
    scope, kind = (f"{RBAC}/namespaces/{namespace}", "Role") if namespace else (RBAC, "ClusterRole")
    prefix = "" if namespace else "cluster"
    await api.ok("POST", f"{scope}/{prefix}roles", role(name, *rules))
    await api.ok("POST", f"{scope}/{prefix}rolebindings", binding(name, kind, name, user))


async def account(api: Api, name: str = "robot") -> dict[str, Any]:
    made: dict[str, Any] = await api.ok(
        "POST", f"{DEFAULT}/serviceaccounts", {"metadata": {"name": name}}
    )
    return made


async def message(
    api: Api, expected: int, method: str, target: str, body: Any = None, **more: Any
) -> str:
    status, answer = await api.call(method, target, body, **more)
    assert status == expected, (status, answer)
    text: str = answer["message"] if isinstance(answer, dict) else answer
    return text
