"""Restart policies and rules of single containers."""

from __future__ import annotations

from typing import Any

import pytest
from tests.kubelet.test_core import conditions, state

from transom.kubelet.conditions import compute_pod_phase
from transom.kubelet.features import PodFeatures, pod_features
from transom.machinery.podutil import container_should_restart
from transom.machinery.releases import Release

CURRENT = Release(1, 36)


def rule(action: str, *codes: int, operator: str = "In") -> Any:
    return {"action": action, "exitCodes": {"operator": operator, "values": list(codes)}}


@pytest.mark.parametrize(
    ("container", "pod", "code", "restarts"),
    [
        ({}, "Never", 1, False),
        ({}, "OnFailure", 1, True),
        ({"restartPolicy": "OnFailure"}, "Never", 1, True),
        ({"restartPolicy": "OnFailure"}, "Always", 0, False),
        ({"restartPolicy": "Never"}, "Always", 1, False),
        (
            {"restartPolicy": "Never", "restartPolicyRules": [rule("Restart", 42)]},
            "Never",
            42,
            True,
        ),
        (
            {"restartPolicy": "Never", "restartPolicyRules": [rule("Restart", 42)]},
            "Never",
            1,
            False,
        ),
        (
            {
                "restartPolicy": "Never",
                "restartPolicyRules": [rule("Restart", 1, operator="NotIn")],
            },
            "Never",
            2,
            True,
        ),
    ],
)
def test_which_containers_restart(container: Any, pod: str, code: int, restarts: bool) -> None:
    assert container_should_restart(container, pod, code, restart_all=False) is restarts


def test_rules_exist_since_1_35() -> None:
    assert not pod_features((1, 34), {}).restart_rules
    assert pod_features((1, 35), {}).restart_rules
    assert not pod_features((1, 35), {}).restart_all
    assert pod_features((1, 36), {}).restart_all


def test_a_pod_runs_while_a_rule_restarts_its_container() -> None:
    container = {
        "name": "c",
        "restartPolicy": "Never",
        "restartPolicyRules": [rule("Restart", 42)],
    }
    pod = {"metadata": {}, "spec": {"containers": [container], "restartPolicy": "Never"}}
    features = PodFeatures(restart_rules=True)

    def phase(code: int) -> str:
        ended = {"name": "c", "state": {"terminated": {"exitCode": code}}, "ready": False}
        return compute_pod_phase(pod, [ended], features)

    assert [phase(code) for code in (42, 1, 0)] == ["Running", "Failed", "Succeeded"]


async def test_all_containers_restart_in_the_same_sandbox(core: Any) -> None:
    containers = [
        {
            "name": "c",
            "image": "image",
            "restartPolicy": "Never",
            "restartPolicyRules": [rule("RestartAllContainers", 42)],
        },
        {"name": "other", "image": "image"},
    ]
    async with core(release=CURRENT) as node:
        await node.create(
            "p",
            containers=containers,
            initContainers=[{"name": "i", "image": "image"}],
            restartPolicy="Never",
        )
        await node.settle()
        node.runtime.exit_all("i", 0)
        await node.settle()
        before = await node.pod("p")
        assert before["status"]["phase"] == "Running"
        assert conditions(before)["AllContainersRestarting"] == "False"
        sandboxes = [sandbox.id for sandbox in node.runtime.sandboxes()]
        node.runtime.exit_all("c", 42)
        await node.settle(2)
        pod = await node.pod("p")
        assert state(pod, "i", "initContainerStatuses")["state"].keys() == {"running"}
        assert conditions(pod)["Initialized"] == "True"
        node.runtime.exit_all("i", 0)
        await node.settle(2)
        pod = await node.pod("p")
        assert pod["status"]["phase"] == "Running"
        assert conditions(pod)["AllContainersRestarting"] == "False"
        assert [sandbox.id for sandbox in node.runtime.sandboxes()] == sandboxes
        for name in ("c", "other"):
            found = state(pod, name)
            assert "running" in found["state"] and found["restartCount"] == 1
            assert found["lastState"]["terminated"]["reason"] == "RestartingAllContainers"
        assert ("stop_container", "other", 30) in node.runtime.calls
