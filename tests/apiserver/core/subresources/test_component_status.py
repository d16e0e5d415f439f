"""ComponentStatus: one for the store, one for each component of the control plane."""

from __future__ import annotations

from tests.apiserver.harness import start

PATH = "/api/v1/componentstatuses"


async def test_what_runs_and_what_does_not() -> None:
    health = {"scheduler": "", "controller-manager": "it has failed: no memory"}
    api = await start(components=health.copy)
    found = await api.ok("GET", PATH)
    assert found["kind"] == "ComponentStatusList"
    assert {item["metadata"]["name"]: item["conditions"] for item in found["items"]} == {
        "controller-manager": [
            {"type": "Healthy", "status": "False", "error": "it has failed: no memory"}
        ],
        "etcd-0": [{"type": "Healthy", "status": "True", "message": '{"health":"true"}'}],
        "scheduler": [{"type": "Healthy", "status": "True", "message": "ok"}],
    }
    health["controller-manager"] = ""
    one = await api.ok("GET", PATH + "/controller-manager")
    assert (one["kind"], one["apiVersion"], one["conditions"][0]["status"]) == (
        "ComponentStatus",
        "v1",
        "True",
    )
    status, problem = await api.call("GET", PATH + "/kubelet")
    assert (status, problem["message"]) == (500, "Component not found: kubelet")
    assert (await api.call("GET", PATH + "?fieldSelector=metadata.name%3Dscheduler"))[1][
        "items"
    ] == [
        {
            "metadata": {"name": "scheduler", "creationTimestamp": None},
            "conditions": [{"type": "Healthy", "status": "True", "message": "ok"}],
        },
    ]
    assert (await api.call("POST", PATH, {"metadata": {"name": "x"}}))[0] == 405


async def test_lists_have_no_version_and_cannot_be_watched() -> None:
    api = await start(release="1.36")
    found = await api.ok("GET", PATH)
    assert found["metadata"] == {}
    etcd = next(item for item in found["items"] if item["metadata"]["name"] == "etcd-0")
    assert etcd["metadata"] == {"name": "etcd-0"}
    assert etcd["conditions"] == [{"type": "Healthy", "status": "True", "message": "ok"}]
    status, problem = await api.call("GET", PATH + "?watch=1")
    assert (status, problem["message"]) == (
        405,
        'watch is not supported on resources of kind "componentstatuses"',
    )
    assert (await api.call("GET", PATH + "/x"))[1]["message"] == 'componentstatus "x" not found'
    assert (await api.call("GET", PATH + "?watch=1&resourceVersionMatch=Exact"))[0] == 422
