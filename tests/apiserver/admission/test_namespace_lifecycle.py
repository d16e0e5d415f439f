from __future__ import annotations

import pytest
from tests.apiserver.admission.support import MERGE, refused, run

LEASE = {"metadata": {"name": "l"}}
LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("POST", "/api/v1/namespaces/nowhere/configmaps"),
        ("PUT", LEASES.format("nowhere") + "/l"),  # a PUT that would create
    ],
)
async def test_nothing_is_created_in_a_missing_namespace(method: str, target: str) -> None:
    async with run() as api:
        status, answer = await api.call(method, target, LEASE)
        assert (status, answer["message"]) == (404, 'namespaces "nowhere" not found')
        assert answer["details"] == {"name": "nowhere", "kind": "namespaces"}


async def test_a_namespace_that_ends_takes_nothing_more_but_lets_go() -> None:
    async with run() as api:
        await api.ok("POST", "/api/v1/namespaces", {"metadata": {"name": "x"}})
        maps = "/api/v1/namespaces/x/configmaps"
        await api.ok("POST", maps, {"metadata": {"name": "a"}})
        await api.ok("DELETE", "/api/v1/namespaces/x")
        status, answer = await api.call("POST", maps, {"metadata": {"name": "b"}})
        assert status == 403
        assert answer["message"] == (
            'configmaps "b" is forbidden: unable to create new content in namespace x '
            "because it is being terminated"
        )
        assert answer["details"]["causes"] == [
            {
                "reason": "NamespaceTerminating",
                "message": "namespace x is being terminated",
                "field": "metadata.namespace",
            }
        ]
        await api.ok("PATCH", f"{maps}/a", {"data": {"k": "v"}}, media=MERGE)
        await api.ok("DELETE", f"{maps}/a")


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
async def test_some_namespaces_cannot_be_deleted(name: str) -> None:
    async with run() as api:
        assert (
            await refused(api, "DELETE", f"/api/v1/namespaces/{name}")
            == "this namespace may not be deleted"
        )


async def test_the_namespace_of_node_leases_may_go() -> None:
    async with run() as api:
        gone = await api.ok("DELETE", "/api/v1/namespaces/kube-node-lease")
        assert gone["status"]["phase"] == "Terminating"
