"""`user` of container statuses, and mounts that must be read-only recursively."""

from __future__ import annotations

from typing import Any

import pytest

from transom.machinery.releases import Release

from .test_kubelet import SERVERCORE, phase, shell, state

NEWEST = {"flavour": "containerd", "release": Release(1, 36), "runtime": {"version": "2.1.5"}}


@pytest.mark.parametrize(
    ("context", "user"),
    [
        ({}, {"uid": 0, "gid": 0, "supplementalGroups": [0]}),
        (
            {"runAsUser": 1000, "runAsGroup": 3000, "supplementalGroups": [4000]},
            {"uid": 1000, "gid": 3000, "supplementalGroups": [3000, 4000]},
        ),
    ],
)
async def test_the_status_shows_the_user_of_a_container(
    node: Any, context: dict[str, Any], user: dict[str, Any]
) -> None:
    async with node("linux", **NEWEST) as node:
        await node.create("p", securityContext=context, containers=[shell("sleep 1000")])
        assert state(await phase(node, "p", "Running"))["user"] == {"linux": user}


AGNHOST = "registry.k8s.io/e2e-test-images/agnhost"


@pytest.mark.parametrize(
    ("image", "policy", "groups"),
    [
        ("2.61", None, [1000, 50000, 60000]),
        ("2.61", "Merge", [1000, 50000, 60000]),
        ("2.61", "Strict", [1000, 60000]),
        ("2.40", None, [1000, 60000]),
    ],
)
async def test_groups_that_an_image_lists_for_the_user(
    node: Any, image: str, policy: str | None, groups: list[int]
) -> None:
    context = {"runAsUser": 1000, "supplementalGroups": [60000]}
    if policy is not None:
        context["supplementalGroupsPolicy"] = policy
    container = {"name": "c", "image": f"{AGNHOST}:{image}", "command": ["sleep", "1000"]}
    async with node("linux", **NEWEST) as node:
        await node.create("p", securityContext=context, containers=[container])
        found = state(await phase(node, "p", "Running"))["user"]["linux"]
        assert found["supplementalGroups"] == groups


async def test_a_runtime_without_the_policy_is_rejected(node: Any) -> None:
    async with node("linux", **{**NEWEST, "runtime": {"version": "1.7.20"}}) as node:
        context = {"supplementalGroupsPolicy": "Strict"}
        await node.create("p", securityContext=context, containers=[shell("sleep 1000")])
        status = (await phase(node, "p", "Failed"))["status"]
        assert status["reason"] == "SupplementalGroupsPolicyNotSupported"
        assert status["message"] == (
            "Pod was rejected: SupplementalGroupsPolicy=Strict is not supported in this node"
        )


@pytest.mark.parametrize(
    ("os", "settings"),
    [
        ("linux", {**NEWEST, "runtime": {"version": "1.7.20"}}),
        ("linux", {**NEWEST, "release": Release(1, 32)}),
        ("windows", NEWEST),
    ],
)
async def test_older_kubelets_and_runtimes_and_windows_show_no_user(
    node: Any, os: str, settings: dict[str, Any]
) -> None:
    async with node(os, **settings) as node:
        container = {"name": "c", "image": SERVERCORE, "command": ["ping", "-t", "localhost"]}
        container = container if os == "windows" else shell("sleep 1000")
        await node.create("p", containers=[container])
        assert "user" not in state(await phase(node, "p", "Running"))


async def test_a_recursive_read_only_mount_needs_a_newer_kernel(node: Any) -> None:
    async with node("linux", **NEWEST) as node:
        for name, mode in (("p", "Enabled"), ("q", "IfPossible")):
            mount = {"name": "v", "mountPath": "/v", "readOnly": True, "recursiveReadOnly": mode}
            await node.create(
                name,
                volumes=[{"name": "v", "emptyDir": {}}],
                containers=[shell("sleep 1000", volumeMounts=[mount])],
            )
        entry = state(await phase(node, "q", "Running"))
        assert entry["volumeMounts"] == [
            {"name": "v", "mountPath": "/v", "readOnly": True, "recursiveReadOnly": "Disabled"}
        ]
        await node.settle(5)
        waiting = state(await node.pod("p"))["state"]["waiting"]
        assert waiting == {
            "reason": "CreateContainerConfigError",
            "message": (
                'failed to resolve recursive read-only mode: volume "v" requested recursive '
                "read-only mode, but it is not supported by the runtime"
            ),
        }
