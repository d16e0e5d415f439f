"""The table of failures has every Warning event that our components can emit, and every fault that
can be switched on.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from tests.doctor.patients import NOW, event
from tests.doctor.test_failures import ROWS

import transom
from transom.cloud.control import DISK_OPTIONS
from transom.doctor.events import KINDS, LASTING, REASONS, check_events
from transom.doctor.snapshot import ClusterSnapshot
from transom.machines.windows.hns.faults import SWITCHES
from transom.node.spec import CHANGEABLE

SOURCES = Path(transom.__file__).parent
_NAMES = {"WARNING", "WARNING_EVENT"}
_LOGS = ("line", "log")  # methods of logs, whose levels have the same name
# Calls whose reason is computed: what it can be.
COMPUTED = {
    "controllers/persistentvolume/binder.py: reason": ("ClaimLost", "ClaimMisbound"),
    "controllers/persistentvolume/reclaim.py: reason": (
        "VolumeFailedDelete",
        "VolumeFailedRecycle",
        "VolumeUnknownPlugin",
    ),
    "controllers/job/tracked.py: end.get('reason', '')": (
        "BackoffLimitExceeded",
        "DeadlineExceeded",
        "PodFailurePolicy",
        "FailedIndexes",
        "MaxFailedIndexesExceeded",
    ),
    "controllers/job/controller.py: *failure": ("BackoffLimitExceeded", "DeadlineExceeded"),
    "controllers/statefulset/update.py: f'Failed{verb.title()}'": (
        "FailedCreate",
        "FailedDelete",
        "FailedUpdate",
    ),
    "controllers/deployment/rollout.py: statuses.SET_CREATE_ERROR": ("ReplicaSetCreateError",),
    "controllers/deployment/rollout.py: reason": (
        "DeploymentRollbackRevisionNotFound",
        "DeploymentRollbackTemplateUnchanged",
    ),
    "controllers/horizontalpodautoscaler/controller.py: failure.reason": (
        "FailedGetResourceMetric",
    ),
    "controllers/horizontalpodautoscaler/controller.py: reason": (
        "SelectorRequired",
        "InvalidSelector",
    ),
    "kubelet/volumes/manager.py: reason": ("FailedMount", "FailedMapVolume", "FailedAttachVolume"),
    "kubelet/allocation.py: f'Resize{reason}'": ("ResizeDeferred", "ResizeInfeasible"),
    "kubelet/image_gc.py: reason": ("FreeDiskSpaceFailed", "InvalidDiskCapacity"),
    "kubelet/eviction/manager.py: REASON": ("Evicted",),
    "kubelet/core.py: rejection.reason": (
        "NodePorts",
        "OutOfcpu",
        "NodeAffinity",
        "SysctlForbidden",
        "AppArmor",
    ),
    "controllers/cronjob.py: reason": (
        "UnknownTimeZone",
        "UnparseableSchedule",
        "InvalidSchedule",
    ),
    "controllers/endpointslice/topology.py: _DISABLED": ("TopologyAwareHintsDisabled",),
    "kubelet/images.py: event": ("ErrImageNeverPull", "InspectFailed"),
    "kubelet/prober/worker.py: reason": ("Unhealthy", "ProbeWarning"),
    "kubelet/admission/chain.py: preemption.REASON": ("Preempting",),
    "userland/csi/snapshots.py: reason": (
        "SnapshotContentMissing",
        "GetSnapshotClassFailed",
        "SetDefaultSnapshotClassFailed",
        "SnapshotContentCreationFailed",
    ),
    "apiserver/serving/corruption_events.py: REASON": ("CorruptRecord",),
}


def calls() -> Iterator[tuple[str, str]]:
    """Where a Warning is emitted, and the source of its reason."""
    for path in sorted(SOURCES.rglob("*.py")):
        text = path.read_text()
        if "arning" not in text and "WARNING" not in text:
            continue
        for call in ast.walk(ast.parse(text)):
            if not isinstance(call, ast.Call) or (
                isinstance(call.func, ast.Attribute) and call.func.attr in _LOGS
            ):
                continue
            for at, argument in enumerate(call.args):
                named = isinstance(argument, ast.Name) and argument.id in _NAMES
                constant = isinstance(argument, ast.Constant) and argument.value == "Warning"
                if (named or constant) and at + 1 < len(call.args):
                    yield str(path.relative_to(SOURCES)), ast.unparse(call.args[at + 1])


@cache
def reasons() -> dict[str, str]:
    found: dict[str, str] = {}
    for path, source in calls():
        if path.startswith(("userland/powershell", "cli/")):
            continue
        try:
            value = ast.literal_eval(source)
        except (ValueError, SyntaxError):
            for reason in COMPUTED[f"{path}: {source}"]:
                found[reason] = path
            continue
        if isinstance(value, str):
            found[value] = path
    return found


# tests/scenarios shows these.
SCENARIO_FAULTS = {"fault:keep_remote_endpoints", "fault:lose_balancers_on_restart"}
COVERED = {name for row in ROWS for name in row.covers}
# Reasons that stand for a state which doctor reports instead: of pods that cannot be created or
# deleted, of Jobs that have failed, of snapshots, and of the store.
STATES = {
    "PodFailurePolicy",
    "FailedIndexes",
    "MaxFailedIndexesExceeded",
    "FailedMapVolume",
    "FailedPodSandBoxStatus",
    "NetworkNotReady",
    "CorruptRecord",
    "SelectorRequired",
    "InvalidSelector",
    # of VolumeSnapshots, which have them in their status
    "SnapshotContentMissing",
    "GetSnapshotClassFailed",
    "SetDefaultSnapshotClassFailed",
    "SnapshotContentCreationFailed",
    "SnapshotContentCheckandUpdateFailed",
}


def test_every_warning_that_our_components_emit_is_in_the_table() -> None:
    found = reasons()
    assert len(found) > 60
    missing = {
        reason: path
        for reason, path in found.items()
        if reason not in {*COVERED, *REASONS, *STATES}
    }
    assert missing == {}
    assert not STATES & {*COVERED, *REASONS}


@pytest.mark.parametrize("reason", sorted({*REASONS} - COVERED))
def test_an_event_without_a_state_is_reported_with_its_cause_and_remedy(reason: str) -> None:
    """These need a component that fails in a way which cannot be produced here; the others are rows of the table."""
    for kind, plural in KINDS.items():
        found = {
            "metadata": {
                "name": "x",
                **({} if kind in ("Node", "PersistentVolume") else {"namespace": "default"}),
            }
        }
        about = event("x", reason, "it happened", kind=kind)
        if kind == "PersistentVolume":
            about["involvedObject"]["namespace"] = ""
        seen = ClusterSnapshot(now=NOW, objects={plural: [found], "events": [about]})
        [one] = check_events(seen)
        cause, remedy = REASONS[reason]
        assert (one.what, one.remedy) == (f"{cause} ({reason}: it happened)", remedy)
        assert one.where == (
            "/".join(filter(None, (kind.lower(), found["metadata"].get("namespace"), "x"))),
        )
        later = ClusterSnapshot(now=NOW + 600, objects={plural: [found], "events": [about]})
        assert list(check_events(later)) == ([one] if reason in LASTING else [])
        # the object is gone
        assert list(check_events(ClusterSnapshot(now=NOW, objects={"events": [about]}))) == []


CLOUD_OPTIONS = (*DISK_OPTIONS, "offline", "zone", "limit")
INSTALLED = (
    "csiProxy",
    "flexDrivers",
)  # what may be installed on a node; a missing one is not a fault


def test_every_fault_that_can_be_switched_on_is_in_the_table() -> None:
    faults = {f"fault:{switch}" for switch in SWITCHES} | {
        f"fault:{option}" for option in CHANGEABLE if option not in INSTALLED
    }
    faults |= {
        f"fault:{name}"
        for name in (
            "fail-pull",
            "fail-sandbox",
            "fail-start",
            "crash",
            "exit-code",
            "run-time",
            "memory",
        )
    }
    faults |= {f"cloud:{name.replace('-', '_')}" for name in CLOUD_OPTIONS}
    assert faults - COVERED - SCENARIO_FAULTS == set()


def test_every_reason_is_emitted_by_a_component() -> None:
    assert {*REASONS} - {*reasons()} == set()
