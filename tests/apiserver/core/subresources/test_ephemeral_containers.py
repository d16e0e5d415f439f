"""Ephemeral containers: as the separate kind that old clients use, and as part of the pod."""

from __future__ import annotations

from tests.apiserver.harness import start

PODS = "/api/v1/namespaces/default/pods"
STRATEGIC = "application/strategic-merge-patch+json"


async def test_old_and_new_clients_add_containers() -> None:
    api = await start()
    await api.ok(
        "POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}}
    )
    await api.ok(
        "POST",
        PODS,
        {
            "metadata": {"name": "p"},
            "spec": {
                "automountServiceAccountToken": False,
                "containers": [{"name": "c", "image": "i"}],
            },
        },
    )
    path = PODS + "/p/ephemeralcontainers"
    list_ = await api.ok("GET", path)
    assert (list_["kind"], list_["metadata"]["name"], list_["ephemeralContainers"]) == (
        "EphemeralContainers",
        "p",
        [],
    )
    list_["ephemeralContainers"] = [{"name": "old", "image": "i"}]
    put = await api.ok("PUT", path, list_)
    assert put["kind"] == "EphemeralContainers"
    assert put["ephemeralContainers"][0]["terminationMessagePath"] == "/dev/termination-log"
    status, problem = await api.call("PUT", path, list_)
    assert (status, problem["reason"]) == (409, "Conflict")
    added = {"spec": {"ephemeralContainers": [{"name": "new", "image": "i"}]}}
    patched = await api.ok("PATCH", path, added, media=STRATEGIC)
    assert patched["kind"] == "Pod"
    assert {e["name"] for e in patched["spec"]["ephemeralContainers"]} == {"old", "new"}
    patched["spec"]["ephemeralContainers"].append({"name": "third", "image": "i"})
    whole = await api.ok("PUT", path, patched)
    assert whole["kind"] == "Pod"
    assert len((await api.ok("GET", path))["ephemeralContainers"]) == 3
    status, problem = await api.call(
        "PUT", path, {**list_, "metadata": {"name": "p"}, "ephemeralContainers": []}
    )
    assert (
        status == 422
        and 'existing ephemeral containers "old" may not be removed' in problem["message"]
    )
    status, _ = await api.call("GET", PODS + "/none/ephemeralcontainers")
    assert status == 404
