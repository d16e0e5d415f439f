"""How a pod stands, from what the runtime has of it."""

from __future__ import annotations

from typing import Any

import pytest

from transom.kubelet.conditions import own_conditions
from transom.kubelet.features import PodFeatures
from transom.kubelet.podstate import PodState
from transom.kubelet.status import StatusInputs, WaitingReason, generate_pod_status, probed
from transom.kubelet.status_manager import pod_status_merge_patch
from transom.machinery import schema
from transom.machinery.kinds import GVK
from transom.machinery.strategic import strategic_merge
from transom.runtime.api import Container, Sandbox, SandboxConfig

OWN = own_conditions(PodFeatures())
A, B = {"name": "a", "image": "ia"}, {"name": "b", "image": "ib"}


class NoProbes:
    def readiness(self, container_id: str) -> bool | None:
        return None

    startup = readiness


AROUND = StatusInputs(
    ("192.168.0.1", "fd00::1"),
    "containerd",
    NoProbes(),
    lambda c: "last words" if c.exit_code == 5 else "",
)
UP = [Sandbox("s", SandboxConfig("p", "n", "u"), "ready", 1.0, ips=("10.0.0.1", "fd00::1"))]


def pod(
    policy: str = "Always", inits: Any = (), deleted: bool = False, status: Any = None, **spec: Any
) -> Any:
    meta = {"name": "p", "namespace": "n", "uid": "u"}
    if deleted:
        meta["deletionTimestamp"] = "2020-01-01T00:00:00Z"
    spec = {"containers": [B, A], "restartPolicy": policy, **spec}
    if inits:
        spec["initContainers"] = inits
    return {"metadata": meta, "spec": spec, "status": status or {}}


def container(
    name: str, state: Any = "running", code: int = 0, attempt: int = 0, **more: Any
) -> Container:
    return Container(
        f"{name}{attempt}",
        "s",
        name,
        attempt,
        state,
        "image",
        "ref",
        {},
        {},
        1.0,
        started_at=10.0,
        finished_at=20.0,
        exit_code=code,
        reason="" if state != "exited" else "Error" if code else "Completed",
        **more,
    )


def status(
    pod: Any, *containers: Container, old: Any = None, reasons: Any = None, sandboxes: Any = UP
) -> Any:
    return generate_pod_status(
        pod, PodState(sandboxes, containers), old or {}, reasons or {}, AROUND
    )


OK, BAD = container("b", "exited"), container("b", "exited", 1)


class Ready(NoProbes):
    """So says the probe of every container."""

    def readiness(self, container_id: str) -> bool | None:
        return True


def test_a_probe_changes_what_it_is_about_and_nothing_else() -> None:
    probe = {"readinessProbe": {"httpGet": {"port": 80}}}
    subject = pod("OnFailure", containers=[{**A, **probe}, B])
    before = status(subject, container("a"), container("b", "exited", 3))
    assert not before["containerStatuses"][0]["ready"]
    after = probed(subject, before, AROUND._replace(probes=Ready()))
    a, b = after["containerStatuses"]
    assert (a["ready"], a["state"]) == (True, before["containerStatuses"][0]["state"])
    assert b == before["containerStatuses"][1]
    found = {c["type"]: c.get("message") for c in after["conditions"]}
    assert found["Ready"] == found["ContainersReady"] == "containers with unready status: [b]"
    assert [c["type"] for c in after["conditions"]] == [c["type"] for c in before["conditions"]]
    assert not before["containerStatuses"][0]["ready"], "what was reported before stays as it was"


@pytest.mark.parametrize(
    ("policy", "containers", "phase"),
    [
        ("Always", (), "Pending"),
        ("Always", (container("a"),), "Pending"),
        ("Always", (container("a"), container("b")), "Running"),
        ("Always", (container("a"), BAD), "Running"),
        ("Always", (container("a", "exited"), OK), "Running"),
        ("OnFailure", (container("a", "exited"), OK), "Succeeded"),
        ("OnFailure", (container("a", "exited"), BAD), "Running"),
        ("Never", (container("a", "exited"), BAD), "Failed"),
        ("Never", (container("a"), BAD), "Running"),
        ("Never", (container("a", "exited"), OK), "Succeeded"),
    ],
)
def test_phases(policy: str, containers: Any, phase: str) -> None:
    assert status(pod(policy), *containers)["phase"] == phase


@pytest.mark.parametrize(
    ("policy", "inits", "phase", "initialized"),
    [
        ("Always", (), "Pending", "containers with incomplete status: [i j]"),
        ("Always", (container("i"),), "Pending", "containers with incomplete status: [i j]"),
        (
            "Always",
            (container("i", "exited"),),
            "Pending",
            "containers with incomplete status: [j]",
        ),
        (
            "Always",
            (container("i", "exited", 1),),
            "Pending",
            "containers with incomplete status: [i j]",
        ),
        (
            "Never",
            (container("i", "exited", 1),),
            "Failed",
            "containers with incomplete status: [i j]",
        ),
    ],
)
def test_phases_with_init_containers(policy: str, inits: Any, phase: str, initialized: str) -> None:
    found = status(pod(policy, [{"name": "i", "image": "x"}, {"name": "j", "image": "x"}]), *inits)
    assert found["phase"] == phase
    assert found["conditions"][0] == {
        "type": "Initialized",
        "status": "False",
        "reason": "ContainersNotInitialized",
        "message": initialized,
    }
    assert found["containerStatuses"][0]["state"] == {"waiting": {"reason": "PodInitializing"}}


def test_a_terminal_phase_stays() -> None:
    assert (
        status(pod(status={"phase": "Failed"}), container("a"), container("b"))["phase"] == "Failed"
    )


def test_containers_are_sorted_and_have_their_last_state() -> None:
    found = status(
        pod(), container("a", attempt=1), container("a", "exited", 5, message="oom"), container("b")
    )
    a, b = found["containerStatuses"]
    assert (a["name"], a["restartCount"], a["containerID"], b["name"]) == (
        "a",
        1,
        "containerd://a1",
        "b",
    )
    assert a["lastState"] == {
        "terminated": {
            "exitCode": 5,
            "reason": "Error",
            "message": "oom: last words",
            "startedAt": "1970-01-01T00:00:10Z",
            "finishedAt": "1970-01-01T00:00:20Z",
            "containerID": "containerd://a0",
        }
    }
    assert found["podIP"] == "10.0.0.1" and found["podIPs"] == [
        {"ip": "10.0.0.1"},
        {"ip": "fd00::1"},
    ]


def test_a_long_message_is_cut_to_the_share_of_a_container() -> None:
    found = status(pod(), container("a", "exited", 1, message="é" * 6000))
    assert len(found["containerStatuses"][0]["state"]["terminated"]["message"].encode()) == 6144


def test_why_a_container_does_not_start() -> None:
    reasons = {
        "a": WaitingReason("CrashLoopBackOff", "back-off"),
        "b": WaitingReason("ErrImagePull", ""),
    }
    a, b = status(pod(), container("a", "exited", 1), reasons=reasons)["containerStatuses"]
    assert a["state"] == {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}
    assert a["lastState"]["terminated"]["exitCode"] == 1
    assert b["state"] == {"waiting": {"reason": "ErrImagePull"}} and b["image"] == "ib"
    a, _ = status(pod("Never"), container("a", "exited", 1), reasons=reasons)["containerStatuses"]
    assert "terminated" in a["state"]


RUNNING = {
    "name": "a",
    "state": {"running": {"startedAt": "x"}},
    "lastState": {},
    "restartCount": 3,
}


@pytest.mark.parametrize(
    ("deleted", "containers", "state", "last", "restarts"),
    [
        (False, (), "waiting", None, 3),
        (
            True,
            (),
            "waiting",
            (
                "The container could not be located when the pod was deleted.  The container "
                "used to be Running"
            ),
            3,
        ),
        (False, (container("a", "unknown"),), "terminated", None, 4),
    ],
)
def test_containers_that_are_lost(
    deleted: bool, containers: Any, state: str, last: Any, restarts: int
) -> None:
    a, _ = status(pod(deleted=deleted), *containers, old={"containerStatuses": [RUNNING]})[
        "containerStatuses"
    ]
    assert [*a["state"]] == [state] and a["restartCount"] == restarts
    assert (a["lastState"].get("terminated") or {}).get("message") == last
    if state == "terminated":
        assert a["state"]["terminated"]["reason"] == "ContainerStatusUnknown"
        assert a["state"]["terminated"]["exitCode"] == 137


def test_the_address_of_a_pod_on_the_hosts_network() -> None:
    found = status(pod(hostNetwork=True), sandboxes=[])
    assert (found["podIP"], found["podIPs"]) == (
        "192.168.0.1",
        [{"ip": "192.168.0.1"}, {"ip": "fd00::1"}],
    )


def test_a_completed_pod_keeps_its_address() -> None:
    old = {"podIPs": [{"ip": "10.0.0.7"}, {"ip": "fd00::7"}]}
    found = status(pod(), container("a", "exited"), sandboxes=[], old=old)
    assert (found["podIP"], found["podIPs"]) == ("10.0.0.7", old["podIPs"])
    new = status(pod(), container("a", "running"), old=old)
    assert new["podIP"] == "10.0.0.1"


# ---- patches ----

SCHEDULED = {
    "type": "PodScheduled",
    "status": "True",
    "lastTransitionTime": "t",
    "lastProbeTime": None,
}
READY = {
    "type": "Ready",
    "status": "False",
    "reason": "x",
    "message": "y",
    "lastTransitionTime": "t",
    "lastProbeTime": None,
}
GATE = {"type": "x/y", "status": "True"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            {"phase": "Pending", "qosClass": "BestEffort"},
            {"phase": "Running", "qosClass": "BestEffort", "podIP": "1"},
        ),
        ({"phase": "Running", "podIP": "1", "podIPs": [{"ip": "1"}]}, {"phase": "Running"}),
        ({"podIPs": [{"ip": "1"}, {"ip": "2"}]}, {"podIPs": [{"ip": "2"}, {"ip": "3"}]}),
        ({"conditions": [SCHEDULED]}, {"conditions": [READY, SCHEDULED]}),
        (
            {"conditions": [READY, SCHEDULED]},
            {"conditions": [{"type": "Ready", "status": "True"}, SCHEDULED]},
        ),
        ({"conditions": [READY, SCHEDULED]}, {"phase": "Failed"}),
        ({"conditions": [SCHEDULED, READY]}, {"conditions": [READY, SCHEDULED]}),
    ],
)
def test_a_patch_makes_the_new_status(old: Any, new: Any) -> None:
    change = pod_status_merge_patch(old, new, OWN)
    assert change is not None
    made = strategic_merge(
        {"status": old}, {"status": change}, schema.lookup_schema_type(GVK("", "v1", "Pod"))
    )["status"]
    made = {key: value for key, value in made.items() if value != []}
    assert made == new
    assert pod_status_merge_patch(new, new, OWN) is None


def test_fields_of_other_components_stay() -> None:
    """A kubelet may not write them, not even with an older value."""
    others: Any = {
        "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "web-gpu"}],
        "extendedResourceClaimStatus": {"resourceClaimName": "web-x", "requestMappings": []},
    }
    change = pod_status_merge_patch({"phase": "Pending", **others}, {"phase": "Running"}, OWN)
    assert change == {"phase": "Running"}
    old = {"resourceClaimStatuses": [{"name": "gpu"}]}
    assert pod_status_merge_patch(others, old, OWN) is None


def test_conditions_of_others_stay() -> None:
    change = pod_status_merge_patch(
        {"conditions": [GATE, SCHEDULED]}, {"conditions": [SCHEDULED]}, OWN
    )
    assert change is None


def test_the_health_of_devices_of_claims() -> None:
    claiming = {**A, "resources": {"claims": [{"name": "gpu"}]}}
    health = [{"name": "claim:gpu", "resources": [{"resourceID": "x", "health": "Unknown"}]}]
    features = PodFeatures(resource_health=True)
    asking = pod(containers=[claiming, B])
    state = PodState(UP, [container("a"), container("b")])
    for around, expected in (
        (AROUND, None),
        (AROUND._replace(features=features, resource_health=lambda pod, c: health), health),
    ):
        found = generate_pod_status(asking, state, {}, {}, around)["containerStatuses"]
        assert found[0].get("allocatedResourcesStatus") == expected
        assert "allocatedResourcesStatus" not in found[1]
