"""What any cluster may have: each row is one thing that is wrong, and what is reported about it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.doctor.patients import (
    NOW,
    endpoints,
    event,
    healthy,
    node,
    pod,
    service,
    windows_node,
)

from transom.doctor.examine import (
    GENERAL,
    WINDOWS,
    UnknownName,
    checks,
    examine,
    places_to_check,
    pods_with_useful_logs,
)
from transom.doctor.findings import DoctorFinding, merged_findings
from transom.doctor.services import check_ingresses
from transom.doctor.snapshot import ClusterSnapshot
from transom.kit.clock import rfc3339
from transom.kit.user_errors import name_cluster

HOOK = {
    "metadata": {"name": "policy"},
    "webhooks": [
        {
            "name": "check.example.com",
            "clientConfig": {"service": {"namespace": "default", "name": "check"}},
        },
    ],
}
REPLICAS = {
    "metadata": {"name": "web-1", "namespace": "default"},
    "spec": {"replicas": 2},
    "status": {"replicas": 1},
}
CRASH = {"reason": "CrashLoopBackOff"}
CREATING = {"reason": "ContainerCreating"}
TAINT = {"key": "team", "value": "a", "effect": "NoSchedule"}
UNSCHEDULABLE = "0/2 nodes are available: 2 Insufficient cpu."


def unplaced(text: str = UNSCHEDULABLE) -> dict[str, Any]:
    found = pod("web", "", ready=False)
    found["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": text}
    ]
    return found


def unusable(name: str, *, files: str = "", replace: str = "") -> dict[str, str]:
    reason = "too many symbolic links: /opt"
    return {"name": name, "reason": reason, "files": files, "replace": replace}


CASES: list[tuple[str, ClusterSnapshot, str, str, str]] = [
    # of what, with what is wrong, how bad, what, what to do
    (
        "cluster",
        healthy(unreachable="connection refused"),
        "error",
        "does not answer: connection refused",
        "transom status",
    ),
    (
        "cluster",
        healthy(unhealthy=("etcd failed: reason withheld",)),
        "error",
        "not ready: etcd failed",
        "log",
    ),
    (
        "cluster",
        healthy(unread={"events": "forbidden"}),
        "info",
        "events cannot be read: forbidden",
        "account",
    ),
    (
        "apiservice/v1.x",
        healthy(
            apiservices=[
                {
                    "metadata": {"name": "v1.x"},
                    "status": {
                        "conditions": [
                            {
                                "type": "Available",
                                "status": "False",
                                "reason": "MissingEndpoints",
                                "message": "none",
                            }
                        ]
                    },
                }
            ]
        ),
        "error",
        "is not available: MissingEndpoints: none",
        "Start the pods behind its service",
    ),
    (
        "mutatingwebhookconfiguration/policy",
        healthy(mutatingwebhookconfigurations=[HOOK]),
        "error",
        "webhook check.example.com calls service default/check, which does not exist",
        "Start its pods",
    ),
    (
        "validatingwebhookconfiguration/policy",
        healthy(
            validatingwebhookconfigurations=[HOOK],
            services=[service("check")],
            endpoints=[endpoints("check")],
        ),
        "error",
        "default/check, which has no ready endpoints",
        "remove the configuration",
    ),
    (
        "node/linux-1",
        healthy(
            nodes=[
                node(
                    "linux-1",
                    "linux",
                    ready="Unknown",
                    message="Kubelet stopped posting node status.",
                )
            ]
        ),
        "error",
        "is not Ready: KubeletNotReady: Kubelet stopped posting",
        "reaches the API server",
    ),
    (
        "node/linux-1",
        healthy(
            nodes=[node("linux-1", "linux", ready="Unknown")],
            unusable={"linux-1": unusable("linux-1", replace="transom node add linux-1")},
        ),
        "error",
        "its machine has not started: too many symbolic links: /opt",
        "Replace the node: transom node delete linux-1 && transom node add linux-1",
    ),
    (
        "node/linux-1",
        healthy(unusable={"linux-1": unusable("linux-1", files="/state/machines/linux-1")}),
        "error",
        "its machine has not started",
        "Repair the file below /state/machines/linux-1, then: transom node start linux-1",
    ),
    (
        "node/control-plane",
        healthy(unusable={"control-plane": unusable("control-plane")}),
        "error",
        "its machine has not started",
        "Create the cluster again: transom delete && transom up",
    ),
    (
        "node/linux-1",
        healthy(nodes=[node("linux-1", "linux", unschedulable=True)]),
        "info",
        "is cordoned",
        "kubectl uncordon",
    ),
    (
        "cluster",
        healthy(nodes=[], pods=[pod("waiting")]),
        "warning",
        "there are no nodes",
        "Add nodes",
    ),
    (
        "service/default/web",
        healthy(services=[service("web", {"app": "web"})]),
        "warning",
        "no pod has the labels that it selects (app=web)",
        "Correct its selector",
    ),
    (
        "service/default/web",
        healthy(services=[service("web", {"app": "a"})], pods=[pod("a", "linux-1", ready=True)]),
        "warning",
        "none of its 1 pods is ready",
        "kubectl get pods --namespace default --selector app=a",
    ),
    (
        "pod/default/web",
        healthy(pods=[unplaced()]),
        "error",
        "cannot be scheduled: the nodes that it may run on do not have enough free cpu",
        "explain-schedule default/web",
    ),
    (
        "pod/default/web",
        healthy(nodes=[node("linux-1", "linux", taints=[TAINT])], pods=[unplaced()]),
        "error",
        "it does not tolerate the taint team=a:NoSchedule",
        "Add the toleration {key: team, operator: Equal, value: a",
    ),
    (
        "pod/default/web",
        healthy(pods=[pod("web", "")]),
        "error",
        "no scheduler named default-scheduler runs",
        "Check that the scheduler runs",
    ),
    (
        "pod/default/a",
        healthy(
            pods=[pod("a", "linux-1", waiting={"reason": "ImagePullBackOff"})],
            events=[
                event("a", "Failed", "Error: ImagePullBackOff", ago=1),
                event(
                    "a",
                    "Failed",
                    (
                        'Failed to pull image "app:1": rpc error: code = NotFound desc = app:1: '
                        "not found"
                    ),
                    ago=9,
                ),
            ],
        ),
        "error",
        "image app:1 does not exist in the registry (app:1: not found)",
        "Correct the image's name",
    ),
    (
        "pod/default/a",
        healthy(pods=[pod("a", "linux-1", waiting=CRASH, last={"exitCode": 3})]),
        "error",
        "container c fails with exit code 3",
        "kubectl logs a --namespace default --container c --previous",
    ),
    (
        "pod/default/a",
        healthy(
            pods=[pod("a", "linux-1", waiting=CRASH, last={"exitCode": 137, "reason": "OOMKilled"})]
        ),
        "error",
        "used more memory than its limit",
        "Raise its memory limit",
    ),
    (
        "pod/default/a",
        healthy(
            pods=[
                pod(
                    "a",
                    "linux-1",
                    waiting={
                        "reason": "CreateContainerConfigError",
                        "message": 'configmap "x" not found',
                    },
                )
            ]
        ),
        "error",
        '(CreateContainerConfigError: configmap "x" not found)',
        "Create the ConfigMap x",
    ),
    (
        "pod/default/a",
        healthy(
            pods=[pod("a", "linux-1", waiting=CREATING)],
            events=[event("a", "FailedMount", 'secret "x" not found')],
        ),
        "error",
        'the Secret x does not exist (FailedMount: secret "x"',
        "Create the Secret x",
    ),
    (
        "pod/default/a",
        healthy(pods=[pod("a", "linux-1", waiting=CREATING, age=600)]),
        "warning",
        "is ContainerCreating for more than 120 seconds",
        "kubectl describe pod",
    ),
    (
        "pod/default/a",
        healthy(
            pods=[pod("a", "linux-1", waiting=CREATING, age=600)],
            events=[event("a", "Pulling", 'Pulling image "example.com/a:1"', ago=500)],
        ),
        "warning",
        "is ContainerCreating: the pull takes more than 120 seconds (image example.com/a:1)",
        "Pull large images ahead of time",
    ),
    (
        "pod/default/a",
        healthy(
            pods=[pod("a", "linux-1", waiting=CREATING, age=600)],
            events=[
                event("a", "Pulling", 'Pulling image "example.com/a:1"', ago=500),
                event("a", "Pulled", "Successfully pulled image", ago=400),
            ],
        ),
        "warning",
        "is ContainerCreating for more than 120 seconds",
        "kubectl describe pod",
    ),
    (
        "replicaset/default/web-1",
        healthy(
            replicasets=[REPLICAS],
            events=[
                event(
                    "web-1",
                    "FailedCreate",
                    'Error creating: pods "web-1-x" is forbidden: exceeded quota: q',
                    kind="ReplicaSet",
                )
            ],
        ),
        "error",
        (
            "cannot create its pods: the ResourceQuota q allows no more (it is forbidden: "
            "exceeded quota: q)"
        ),
        "Raise the quota",
    ),
    (
        "replicaset/default/web-1",
        healthy(
            replicasets=[REPLICAS],
            events=[
                event(
                    "web-1",
                    "FailedCreate",
                    'Internal error occurred: failed calling webhook "x": timeout',
                    kind="ReplicaSet",
                )
            ],
        ),
        "error",
        "failed calling webhook",
        "Start the webhook's pods",
    ),
    (
        "resourcequota/default/q",
        healthy(
            resourcequotas=[
                {
                    "metadata": {"name": "q", "namespace": "default"},
                    "status": {
                        "hard": {"pods": "9", "cpu": "2"},
                        "used": {"pods": "9", "cpu": "1"},
                    },
                }
            ]
        ),
        "info",
        "is used up: pods",
        "Raise",
    ),
    (
        "persistentvolumeclaim/default/data",
        healthy(
            persistentvolumeclaims=[
                {
                    "metadata": {"name": "data", "namespace": "default"},
                    "status": {"phase": "Pending"},
                }
            ],
            events=[
                event(
                    "data",
                    "ProvisioningFailed",
                    'storageclass "fast" not found',
                    kind="PersistentVolumeClaim",
                )
            ],
        ),
        "error",
        'the StorageClass fast does not exist (storageclass "fast" not found)',
        "Create the StorageClass fast",
    ),
    (
        "namespace/old",
        healthy(namespaces=[{"metadata": {"name": "old", "deletionTimestamp": rfc3339(NOW - 90)}}]),
        "warning",
        "is being deleted for more than a minute",
        "finalizers",
    ),
]


@pytest.mark.windows("TRB-01")
@pytest.mark.parametrize(
    ("where", "patient", "severity", "what", "remedy"), CASES, ids=[case[3][:40] for case in CASES]
)
def test_what_any_cluster_may_have(
    where: str, patient: ClusterSnapshot, severity: str, what: str, remedy: str
) -> None:
    found = [one for one in examine(patient) if what in one.what]
    assert [(one.severity, one.where or ("cluster",)) for one in found] == [(severity, (where,))], (
        examine(patient)
    )
    assert remedy in found[0].remedy and found[0].why and not found[0].windows


def test_a_machine_that_has_not_started_is_reported_once() -> None:
    nodes = [node("linux-1", "linux", ready="Unknown")]
    machine = unusable("linux-1", replace="transom node add linux-1")
    silent = {"linux-1": "connect: no route to host"}
    found = examine(healthy(nodes=nodes, unusable={"linux-1": machine}, silent_kubelets=silent))
    assert [one.what for one in found if one.where == ("node/linux-1",)] == [
        "its machine has not started: too many symbolic links: /opt"
    ]


@pytest.mark.parametrize(
    "more",
    [
        {
            "pods": [
                pod("a", "linux-1", ready=True, phase="Running"),
                pod("b", waiting=CREATING, age=5),
            ]
        },
        {
            "services": [service("outside", type="ExternalName"), service("by-hand")],
            "endpoints": [endpoints("by-hand", "10.0.0.9")],
        },
        {
            "replicasets": [{**REPLICAS, "status": {"replicas": 2}}],  # it has got them since
            "events": [event("web-1", "FailedCreate", "exceeded quota", kind="ReplicaSet")],
        },
        {
            "replicasets": [REPLICAS],
            "events": [
                event("web-1", "FailedCreate", "exceeded quota", kind="ReplicaSet", ago=5000)
            ],
        },
        {"events": [event("gone", "FailedMount", "no")]},
        {
            "pods": [pod("a", "linux-1", waiting=CREATING, age=100)],
            "events": [event("a", "FailedMount", "mounted since", ago=900)],
        },
    ],
)
def test_what_is_well(more: dict[str, Any]) -> None:
    assert examine(healthy(**more)) == []


@pytest.mark.windows("TRB-01")
def test_general_checks_come_first_and_what_is_worst_before_the_rest() -> None:
    patient = healthy(
        nodes=[
            node("linux-1", "linux", unschedulable=True),
            node("windows-1", ready="False", message="no subnet.env"),
        ],
        pods=[pod("a", "linux-1", waiting=CRASH, last={"exitCode": 3})],
    )
    assert [(one.windows, one.severity) for one in examine(patient)] == [
        (False, "error"),
        (False, "info"),
        (True, "error"),
    ]
    outside = [row.title for row in (*GENERAL, *WINDOWS) if not row.inside]
    assert [row.title for row in checks(patient)] == outside
    general = [row for row in GENERAL if not row.inside]
    assert checks(healthy(nodes=[node("linux-1", "linux")])) == general


def test_the_same_problem_in_many_places_is_reported_once() -> None:
    pods = [pod(f"web-{i}", "linux-1", waiting=CRASH, last={"exitCode": 1}) for i in range(3)]
    [found] = examine(healthy(pods=pods))
    assert found.where == ("pod/default/web-0", "pod/default/web-1", "pod/default/web-2")
    [found] = merged_findings(
        [DoctorFinding("error", "x", (f"pod/default/web-{i}",)) for i in (0, 1, 0)]
    )
    assert found.where == ("pod/default/web-0", "pod/default/web-1")


def test_remedies_that_differ_are_not_merged() -> None:
    """The remedy of one place does not help another; only its own name may differ."""

    def finding(where: str, remedy: str) -> DoctorFinding:
        return DoctorFinding("error", "x", (where,), remedy=remedy)

    merged = merged_findings(
        [
            finding("pod/blue/web-0", "kubectl logs web-0 --namespace blue"),
            finding("pod/blue/web-1", "kubectl logs web-1 --namespace blue"),
            finding("service/blue/a", "kubectl get pods --selector app=a"),
            finding("service/blue/b", "kubectl get pods --selector app=c"),
            finding("pod/blue/c", "Correct it."),
            finding("pod/blue/d", "Correct it."),
        ]
    )
    assert [(one.where, one.remedy) for one in merged] == [
        (
            ("pod/blue/web-0", "pod/blue/web-1"),
            "kubectl logs web-0 --namespace blue; likewise for the others",
        ),
        (("service/blue/a",), "kubectl get pods --selector app=a"),
        (("service/blue/b",), "kubectl get pods --selector app=c"),
        (("pod/blue/c", "pod/blue/d"), "Correct it."),
    ]


def test_only_what_was_asked_about() -> None:
    patient = healthy(
        pods=[
            pod("a", "linux-1", waiting=CRASH),
            pod("b", "windows-1", waiting=CRASH),
        ]
    )
    for text in ("linux-1", "node/linux-1", "a", "default/a", "pod/a", "po/default/a"):
        assert [one.where for one in examine(patient, places_to_check(patient, [text]))] == [
            ("pod/default/a",)
        ], text
    assert places_to_check(patient, ["b"], "default") == ["pod/default/b", "node/windows-1"]
    for text in ("nobody", "other/a", "node/a", "pod/linux-1"):
        with pytest.raises(UnknownName, match=text):
            places_to_check(patient, [text])


@pytest.mark.parametrize(
    ("remedy", "expected"),
    [
        ("transom node start linux-1", "transom node start linux-1 --name blue"),
        ("transom down, then transom up", "transom down --name blue, then transom up --name blue"),
        (
            "(transom node list); then transom down and transom up",
            "(transom node list --name blue); "
            "then transom down --name blue and transom up --name blue",
        ),
        (
            "fault ends with: transom cloud set d1 detach-error=",
            "fault ends with: transom cloud set d1 detach-error= --name blue",
        ),
        (
            "transom cloud set //a.example.net/share offline=off; or transom node start n.example.",
            "transom cloud set //a.example.net/share offline=off --name blue; "
            "or transom node start n.example --name blue.",
        ),
        (
            'transom node exec w -- "Get-HnsEndpoint | Remove-HnsEndpoint"',
            'transom node exec w --name blue -- "Get-HnsEndpoint | Remove-HnsEndpoint"',
        ),
        ("rm x && transom down --name blue", "rm x && transom down --name blue"),
        ("kubectl uncordon linux-1", "kubectl uncordon linux-1"),
    ],
)
def test_commands_of_a_remedy_name_the_cluster(remedy: str, expected: str) -> None:
    assert name_cluster(remedy, " --name blue") == expected
    assert name_cluster(remedy, "") == remedy


@pytest.mark.parametrize(
    ("place", "log", "words", "record"),
    [
        (
            "linux-1",
            "nginx: [emerg] bind() to 0.0.0.0:80 failed (98: Address already in use)",
            "its port is in use: another container of the pod listens there",
            "",
        ),
        ("linux-1", "sh: start.sh: not found", "the shell finds no command start.sh", ""),
        ("linux-1", "open /data/x: Permission denied", "its log says that access was denied", ""),
        (
            "windows-1",
            "'ls' is not recognized as an internal or external command,\noperable program",
            "cmd finds no command ls",
            "WIN-CTR-002",
        ),
        (
            "windows-1",
            "sleep-x : The term 'sleep-x' is not recognized as the name of a cmdlet, function",
            "PowerShell finds no command sleep-x",
            "WIN-CTR-002",
        ),
    ],
)
def test_the_log_of_a_container_that_fails_shows_the_cause(
    place: str, log: str, words: str, record: str
) -> None:
    crashed = pod(
        "a", place, waiting={"reason": "CrashLoopBackOff"}, last={"exitCode": 1}, restarts=3
    )
    seen = healthy(pods=[crashed], logs={("default", "a"): log})
    assert pods_with_useful_logs(seen) == [("default", "a")]
    [one] = [one for one in examine(seen) if one.where == ("pod/default/a",)]
    assert one.what == f"container c fails with exit code 1: {words}"
    assert one.record == record and one.remedy


def test_labels_that_contradict_the_kubelet_are_reported() -> None:
    wrong = node("linux-1", "linux")
    wrong["metadata"]["labels"]["kubernetes.io/os"] = "windows"
    [one] = examine(healthy(nodes=[wrong, node("windows-1")]))
    assert one.what == "its label kubernetes.io/os is windows, and its kubelet reports linux"
    assert one.remedy == "kubectl label node linux-1 kubernetes.io/os=linux --overwrite"


def test_several_default_storage_classes_are_reported() -> None:
    mark = {"storageclass.kubernetes.io/is-default-class": "true"}
    classes = [{"metadata": {"name": name, "annotations": mark}} for name in ("a", "b")]
    [one] = examine(healthy(storageclasses=classes))
    assert one.what == "2 StorageClasses are the default"
    assert one.where == ("storageclass/a", "storageclass/b")


def _restarted(restarts: int, ago: float) -> dict[str, Any]:
    last = {"exitCode": 1, "reason": "Error", "finishedAt": rfc3339(NOW - ago)}
    return pod("a", "linux-1", ready=True, phase="Running", last=last, restarts=restarts, age=900)


def test_a_container_that_runs_between_two_crashes_is_reported() -> None:
    [one] = examine(healthy(pods=[_restarted(3, 20)]))
    assert one.what == "container c fails with exit code 1"
    assert examine(healthy(pods=[_restarted(3, 600)])) == []
    assert examine(healthy(pods=[_restarted(1, 20)])) == []  # a reboot of its node
    killed = [
        event("a", "Killing", "Container c failed liveness probe, will be restarted"),
        event("a", "Unhealthy", "Liveness probe failed: HTTP probe failed with statuscode: 404"),
    ]
    [one] = examine(healthy(pods=[_restarted(1, 20)], events=killed))
    assert "is restarted: the server has no such path (HTTP 404)" in one.what


def test_an_ingress_without_a_class_in_a_cluster_without_a_default() -> None:
    """In clusters of transom, its own controller serves it."""
    made = rfc3339(NOW - 600)
    meta = {"name": "i", "namespace": "default", "creationTimestamp": made}
    snapshot = ClusterSnapshot(now=NOW, objects={"ingresses": [{"metadata": meta, "spec": {}}]})
    (found,) = check_ingresses(snapshot)
    assert found.where == ("ingress/default/i",)
    assert "it names no class" in found.what
    assert "set spec.ingressClassName" in found.remedy


@pytest.mark.parametrize(
    ("selected", "commands"),
    [
        ("wbe", ("kubectl set selector service s app=web --namespace default",)),
        ("database", ()),
    ],
)
def test_only_a_selector_that_looks_misspelt_has_a_command(
    selected: str, commands: tuple[str, ...]
) -> None:
    [one] = examine(
        healthy(
            services=[service("s", {"app": selected})],
            pods=[pod("web", "linux-1", ready=True, phase="Running")],
        )
    )
    assert one.what.startswith("no pod has the labels that it selects")
    assert one.commands == commands


@pytest.mark.parametrize(("closed", "commands"), [((81,), 1), ((80, 81), 0)])
def test_no_command_sends_to_a_port_where_nothing_listens(
    closed: tuple[int, ...], commands: int
) -> None:
    container = {"name": "c", "image": "app:1", "ports": [{"containerPort": 80}]}
    web = pod("web", "windows-1", ready=True, phase="Running", containers=[container])
    web["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    ports = [{"port": 80, "targetPort": 81}]
    found = examine(
        healthy(
            services=[service("s", {"app": "web"}, ports=ports)],
            endpoints=[endpoints("s", "10.244.2.9")],
            pods=[web],
            inside=windows_node(unheard={"default/web": closed}),
        )
    )
    [one] = [finding for finding in found if "where nothing listens" in finding.what]
    assert len(one.commands) == commands


def test_a_windows_pod_that_must_not_run_as_root_is_not_told_to_set_a_user_number() -> None:
    refused = {
        "reason": "CreateContainerConfigError",
        "message": "container has runAsNonRoot and image will run as root",
    }
    found = examine(healthy(pods=[pod("a", "windows-1", waiting=refused)]))
    [one] = [finding for finding in found if finding.where == ("pod/default/a",)]
    assert one.record == "WIN-SEC-014" and "runAsUser" not in one.remedy


@pytest.mark.parametrize(
    ("blocked", "remedy"),
    [
        ("", "Let the control plane reach TCP port 10250 of windows-1"),
        (
            'its firewall blocks it by the rule "no kubelet"',
            "Remove-NetFirewallRule -DisplayName 'no kubelet'",
        ),
        ("its firewall has no inbound rule that allows it", "-LocalPort 10250 -Action Allow"),
        ("its firewall blocks all inbound connections", "-AllowInboundRules True"),
    ],
)
def test_a_kubelet_that_does_not_answer_the_api_server(blocked: str, remedy: str) -> None:
    [one] = examine(
        healthy(
            silent_kubelets={"windows-1": "i/o timeout"},
            inside=windows_node(kubelet_blocked=blocked),
        )
    )
    assert one.where == ("node/windows-1",)
    assert one.what.endswith(blocked or "i/o timeout")
    assert remedy in one.remedy
