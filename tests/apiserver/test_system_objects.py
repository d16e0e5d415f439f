"""The service `kubernetes` and the system namespaces come back when they are deleted."""

from __future__ import annotations

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
