"""The service `kubernetes` and the system namespaces come back when they are deleted."""

from __future__ import annotations

import pytest
from tests.apiserver.harness import start

SERVICE = "/api/v1/namespaces/default/services/kubernetes"
LEASES = "/api/v1/namespaces/kube-node-lease"


async def test_the_service_of_the_api_server_comes_back() -> None:
    api = await start()
    try:
        first = await api.ok("GET", SERVICE)
        for _ in range(2):
            await api.ok("DELETE", SERVICE)
            assert (await api.call("GET", SERVICE))[0] == 404
            await api.clock.run_for(10)
            again = await api.ok("GET", SERVICE)
            assert again["spec"] == first["spec"]
            assert again["metadata"]["uid"] != first["metadata"]["uid"]
    finally:
        await api.server.stop()


async def test_a_system_namespace_comes_back() -> None:
    api = await start()
    try:
        await api.ok("DELETE", LEASES)
        found = await api.ok("GET", LEASES)
        await api.ok("PUT", f"{LEASES}/finalize", {**found, "spec": {"finalizers": []}})
        assert (await api.call("GET", LEASES))[0] == 404
        await api.clock.run_for(60)
        assert (await api.ok("GET", LEASES))["status"] == {"phase": "Active"}
    finally:
        await api.server.stop()


@pytest.mark.parametrize("release", ["1.20", "1.36"])
async def test_initial_objects_have_owners(release: str) -> None:
    api = await start(release=release)
    owners = {}
    for path in (
        "/api/v1/namespaces/default",
        "/api/v1/namespaces/default/services/kubernetes",
        "/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical",
        "/apis/apiregistration.k8s.io/v1/apiservices/v1.apps",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles/cluster-admin",
    ):
        (entry,) = (await api.ok("GET", path))["metadata"]["managedFields"]
        owners[path.rpartition("/")[2]] = (entry["manager"], entry["operation"])
    assert set(owners.values()) == {("kube-apiserver", "Update")}
    role = await api.ok("GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles/admin")
    rules = {
        entry["manager"]: entry["operation"]
        for entry in role["metadata"]["managedFields"]
        if "f:rules" in entry["fieldsV1"]
    }
    assert (
        rules
        == {
            "1.20": {"kube-controller-manager": "Update"},
            "1.36": {"clusterrole-aggregation-controller": "Apply"},
        }[release]
    )
