"""An update or a server-side apply of an object that does not exist needs `create`, on every path."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.apiserver.harness import Api, start

from transom.apiserver.core.context import UserInfo
from transom.apiserver.serving.inprocess import InProcessClient
from transom.client.api import APPLY_PATCH
from transom.client.resources import LEASES
from transom.http.messages import PeerCertificate
from transom.machinery.errors import ApiError

RBAC = "/apis/rbac.authorization.k8s.io/v1"
WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"
ANN = PeerCertificate("ann", [])
APPLY = "application/apply-patch+yaml"


async def grant(api: Api, *rules: dict[str, Any]) -> None:
    await api.ok("POST", f"{RBAC}/clusterroles", {"metadata": {"name": "r"}, "rules": list(rules)})
    subject = {"kind": "User", "name": "ann", "apiGroup": "rbac.authorization.k8s.io"}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"}
    await api.ok(
        "POST",
        f"{RBAC}/clusterrolebindings",
        {"metadata": {"name": "r"}, "roleRef": reference, "subjects": [subject]},
    )


def rule(verbs: str, *names: str) -> dict[str, Any]:
    found: dict[str, Any] = {"verbs": verbs.split(), "apiGroups": ["*"], "resources": ["*"]}
    return found | ({"resourceNames": list(names)} if names else {})


CORE = "/api/v1/namespaces/default"
CASES = [
    (
        "PATCH",
        f"{CORE}/configmaps/x?fieldManager=m",
        APPLY,
        {"apiVersion": "v1", "kind": "ConfigMap"},
        "configmaps",
    ),
    (
        "PATCH",
        f"{CORE}/secrets/x?fieldManager=m&force=true",
        APPLY,
        {"apiVersion": "v1", "kind": "Secret"},
        "secrets",
    ),
    (
        "PATCH",
        "/api/v1/namespaces/x?fieldManager=m",
        APPLY,
        {"apiVersion": "v1", "kind": "Namespace"},
        "namespaces",
    ),
    (
        "PATCH",
        f"{WIDGETS}/x?fieldManager=m",
        APPLY,
        {"apiVersion": "example.com/v1", "kind": "Widget"},
        "widgets.example.com",
    ),
    (
        "PUT",
        f"{CORE}/endpoints/x",
        "application/json",
        {"apiVersion": "v1", "kind": "Endpoints"},
        "endpoints",
    ),
    (
        "PUT",
        "/apis/coordination.k8s.io/v1/namespaces/default/leases/x",
        "application/json",
        {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"},
        "leases.coordination.k8s.io",
    ),
    (
        "PUT",
        f"{RBAC}/clusterroles/x",
        "application/json",
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"},
        "clusterroles.rbac.authorization.k8s.io",
    ),
]


async def with_widgets() -> Api:
    api = await start()
    # each step in a callback of its own: the first of a process imports a lot
    await asyncio.sleep(0)
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object"}},
    }
    await api.ok(
        "POST",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        {
            "metadata": {"name": "widgets.example.com"},
            "spec": {
                "group": "example.com",
                "scope": "Namespaced",
                "versions": [version],
                "names": {
                    "plural": "widgets",
                    "kind": "Widget",
                    "singular": "widget",
                    "listKind": "WidgetList",
                },
            },
        },
    )
    for _ in range(50):
        await asyncio.sleep(0)
        if (await api.call("GET", WIDGETS))[0] == 200:
            break
    return api


@pytest.mark.parametrize("dry", [False, True])
@pytest.mark.parametrize(
    ("method", "target", "media", "body", "resource"), CASES, ids=[c[1] for c in CASES]
)
async def test_create_is_checked(
    method: str, target: str, media: str, body: Any, resource: str, dry: bool
) -> None:
    api = await with_widgets()
    await grant(api, rule("get list watch update patch delete"), rule("create", "another"))
    path, _, query = target.partition("?")
    asked_of = f"{path}?{query}&dryRun=All" if dry else target
    requested = {**body, "metadata": {"name": "x"}}
    before = api.server.storage.store.revision
    status, answer = await api.call(method, asked_of, requested, media=media, peer=ANN)
    assert (status, answer["reason"], answer["message"]) == (
        403,
        "Forbidden",
        f'{resource} "x" is forbidden: ',
    )
    assert api.server.storage.store.revision == before
    assert (await api.call("GET", path))[0] == 404
    # A rule for the name suffices, because the name is known; so does updating what exists.
    role = await api.ok("GET", f"{RBAC}/clusterroles/r")
    role["rules"][1]["resourceNames"].append("x")
    await api.ok("PUT", f"{RBAC}/clusterroles/r", role)
    status, answer = await api.call(method, asked_of, requested, media=media, peer=ANN)
    assert status == 201, answer
    role = await api.ok("GET", f"{RBAC}/clusterroles/r")
    role["rules"].pop()
    await api.ok("PUT", f"{RBAC}/clusterroles/r", role)
    status, answer = await api.call(method, asked_of, requested, media=media, peer=ANN)
    # A lease cannot be updated without its resourceVersion, but that is not a matter of rights.
    assert status == (403 if dry else 422 if resource.startswith("leases") else 200), answer
    await api.server.stop()


async def test_an_invalid_object_is_reported_first() -> None:
    """As in Kubernetes, which checks `create` between validation and validating admission."""

    api = await with_widgets()
    await grant(api, rule("update patch"))
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "x"},
        "data": {"a b": "c"},
    }
    status, answer = await api.call(
        "PATCH", f"{CORE}/configmaps/x?fieldManager=m", body, media=APPLY, peer=ANN
    )
    assert (status, answer["reason"]) == (422, "Invalid")
    await api.server.stop()


async def test_components_in_the_process_need_it_too() -> None:
    api = await with_widgets()
    await grant(api, rule("update patch"))
    client = InProcessClient(api.server, UserInfo("ann", ("system:authenticated",)))
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "x", "namespace": "default"},
    }
    for call in (
        client.update(LEASES, lease),
        client.patch(LEASES, "default", "x", lease, APPLY_PATCH, field_manager="m"),
    ):
        with pytest.raises(ApiError) as caught:
            await call
        assert (caught.value.code, caught.value.message) == (
            403,
            'leases.coordination.k8s.io "x" is forbidden: ',
        )
    await api.server.stop()


@pytest.mark.parametrize(
    ("release", "text"),
    [
        ("1.31", 'configmaps "x" is forbidden: '),
        (
            "1.32",
            'configmaps "x" is forbidden: User "ann" cannot create resource "configmaps" in API '
            'group "" in the namespace "default"',
        ),
    ],
)
async def test_the_error_names_the_permission_since_1_32(release: str, text: str) -> None:
    api = await start(release=release)
    await grant(api, rule("patch"))
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}
    target = f"{CORE}/configmaps/x?fieldManager=m"
    status, answer = await api.call("PATCH", target, body, media=APPLY, peer=ANN)
    assert (status, answer["message"]) == (403, text)
    await api.server.stop()
