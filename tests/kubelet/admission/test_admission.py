from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from transom.kubelet import os_linux, os_windows
from transom.kubelet.admission import PodAdmission
from transom.kubelet.config import KubeletConfig
from transom.kubelet.failures import PodRejection
from transom.machinery.objects import Object
from transom.runtime.api import RuntimeVersion

NODE: Object = {
    "metadata": {"name": "n1", "labels": {"zone": "a", "size": "5"}},
    "spec": {"taints": [{"key": "gone", "effect": "NoExecute"}]},
    "status": {
        "allocatable": {
            "cpu": "1",
            "memory": "1Gi",
            "pods": "3",
            "ephemeral-storage": "10Gi",
            "ex.com/gpu": "1",
        }
    },
}
PROFILES = b"docker-default (enforce)\n/usr/bin/man (enforce)\n"


class Files:
    def exists(self, path: str) -> bool:
        return True

    def read(self, path: str, offset: int = 0, size: int = -1) -> bytes:
        return PROFILES[offset:] if size < 0 else PROFILES[offset : offset + size]


class Events:
    def __init__(self) -> None:
        self.recorded: list[tuple[str, str, str]] = []

    def event(self, about: Object, kind: str, reason: str, message: str) -> None:
        self.recorded.append((about["metadata"]["name"], reason, message))


def pod(name: str, requests: dict[str, str] | None = None, **spec: Any) -> Object:
    container = {"name": "c", "resources": {"requests": requests} if requests else {}}
    return {
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"containers": [container], **spec},
    }


def admission(
    version: str = "v1.20.15",
    evicting: Callable[[Object], PodRejection | None] = lambda pod: None,
    windows: bool = False,
    docker: str = "19.3.14",
    **settings: Any,
) -> tuple[PodAdmission, Events, list[tuple[str, str, str]]]:
    events, killed = Events(), []

    async def kill(victim: Object, reason: str, message: str, grace: int | None) -> None:
        killed.append((victim["metadata"]["name"], reason, message))

    env: Any = SimpleNamespace(
        config=KubeletConfig(node_name="n1", node_ip="10.0.0.1", version=version, **settings),
        os=os_windows.RULES if windows else os_linux.RULES,
        events=events,
        host=SimpleNamespace(files=Files()),
        runtime=SimpleNamespace(version=RuntimeVersion("docker", docker)),
    )
    return PodAdmission(env, lambda: NODE, kill, evicting), events, killed


def affinity(**term: Any) -> Object:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {"affinity": {"nodeAffinity": required}}


def expression(key: str, operator: str, *values: str) -> list[Object]:
    return [{"key": key, "operator": operator, "values": list(values)}]


def port(number: int, address: str = "", protocol: str = "TCP") -> Object:
    return {
        "containers": [
            {"name": "c", "ports": [{"hostPort": number, "hostIP": address, "protocol": protocol}]}
        ]
    }


SYSCTL = {"securityContext": {"sysctls": [{"name": "net.ipv4.tcp_syncookies", "value": "1"}]}}
UNSAFE = {"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}}
CASES: list[tuple[Object, list[Object], PodRejection | None]] = [
    (
        pod("a", {"cpu": "2"}),
        [],
        PodRejection(
            "OutOfcpu",
            "Node didn't have enough resource: cpu, requested: 2000, used: 0, capacity: 1000",
        ),
    ),
    (
        pod("a", {"memory": "1Gi"}),
        [pod("b", {"memory": "1Mi"})],
        PodRejection(
            "OutOfmemory",
            "Node didn't have enough resource: memory, requested: 1073741824, used: 1048576, "
            "capacity: 1073741824",
        ),
    ),
    (
        pod("a"),
        [pod("b"), pod("c"), pod("d")],
        PodRejection(
            "OutOfpods",
            "Node didn't have enough resource: pods, requested: 1, used: 3, capacity: 3",
        ),
    ),
    (
        pod("a", {"ex.com/gpu": "1"}),
        [pod("b", {"ex.com/gpu": "1"})],
        PodRejection(
            "OutOfex.com/gpu",
            "Node didn't have enough resource: ex.com/gpu, requested: 1, used: 1, capacity: 1",
        ),
    ),
    (pod("a", {"ex.com/unknown": "1"}), [], None),
    (
        {
            **pod("a", {"ex.com/gpu": "1", "deviceclass.resource.kubernetes.io/gpu": "1"}),
            "status": {
                "extendedResourceClaimStatus": {
                    "requestMappings": [
                        {"containerName": "c", "resourceName": name, "requestName": "r"}
                        for name in ("ex.com/gpu", "deviceclass.resource.kubernetes.io/gpu")
                    ]
                }
            },
        },
        [pod("b", {"ex.com/gpu": "1"})],
        None,
    ),
    (
        pod("a", {"hugepages-2Mi": "2Mi"}),
        [],
        PodRejection(
            "OutOfhugepages-2Mi",
            (
                "Node didn't have enough resource: hugepages-2Mi, requested: 2097152, used: 0, "
                "capacity: 0"
            ),
        ),
    ),
    (
        pod("a", {"cpu": "600m"}, overhead={"cpu": "500m"}),
        [],
        PodRejection(
            "OutOfcpu",
            "Node didn't have enough resource: cpu, requested: 1100, used: 0, capacity: 1000",
        ),
    ),
    (pod("a", {"cpu": "600m"}), [pod("a", {"cpu": "600m"})], None),
    (
        pod("a", nodeSelector={"zone": "b"}),
        [],
        PodRejection("NodeAffinity", "Predicate NodeAffinity failed"),
    ),
    (pod("a", nodeSelector={"zone": "a"}), [], None),
    (pod("a", **affinity(matchExpressions=expression("size", "Gt", "4"))), [], None),
    (
        pod("a", **affinity(matchExpressions=expression("zone", "NotIn", "a"))),
        [],
        PodRejection("NodeAffinity", "Predicate NodeAffinity failed"),
    ),
    (pod("a", **affinity(matchFields=expression("metadata.name", "In", "n1"))), [], None),
    (pod("a", **affinity()), [], PodRejection("NodeAffinity", "Predicate NodeAffinity failed")),
    (pod("a", nodeName="n2"), [], PodRejection("NodeName", "Predicate NodeName failed")),
    (
        pod("a", **port(80)),
        [pod("b", **port(80))],
        PodRejection("NodePorts", "Predicate NodePorts failed"),
    ),
    (pod("a", **port(80, "10.0.0.1")), [pod("b", **port(80, "10.0.0.2"))], None),
    (
        pod("a", **port(80, "10.0.0.1")),
        [pod("b", **port(80))],
        PodRejection("NodePorts", "Predicate NodePorts failed"),
    ),
    (pod("a", **port(80, protocol="UDP")), [pod("b", **port(80))], None),
    (
        pod("a", **UNSAFE),
        [],
        PodRejection("SysctlForbidden", 'forbidden sysctl: "kernel.msgmax" not whitelisted'),
    ),
    (pod("a", **SYSCTL), [], None),
    (
        pod("a", hostNetwork=True, **SYSCTL),
        [],
        PodRejection(
            "SysctlForbidden",
            'forbidden sysctl: "net.ipv4.tcp_syncookies" not allowed with host net enabled',
        ),
    ),
]


@pytest.mark.parametrize(("new", "others", "verdict"), CASES)
def test_predicates(new: Object, others: list[Object], verdict: PodRejection | None) -> None:
    assert admission()[0].admit(new, others) == verdict


def test_unsafe_sysctls_can_be_allowed() -> None:
    assert (
        admission(allowed_unsafe_sysctls=("kernel.msg*",))[0].admit(pod("a", **UNSAFE), []) is None
    )
    with pytest.raises(
        ValueError, match=r'the sysctl "vm\.swappiness" are not known to be namespaced'
    ):
        admission(allowed_unsafe_sysctls=("vm.swappiness",))


def test_the_eviction_manager_decides_first() -> None:
    no = PodRejection("Evicted", "The node had condition: [MemoryPressure]. ")
    assert admission(evicting=lambda pod: no)[0].admit(pod("a", {"cpu": "9"}), []) == no


@pytest.mark.windows("W-POD-15", "WIN-POD-115")
@pytest.mark.parametrize(
    ("version", "windows", "refused"),
    [
        ("v1.33.0", True, False),
        ("v1.34.0", True, True),
        ("v1.36.4", True, True),
        ("v1.36.4", False, False),
    ],
)
def test_windows_rejects_resources_of_pods(version: str, windows: bool, refused: bool) -> None:
    tolerating = {"tolerations": [{"operator": "Exists"}]}
    admit = admission(version, windows=windows)[0].admit
    expected = PodRejection(
        "PodLevelResourcesNotSupported", "pod-level resources are not supported on Windows"
    )
    asking = pod("a", resources={"limits": {"cpu": "1"}}, **tolerating)
    assert admit(asking, []) == (expected if refused else None)
    assert admit(pod("b", resources={}, **tolerating), []) is None


def test_later_kubelets_look_at_the_operating_system_and_at_taints() -> None:
    other = pod("a", os={"name": "windows"})
    tolerating = {"tolerations": [{"operator": "Exists"}]}
    assert admission()[0].admit(other, []) is None
    late, _, _ = admission("v1.25.0")
    assert late.admit(other, []) == PodRejection(
        "PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS"
    )
    labelled = pod("a", **tolerating)
    labelled["metadata"]["labels"] = {"kubernetes.io/os": "windows"}
    refusal = late.admit(labelled, [])
    assert refusal is not None and refusal.reason == "PodOSSelectorNodeLabelDoesNotMatch"
    assert admission("v1.25.0", windows=True)[0].admit(labelled, []) is None
    assert late.admit(pod("b"), []) == PodRejection(
        "TaintToleration", "Predicate TaintToleration failed"
    )
    assert late.admit(pod("b", **tolerating), []) is None


async def test_a_critical_pod_takes_the_place_of_the_fewest() -> None:
    judge, events, killed = admission()
    small = pod("small", {"cpu": "200m"}, priority=0)
    large = pod("large", {"cpu": "800m"}, priority=0)
    critical = pod("critical", {"cpu": "500m"}, priority=2_000_000_000)
    assert judge.admit(critical, [small, large]) is None
    await asyncio.sleep(0)
    recorded = ("large", "Preempting", "Preempted in order to admit critical pod")
    assert killed == events.recorded == [recorded]
    assert judge.admit(pod("huge", {"cpu": "2"}, priority=2_000_000_000), [small]) == PodRejection(
        "UnexpectedAdmissionError",
        "Unexpected error while attempting to recover from admission failure: "
        "preemption: error finding a set of pods "
        "to preempt: no set of running pods found to reclaim resources: [(res: cpu, q: "
        "1000), ]",
    )
    misplaced = pod("misplaced", {"cpu": "2"}, priority=2_000_000_000, nodeName="n2")
    assert judge.admit(misplaced, [large]) == PodRejection("NodeName", "Predicate NodeName failed")


def test_what_the_machine_can_enforce() -> None:
    judge, _, _ = admission()
    annotation = "container.apparmor.security.beta.kubernetes.io/c"
    asking = pod("a")
    asking["metadata"]["annotations"] = {annotation: "localhost/mine"}
    assert judge.can_run(asking) == PodRejection(
        "AppArmor", 'Cannot enforce AppArmor: profile "mine" is not loaded'
    )
    assert admission(windows=True)[0].can_run(asking) is None
    assert judge.can_run({**asking, "status": {"phase": "Running"}}) is None
    asking["metadata"]["annotations"] = {annotation: "localhost//usr/bin/man"}
    assert judge.can_run(asking) is None

    mounting = pod("a")
    mounting["spec"]["containers"][0]["securityContext"] = {"procMount": "Unmasked"}
    assert judge.can_run(mounting) is None
    assert admission(docker="18.3.1")[0].can_run(mounting) == PodRejection(
        "ProcMount",
        (
            'Cannot enforce ProcMount: docker runtime API version "1.37.0" must be greater than '
            "or equal to 1.38"
        ),
    )
