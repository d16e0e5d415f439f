"""What any cluster may have: each row is one thing that is wrong, and what is said of it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.doctor.patients import NOW, endpoints, event, healthy, node, pod, service

from transom.doctor.examine import GENERAL, WINDOWS, Unknown, checks, examine, places
from transom.doctor.findings import Finding, merged
from transom.doctor.snapshot import Snapshot
from transom.kit.clock import rfc3339

HOOK = {"metadata": {"name": "policy"}, "webhooks": [
    {"name": "check.example.com", "clientConfig": {"service": {"namespace": "default", "name": "check"}}},
]}  # fmt: skip
REPLICAS = {"metadata": {"name": "web-1", "namespace": "default"}, "spec": {"replicas": 2}, "status": {"replicas": 1}}
CRASH = {"reason": "CrashLoopBackOff"}
CREATING = {"reason": "ContainerCreating"}
UNSCHEDULABLE = "0/2 nodes are available: 2 Insufficient cpu."


def unplaced(text: str = UNSCHEDULABLE) -> dict[str, Any]:
    found = pod("web", "", ready=False)
    found["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": text}]
    return found


CASES: list[tuple[str, Snapshot, str, str, str]] = [
    # of what, with what is wrong, how bad, what, what to do
    ("cluster", healthy(unreachable="connection refused"), "error", "does not answer: connection refused", "transom status"),
    ("cluster", healthy(unhealthy=("etcd failed: reason withheld",)), "error", "not ready: etcd failed", "log"),
    ("cluster", healthy(unread={"events": "forbidden"}), "info", "events cannot be read: forbidden", "account"),
    ("apiservice/v1.x", healthy(apiservices=[{"metadata": {"name": "v1.x"}, "status": {"conditions": [
        {"type": "Available", "status": "False", "reason": "MissingEndpoints", "message": "none"}]}}]),
     "error", "is not available: MissingEndpoints: none", "pods of the service"),
    ("mutatingwebhookconfiguration/policy", healthy(mutatingwebhookconfigurations=[HOOK]), "error",
     "webhook check.example.com is called at service default/check, which does not exist", "Start its pods"),
    ("validatingwebhookconfiguration/policy",
     healthy(validatingwebhookconfigurations=[HOOK], services=[service("check")], endpoints=[endpoints("check")]), "error",
     "default/check, which has no ready endpoints", "remove the configuration"),
    ("node/linux-1", healthy(nodes=[node("linux-1", "linux", ready="Unknown", message="Kubelet stopped posting node status.")]),
     "error", "is not Ready: KubeletNotReady: Kubelet stopped posting", "reaches the API server"),
    ("node/linux-1", healthy(nodes=[node("linux-1", "linux", unschedulable=True)]), "info", "is cordoned", "kubectl uncordon"),
    ("cluster", healthy(nodes=[]), "warning", "there are no nodes", "Add nodes"),
    ("service/default/web", healthy(services=[service("web", {"app": "web"})]), "warning",
     "no pod has the labels that it selects (app=web)", "Compare its selector"),
    ("service/default/web", healthy(services=[service("web", {"app": "a"})], pods=[pod("a", "linux-1", ready=True)]), "warning",
     "none of its 1 pods is ready", "kubectl get pods --namespace default --selector app=a"),
    ("pod/default/web", healthy(pods=[unplaced()]), "error", f"no node takes it: {UNSCHEDULABLE}", "explain-schedule"),
    ("pod/default/web", healthy(pods=[unplaced("1 node(s) had taint {os: windows}, that the pod didn't tolerate")]), "error",
     "no node takes it", "Let the pod tolerate the taint"),
    ("pod/default/web", healthy(pods=[pod("web", "")]), "error", "no scheduler has looked at it", "default-scheduler"),
    ("pod/default/a", healthy(pods=[pod("a", "linux-1", waiting={"reason": "ImagePullBackOff"})], events=[
        event("a", "Failed", "Error: ImagePullBackOff", ago=1),
        event("a", "Failed", 'Failed to pull image "app:1": rpc error: code = NotFound desc = app:1: not found', ago=9)]),
     "error", "image app:1 cannot be pulled: app:1: not found", "imagePullSecrets"),
    ("pod/default/a", healthy(pods=[pod("a", "linux-1", waiting=CRASH, last={"exitCode": 3})]), "error",
     "container c ended with exit code 3", "kubectl logs POD --container c --previous"),
    ("pod/default/a", healthy(pods=[pod("a", "linux-1", waiting=CRASH,
                                        last={"exitCode": 137, "reason": "OOMKilled"})]), "error",
     "was killed for using more memory than its limit", "Raise its memory limit"),
    ("pod/default/a", healthy(pods=[pod("a", "linux-1", waiting={
        "reason": "CreateContainerConfigError", "message": 'configmap "x" not found'})]), "error",
     'does not start: CreateContainerConfigError: configmap "x" not found', "Make the ConfigMap"),
    ("pod/default/a", healthy(pods=[pod("a", "linux-1", waiting=CREATING)], events=[
        event("a", "FailedMount", 'secret "x" not found')]), "error", 'is not made: FailedMount: secret "x"', "message"),
    ("pod/default/a", healthy(pods=[pod("a", "linux-1", waiting=CREATING, age=600)]), "warning",
     "is ContainerCreating for more than 120 seconds", "kubectl describe pod"),
    ("replicaset/default/web-1", healthy(replicasets=[REPLICAS], events=[event(
        "web-1", "FailedCreate", 'Error creating: pods "web-1-x" is forbidden: exceeded quota: q', kind="ReplicaSet")]),
     "error", "cannot make its pods: a pod is forbidden: exceeded quota: q", "Raise the quota"),
    ("replicaset/default/web-1", healthy(replicasets=[REPLICAS], events=[event(
        "web-1", "FailedCreate", 'Internal error occurred: failed calling webhook "x": timeout', kind="ReplicaSet")]),
     "error", "failed calling webhook", "Look at the webhook's pods"),
    ("resourcequota/default/q", healthy(resourcequotas=[{"metadata": {"name": "q", "namespace": "default"}, "status": {
        "hard": {"pods": "9", "cpu": "2"}, "used": {"pods": "9", "cpu": "1"}}}]), "info", "nothing is left of pods", "Raise"),
    ("persistentvolumeclaim/default/data", healthy(
        persistentvolumeclaims=[{"metadata": {"name": "data", "namespace": "default"}, "status": {"phase": "Pending"}}],
        events=[event("data", "ProvisioningFailed", 'storageclass "fast" not found', kind="PersistentVolumeClaim")]),
     "error", 'is Pending: storageclass "fast" not found', "storage class"),
    ("namespace/old", healthy(namespaces=[{"metadata": {"name": "old", "deletionTimestamp": rfc3339(NOW - 90)}}]), "warning",
     "is being deleted for more than a minute", "finalizers"),
]  # fmt: skip


@pytest.mark.windows("TRB-01")
@pytest.mark.parametrize(("where", "patient", "severity", "what", "remedy"), CASES, ids=[case[3][:40] for case in CASES])
def test_what_any_cluster_may_have(where: str, patient: Snapshot, severity: str, what: str, remedy: str) -> None:
    found = [one for one in examine(patient) if what in one.what]
    assert [(one.severity, one.where or ("cluster",)) for one in found] == [(severity, (where,))], examine(patient)
    assert remedy in found[0].remedy and found[0].why and not found[0].windows


@pytest.mark.parametrize("more", [
    {"pods": [pod("a", "linux-1", ready=True, phase="Running"), pod("b", waiting=CREATING, age=5)]},
    {"services": [service("outside", type="ExternalName"), service("by-hand")]},
    {"replicasets": [{**REPLICAS, "status": {"replicas": 2}}],  # it has got them since
     "events": [event("web-1", "FailedCreate", "exceeded quota", kind="ReplicaSet")]},
    {"replicasets": [REPLICAS], "events": [event("web-1", "FailedCreate", "exceeded quota", kind="ReplicaSet", ago=5000)]},
    {"events": [event("gone", "FailedMount", "no")]},
    {"pods": [pod("a", "linux-1", waiting=CREATING, age=100)], "events": [event("a", "FailedMount", "mounted since", ago=900)]},
])  # fmt: skip
def test_what_is_well(more: dict[str, Any]) -> None:
    assert examine(healthy(**more)) == []


@pytest.mark.windows("TRB-01")
def test_general_checks_come_first_and_what_is_worst_before_the_rest() -> None:
    patient = healthy(
        nodes=[node("linux-1", "linux", unschedulable=True), node("windows-1", ready="False", message="no subnet.env")],
        pods=[pod("a", "linux-1", waiting=CRASH, last={"exitCode": 3})],
    )
    assert [(one.windows, one.severity) for one in examine(patient)] == [(False, "error"), (False, "info"), (True, "error")]
    titles = [row.title for row in checks(patient)]
    assert titles[: len(GENERAL)] == [row.title for row in GENERAL]
    assert titles[len(GENERAL) :] == [row.title for row in WINDOWS if not row.inside]
    assert len(checks(healthy(nodes=[node("linux-1", "linux")]))) == len(GENERAL)


def test_the_same_in_many_places_is_told_once() -> None:
    pods = [pod(f"web-{i}", "linux-1", waiting=CRASH, last={"exitCode": 1}) for i in range(3)]
    [found] = examine(healthy(pods=pods))
    assert found.where == ("pod/default/web-0", "pod/default/web-1", "pod/default/web-2")
    [found] = merged([Finding("error", "x", (f"pod/default/web-{i}",)) for i in (0, 1, 0)])
    assert found.where == ("pod/default/web-0", "pod/default/web-1")


def test_only_what_was_asked_about() -> None:
    patient = healthy(pods=[
        pod("a", "linux-1", waiting=CRASH), pod("b", "windows-1", waiting=CRASH),
    ])  # fmt: skip
    for text in ("linux-1", "node/linux-1", "a", "default/a", "pod/a", "po/default/a"):
        assert [one.where for one in examine(patient, places(patient, [text]))] == [("pod/default/a",)], text
    assert places(patient, ["b"], "default") == ["pod/default/b", "node/windows-1"]
    for text in ("nobody", "other/a", "node/a", "pod/linux-1"):
        with pytest.raises(Unknown, match=text):
            places(patient, [text])
