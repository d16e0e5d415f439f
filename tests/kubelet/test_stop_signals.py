"""lifecycle.stopSignal, behind the feature gate ContainerStopSignals."""

from __future__ import annotations

from typing import Any

import pytest

from transom.client.resources import PODS
from transom.machinery.releases import Release

from .test_kubelet import SERVERCORE, phase, shell, state

GATES = {"ContainerStopSignals": True}
SETTINGS = {"flavour": "containerd", "release": Release(1, 36), "api_gates": GATES}
SCRIPT = "trap 'exit 3' USR1; trap 'exit 4' TERM; while true; do sleep 1; done"


async def stopped(node: Any) -> Any:
    """The status of the container of pod p, which a finalizer keeps."""
    await node.client.delete(PODS, "default", "p")
    await node.settle(5)
    return state(await node.pod("p"))


async def create(node: Any, os: str, **container: Any) -> Any:
    await node.create(
        "p", os={"name": os}, metadata={"finalizers": ["example.com/keep"]}, **container
    )
    return state(await phase(node, "p", "Running"))


@pytest.mark.parametrize(("gates", "shown", "code"), [(GATES, "SIGUSR1", 3), ({}, None, 4)])
async def test_a_container_gets_its_own_stop_signal(
    node: Any, gates: dict[str, bool], shown: str | None, code: int
) -> None:
    async with node("linux", feature_gates=gates, **SETTINGS) as node:
        container = shell(SCRIPT, lifecycle={"stopSignal": "SIGUSR1"})
        entry = await create(node, "linux", containers=[container])
        assert entry.get("stopSignal") == shown
        assert (await stopped(node))["state"]["terminated"]["exitCode"] == code


async def test_without_one_the_signal_of_the_image_is_shown(node: Any) -> None:
    async with node("linux", feature_gates=GATES, **SETTINGS) as node:
        entry = await create(node, "linux", containers=[shell(SCRIPT)])
        assert entry["stopSignal"] == "SIGTERM"
        assert (await stopped(node))["state"]["terminated"]["exitCode"] == 4


async def test_sigkill_ends_a_windows_container_at_once(node: Any) -> None:
    async with node("windows", feature_gates=GATES, **SETTINGS) as node:
        container = {
            "name": "c",
            "image": SERVERCORE,
            "command": ["powershell", "-Command", "Start-Sleep 1000"],
            "lifecycle": {"stopSignal": "SIGKILL"},
        }
        entry = await create(node, "windows", containers=[container])
        assert entry["stopSignal"] == "SIGKILL"
        started = node.clock.time()
        assert "terminated" in (await stopped(node))["state"]
        assert node.clock.time() - started < 6
