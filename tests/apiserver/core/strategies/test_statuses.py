"""What a status update sets or drops."""

from __future__ import annotations

from tests.apiserver.harness import start

VOLUMES = "/api/v1/persistentvolumes"
VOLUME = {
    "metadata": {"name": "v"},
    "spec": {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "hostPath": {"path": "/x"},
    },
}


async def test_the_time_of_a_phase_follows_the_phase() -> None:
    api = await start(release="1.36")
    made = await api.ok("POST", VOLUMES, VOLUME)
    created = made["status"]["lastPhaseTransitionTime"]
    api.clock.advance(5)

    async def put(phase: str) -> str:
        changed = {**VOLUME, "status": {"phase": phase}}
        found = await api.ok("PUT", f"{VOLUMES}/v/status", changed)
        return str(found["status"]["lastPhaseTransitionTime"])

    assert await put("Pending") == created
    released = await put("Released")
    assert released > created
    api.clock.advance(5)
    assert await put("Released") == released


async def test_a_node_gets_no_configuration_from_an_object() -> None:
    api = await start(release="1.36")
    node = {"metadata": {"name": "n"}}
    await api.ok("POST", "/api/v1/nodes", node)
    status = {"config": {"assigned": {"configMap": {"name": "x"}}}}
    found = await api.ok("PUT", "/api/v1/nodes/n/status", {**node, "status": status})
    assert "config" not in found.get("status", {})


async def test_a_status_keeps_the_template_generation_of_a_daemon_set() -> None:
    api = await start(release="1.36")
    sets = "/apis/apps/v1/namespaces/default/daemonsets"
    spec = {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {
            "metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        },
    }
    daemon_set = {"metadata": {"name": "d"}, "spec": spec}
    await api.ok("POST", sets, daemon_set)
    counts = dict.fromkeys(
        ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady"), 0
    )
    found = await api.ok("PUT", f"{sets}/d/status", {**daemon_set, "status": counts})
    name = "deprecated.daemonset.template.generation"
    assert found["metadata"]["annotations"] == {name: "1"}


async def test_conditions_of_a_policy_are_validated() -> None:
    api = await start(release="1.36")
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["pods"],
    }
    policy = {
        "metadata": {"name": "p"},
        "spec": {
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": "true"}],
        },
    }
    await api.ok("POST", path, policy)
    condition = {"type": "Ready", "reason": "R", "lastTransitionTime": "2021-01-01T00:00:00Z"}
    patch = {"status": {"conditions": [condition]}}
    media = "application/merge-patch+json"
    status, problem = await api.call("PATCH", f"{path}/p/status", patch, media=media)
    assert (status, problem["details"]["causes"][0]["field"]) == (
        422,
        "status.conditions[0].status",
    )
