"""What is done for a pod in each state of the runtime."""

from __future__ import annotations

from typing import Any

import pytest

from transom.kubelet.actions import PodActions, compute_pod_actions
from transom.kubelet.features import NO_FEATURES, PodFeatures
from transom.kubelet.labels import HASH, container_hash
from transom.kubelet.podstate import PodState
from transom.runtime.api import Container, LinuxSandbox, Sandbox, SandboxConfig

A, B = {"name": "a", "image": "i"}, {"name": "b", "image": "i"}
INIT, NEXT = {"name": "i", "image": "i"}, {"name": "j", "image": "i"}


def pod(policy: str = "Always", inits: Any = (), **spec: Any) -> Any:
    return {
        "metadata": {"name": "p", "namespace": "n", "uid": "u"},
        "spec": {
            "containers": [A, B],
            "initContainers": list(inits),
            "restartPolicy": policy,
            **spec,
        },
    }


def sandbox(
    state: Any = "ready", attempt: int = 0, ips: Any = ("10.0.0.1",), host: bool = False
) -> Sandbox:
    config = SandboxConfig("p", "n", "u", attempt, linux=LinuxSandbox(host_network=host))
    return Sandbox(f"s{attempt}", config, state, float(attempt), ips=ips)


def container(name: str, state: Any = "running", code: int = 0, changed: bool = False) -> Container:
    spec = {"name": name, "image": "old" if changed else "i"}
    return Container(
        f"id-{name}",
        "s0",
        name,
        0,
        state,
        "i",
        "r",
        {},
        {HASH: container_hash(spec)},
        1.0,
        exit_code=code,
    )


def acts(
    pod: Any,
    sandboxes: Any,
    *containers: Container,
    live: Any = None,
    up: Any = None,
    features: PodFeatures = NO_FEATURES,
) -> PodActions:
    found = PodState(sandboxes, containers)
    return compute_pod_actions(pod, found, lambda _: live, lambda _: up, features)


def names(specs: Any) -> list[str]:
    return [spec["name"] for spec in specs]


RUN = (container("a"), container("b"))


@pytest.mark.parametrize(
    ("case", "found", "kill_pod", "create", "attempt", "init", "start"),
    [
        ("a new pod", acts(pod(), []), True, True, 0, None, ["a", "b"]),
        (
            "a new pod with init containers",
            acts(pod(inits=[INIT, NEXT]), []),
            True,
            True,
            0,
            "i",
            [],
        ),
        ("all runs", acts(pod(), [sandbox()], *RUN), False, False, 0, None, []),
        (
            "the sandbox died",
            acts(pod(), [sandbox("notready", 2)], *RUN),
            True,
            True,
            3,
            None,
            ["a", "b"],
        ),
        (
            "two sandboxes are up",
            acts(pod(), [sandbox(attempt=1), sandbox()], *RUN),
            True,
            True,
            2,
            None,
            ["a", "b"],
        ),
        ("no address", acts(pod(), [sandbox(ips=())], *RUN), True, True, 1, None, ["a", "b"]),
        (
            "no address is needed",
            acts(pod(hostNetwork=True), [sandbox(ips=(), host=True)], *RUN),
            False,
            False,
            0,
            None,
            [],
        ),
        (
            "another network",
            acts(pod(hostNetwork=True), [sandbox()], *RUN),
            True,
            True,
            1,
            None,
            ["a", "b"],
        ),
        (
            "the sandbox died and nothing restarts",
            acts(pod("Never"), [sandbox("notready")], *RUN),
            True,
            False,
            1,
            None,
            [],
        ),
        (
            "the first sandbox never came up",
            acts(pod("Never"), [sandbox("notready")]),
            True,
            True,
            1,
            None,
            ["a", "b"],
        ),
        (
            "the sandbox died, one had succeeded",
            acts(
                pod("OnFailure"),
                [sandbox("notready")],
                container("a", "exited"),
                container("b", "exited", 1),
            ),
            True,
            True,
            1,
            None,
            ["b"],
        ),
        (
            "the sandbox died, all had succeeded",
            acts(
                pod("OnFailure"),
                [sandbox("notready")],
                container("a", "exited"),
                container("b", "exited"),
            ),
            True,
            False,
            1,
            None,
            [],
        ),
        (
            "one to restart",
            acts(pod(), [sandbox()], RUN[0], container("b", "exited")),
            False,
            False,
            0,
            None,
            ["b"],
        ),
        (
            "one that succeeded",
            acts(pod("OnFailure"), [sandbox()], RUN[0], container("b", "exited")),
            False,
            False,
            0,
            None,
            [],
        ),
        (
            "one that failed",
            acts(pod("OnFailure"), [sandbox()], RUN[0], container("b", "exited", 1)),
            False,
            False,
            0,
            None,
            ["b"],
        ),
        (
            "one that failed for good",
            acts(pod("Never"), [sandbox()], RUN[0], container("b", "exited", 1)),
            False,
            False,
            0,
            None,
            [],
        ),
        (
            "all have ended",
            acts(pod("Never"), [sandbox()], container("a", "exited"), container("b", "exited", 1)),
            True,
            False,
            0,
            None,
            [],
        ),
        (
            "one that was created only",
            acts(pod("Never"), [sandbox()], RUN[0], container("b", "created")),
            False,
            False,
            0,
            None,
            ["b"],
        ),
        (
            "the first init container",
            acts(pod(inits=[INIT, NEXT]), [sandbox()]),
            False,
            False,
            0,
            "i",
            [],
        ),
        (
            "an init container runs",
            acts(pod(inits=[INIT, NEXT]), [sandbox()], container("i")),
            False,
            False,
            0,
            None,
            [],
        ),
        (
            "the next init container",
            acts(pod(inits=[INIT, NEXT]), [sandbox()], container("i", "exited")),
            False,
            False,
            0,
            "j",
            [],
        ),
        (
            "an init container failed",
            acts(pod(inits=[INIT, NEXT]), [sandbox()], container("i", "exited", 1)),
            False,
            False,
            0,
            "i",
            [],
        ),
        (
            "an init container failed for good",
            acts(pod("Never", [INIT, NEXT]), [sandbox()], container("i", "exited", 1)),
            True,
            False,
            0,
            None,
            [],
        ),
        (
            "initialised",
            acts(
                pod(inits=[INIT, NEXT]),
                [sandbox()],
                container("j", "exited"),
                container("i", "exited"),
            ),
            False,
            False,
            0,
            None,
            ["a", "b"],
        ),
        (
            "initialised, and the first one is forgotten",
            acts(pod(inits=[INIT, NEXT]), [sandbox()], container("j", "exited")),
            False,
            False,
            0,
            None,
            ["a", "b"],
        ),
    ],
)
def test_what_is_done(
    case: str,
    found: PodActions,
    kill_pod: bool,
    create: bool,
    attempt: int,
    init: Any,
    start: list[str],
) -> None:
    assert (found.kill_pod, found.create_sandbox, found.attempt) == (kill_pod, create, attempt)
    assert names(found.init) == ([init] if init else [])
    assert names(found.start) == start


@pytest.mark.parametrize(
    ("found", "message", "start"),
    [
        (
            acts(pod(), [sandbox()], container("a", changed=True), RUN[1]),
            "Container a definition changed, will be restarted",
            ["a"],
        ),
        (
            acts(pod("Never"), [sandbox()], container("a", changed=True), RUN[1]),
            "Container a definition changed, will be restarted",
            ["a"],
        ),
        (
            acts(pod(), [sandbox()], container("a", "unknown"), RUN[1]),
            'Container is in "unknown" state, try killing it before restart',
            ["a"],
        ),
    ],
)
def test_what_is_killed(found: PodActions, message: str, start: list[str]) -> None:
    assert [(kill.container.name, kill.message) for kill in found.kill] == [("a", message)]
    assert names(found.start) == start and not found.kill_pod


@pytest.mark.parametrize(
    ("policy", "live", "up", "message", "start"),
    [
        ("Always", False, None, "Container a failed liveness probe, will be restarted", ["a", "b"]),
        ("Never", False, None, "Container a failed liveness probe", []),
        (
            "OnFailure",
            None,
            False,
            "Container a failed startup probe, will be restarted",
            ["a", "b"],
        ),
    ],
)
def test_probes_kill(policy: str, live: Any, up: Any, message: str, start: list[str]) -> None:
    found = acts(pod(policy), [sandbox()], *RUN, live=live, up=up)
    assert found.kill[0].message == message and names(found.start) == start
    assert found.kill_pod == (not start)


def test_ephemeral_containers_start_once_and_do_not_wait_for_init_containers() -> None:
    debugged = pod(
        inits=[INIT], ephemeralContainers=[{"name": "d", "image": "i"}, {"name": "e", "image": "i"}]
    )
    found = acts(debugged, [sandbox()], container("e", "exited", 1), container("i"))
    assert names(found.ephemeral) == ["d"] and not found.init


def test_an_init_container_in_an_unknown_state_is_killed_first() -> None:
    found = acts(pod(inits=[INIT]), [sandbox()], container("i", "unknown"))
    assert found.init == (INIT,)
    assert (
        found.kill[0].message
        == 'Init container is in "unknown" state, try killing it before restart'
    )
