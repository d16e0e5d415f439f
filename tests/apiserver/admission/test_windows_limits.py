"""Warnings and rejections for pods that use features that Windows does not support."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.apiserver.admission.support import MERGE, NS, PODS, run
from tests.apiserver.harness import Api

from transom.windows.policy import WarningPolicy

APPS = "/apis/apps/v1/namespaces/default"
WINDOWS = {"kubernetes.io/os": "windows"}
IIS = "mcr.microsoft.com/windows/servercore/iis:windowsservercore-ltsc2019"


@asynccontextmanager
async def cluster(
    *, nodes: tuple[dict[str, Any], ...] | None = None, **policy: Any
) -> AsyncIterator[Api]:
    async with run(windows=WarningPolicy(**policy)) as api:
        for given in (node("linux-1", "linux"), node("win-1")) if nodes is None else nodes:
            await api.ok("POST", "/api/v1/nodes", {"metadata": given["metadata"]})
            await api.ok(
                "PATCH", f"/api/v1/nodes/{given['metadata']['name']}/status", given, media=MERGE
            )
        yield api


def node(
    name: str, os: str = "windows", build: int = 17763, runtime: str = "docker://19.3.14"
) -> dict[str, Any]:
    info = {
        "operatingSystem": os,
        "kubeletVersion": "v1.20.15",
        "containerRuntimeVersion": runtime,
        "kernelVersion": f"10.0.{build}.1697" if os == "windows" else "5.4.0",
    }
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/os": os}},
        "status": {"nodeInfo": info},
    }


def pod(
    name: str = "p",
    image: str = "example/app:1",
    container: dict[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": image, **(container or {})}], **spec},
    }


async def warnings(api: Api, method: str, target: str, body: Any, **more: Any) -> list[str]:
    answer = await api.send(method, target, body, **more)
    assert answer.status < 300, answer.body
    given = [value.decode() for name, value in answer.headers if name == b"Warning"]
    assert all(text.startswith('299 - "') and "\n" not in text for text in given)
    return [text.removeprefix('299 - "').removesuffix('"') for text in given]


async def ids(api: Api, body: Any, target: str = PODS) -> list[str]:
    return [text.partition(":")[0] for text in await warnings(api, "POST", target, body)]


@pytest.mark.windows("API-33", "WIN-POD-002")
async def test_a_warning_says_id_place_and_remedy() -> None:
    async with cluster() as api:
        assert await warnings(api, "POST", PODS, pod(nodeSelector=WINDOWS, hostNetwork=True)) == [
            "WIN-POD-002: spec.hostNetwork: hostNetwork fails with Docker. Remove hostNetwork; use "
            "a hostPort or a NodePort service, or, from 1.22, HostProcess containers. "
            "See https://v1-20.docs.kubernetes.io/docs/setup/production-environment/windows/"
            "intro-windows-in-kubernetes/"
        ]


async def test_a_warning_links_to_the_documentation_of_the_release() -> None:
    current = node("win-1", build=20348, runtime="containerd://2.1.4")
    current["status"]["nodeInfo"]["kubeletVersion"] = "v1.36.0"
    async with cluster(nodes=(current,)) as api:
        body = pod(nodeSelector=WINDOWS, hostPID=True)
        found = await warnings(api, "POST", PODS, body)
        assert [text.partition(" See ")[2] for text in found] == [
            "https://v1-36.docs.kubernetes.io/docs/concepts/windows/intro/"
        ]


REQUIRED = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {
                    "matchExpressions": [
                        {"key": "kubernetes.io/os", "operator": "In", "values": ["windows"]}
                    ]
                }
            ]
        }
    }
}


@pytest.mark.parametrize(
    "target",
    [
        {"nodeSelector": WINDOWS},
        {"nodeSelector": {"beta.kubernetes.io/os": "windows"}},
        {"nodeSelector": {"node.kubernetes.io/windows-build": "10.0.17763"}},
        {"affinity": REQUIRED},
        {"runtimeClassName": "by-selector"},
        {"tolerations": [{"key": "os", "value": "windows", "effect": "NoSchedule"}]},
        {"image": IIS, "nodeName": "win-1"},
    ],
)
async def test_each_way_to_target_windows_counts(target: dict[str, Any]) -> None:
    async with cluster() as api:
        await api.ok(
            "POST",
            "/apis/node.k8s.io/v1/runtimeclasses",
            {
                "metadata": {"name": "by-selector"},
                "handler": "docker",
                "scheduling": {"nodeSelector": WINDOWS},
            },
        )
        assert await ids(api, pod(hostPID=True, **target)) == ["WIN-POD-004"]


async def test_the_runtime_class_of_a_template_is_looked_up() -> None:
    async with cluster() as api:
        await api.ok(
            "POST",
            "/apis/node.k8s.io/v1/runtimeclasses",
            {
                "metadata": {"name": "wcow"},
                "handler": "docker",
                "scheduling": {"nodeSelector": WINDOWS},
            },
        )
        template = {
            "metadata": {"labels": {"a": "b"}},
            "spec": pod(hostIPC=True, runtimeClassName="wcow")["spec"],
        }
        deployment = {
            "metadata": {"name": "d"},
            "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template},
        }
        assert await ids(api, deployment, f"{APPS}/deployments") == ["WIN-POD-005"]


@pytest.mark.windows("WIN-API-004", "WIN-API-005")
async def test_fields_that_the_release_drops_are_reported() -> None:
    async with cluster() as api:
        assert await ids(api, pod(os={"name": "windows"}, hostPID=True, nodeName="win-1")) == [
            "WIN-POD-004",
            "WIN-API-004",
        ]
        options = {"windowsOptions": {"hostProcess": True, "runAsUserName": "x"}}
        assert await ids(api, pod("q", nodeSelector=WINDOWS, securityContext=options)) == [
            "WIN-API-005"
        ]


@pytest.mark.windows("WIN-POD-013")
async def test_only_containers_that_join_a_pod_are_reported() -> None:
    async with cluster() as api:
        await api.ok("POST", PODS, owned(pod(nodeSelector=WINDOWS, hostPID=True)))
        made = await api.ok("GET", f"{PODS}/p")
        made["spec"]["ephemeralContainers"] = [
            {"name": "d", "image": "example/tools", "targetContainerName": "c"}
        ]
        given = await warnings(api, "PUT", f"{PODS}/p/ephemeralcontainers", made)
        assert [text.split(": ")[:2] for text in given] == [
            ["WIN-POD-013", "spec.ephemeralContainers[0].targetContainerName"]
        ]


LINUX_WAYS = {
    "hostNetwork": True,
    "hostPID": True,
    "volumes": [{"name": "n", "nfs": {"server": "s", "path": "/"}}],
    "container": {
        "command": ["sh", "-c", "true"],
        "securityContext": {"privileged": True, "runAsUser": 1},
    },
}


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"image": "nginx:alpine"},
        {"nodeSelector": {"kubernetes.io/os": "linux"}, "image": IIS},
        {"nodeSelector": {"disktype": "ssd"}},
        {"tolerations": [{"operator": "Exists"}]},
        {
            "tolerations": [{"key": "os", "value": "windows", "effect": "NoSchedule"}],
            "image": "nginx:alpine",
        },
        {
            "affinity": {
                "nodeAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {
                            "weight": 1,
                            "preference": REQUIRED["nodeAffinity"][
                                "requiredDuringSchedulingIgnoredDuringExecution"
                            ]["nodeSelectorTerms"][0],
                        }
                    ]
                }
            }
        },
    ],
)
async def test_pods_for_linux_give_none(spec: dict[str, Any]) -> None:
    async with cluster(reject=("WIN-*",)) as api:
        assert await ids(api, pod(**{**LINUX_WAYS, **spec})) == []


async def test_a_plain_pod_for_windows_with_all_its_defaults_gives_none() -> None:
    async with cluster() as api:
        volumes = [
            {"name": "c", "configMap": {"name": "x"}},
            {"name": "s", "secret": {"secretName": "x"}},
            {"name": "e", "emptyDir": {}},
            {"name": "d", "downwardAPI": {}},
            {"name": "p", "projected": {"sources": []}},
            {"name": "h", "hostPath": {"path": "C:\\temp"}},
            {"name": "v", "persistentVolumeClaim": {"claimName": "x"}},
        ]
        probe = {"httpGet": {"path": "/", "port": 80}}
        made = pod(
            image=IIS, container={"livenessProbe": probe}, nodeSelector=WINDOWS, volumes=volumes
        )
        assert await ids(api, made) == []


TEMPLATED = [
    (f"{APPS}/deployments", "spec.template"),
    (f"{APPS}/replicasets", "spec.template"),
    (f"{APPS}/daemonsets", "spec.template"),
    (f"{APPS}/statefulsets", "spec.template"),
    (f"{NS}/replicationcontrollers", "spec.template"),
    (f"{NS}/podtemplates", "template"),
    ("/apis/batch/v1/namespaces/default/jobs", "spec.template"),
    ("/apis/batch/v1beta1/namespaces/default/cronjobs", "spec.jobTemplate.spec.template"),
]


@pytest.mark.parametrize(
    ("target", "place"), TEMPLATED, ids=[target.rpartition("/")[2] for target, _ in TEMPLATED]
)
async def test_every_template_is_looked_at(target: str, place: str) -> None:
    kind = target.rpartition("/")[2]
    template: dict[str, Any] = {
        "metadata": {"labels": {"a": "b"}},
        "spec": pod(nodeSelector=WINDOWS, hostPID=True)["spec"],
    }
    spec: dict[str, Any] = {"template": template}
    if kind in ("jobs", "cronjobs"):
        template["spec"]["restartPolicy"] = "Never"
    else:
        spec["selector"] = (
            {"a": "b"} if kind == "replicationcontrollers" else {"matchLabels": {"a": "b"}}
        )
    if kind == "cronjobs":
        spec = {"schedule": "* * * * *", "jobTemplate": {"spec": spec}}
    made = {
        "metadata": {"name": "x"},
        **({"template": template} if kind == "podtemplates" else {"spec": spec}),
    }

    async with cluster() as api:
        given = await warnings(api, "POST", target, made)
        assert [text.split(": ")[:2] for text in given] == [
            ["WIN-POD-004", f"{place}.spec.hostPID"]
        ]


async def test_updates_warn_except_those_of_status_and_of_deleted_objects() -> None:
    async with cluster() as api:
        made = pod(nodeSelector=WINDOWS, hostPID=True)
        made["metadata"]["finalizers"] = ["example.com/wait"]
        await api.ok("POST", PODS, made)
        label = {"metadata": {"labels": {"a": "b"}}}
        assert len(await warnings(api, "PATCH", f"{PODS}/p", label, media=MERGE)) == 1
        assert (
            await warnings(
                api, "PATCH", f"{PODS}/p/status", {"status": {"phase": "Failed"}}, media=MERGE
            )
            == []
        )
        await api.ok("DELETE", f"{PODS}/p?gracePeriodSeconds=0")
        assert (
            await warnings(
                api, "PATCH", f"{PODS}/p", {"metadata": {"finalizers": None}}, media=MERGE
            )
            == []
        )


def owned(made: dict[str, Any]) -> dict[str, Any]:
    made["metadata"]["ownerReferences"] = [
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "1", "controller": True}
    ]
    return made


async def test_what_controllers_make_is_not_warned_of_but_refused_all_the_same() -> None:
    async with cluster(reject=("WIN-POD-005",)) as api:
        assert await ids(api, owned(pod(nodeSelector=WINDOWS, hostPID=True))) == []
        status, answer = await api.call(
            "POST", PODS, owned(pod("q", nodeSelector=WINDOWS, hostIPC=True))
        )
        assert (status, answer["reason"]) == (403, "Forbidden")


@pytest.mark.parametrize("nodes", [(), (node("linux-1", "linux"),)])
async def test_without_windows_nodes_limits_of_all_builds_are_reported(
    nodes: tuple[dict[str, Any], ...],
) -> None:
    async with cluster(nodes=nodes) as api:
        assert await ids(api, pod(nodeSelector=WINDOWS, hostPID=True)) == ["WIN-POD-004"]


async def test_the_nodes_there_are_now_decide() -> None:
    async with cluster() as api:
        made = {"nodeSelector": WINDOWS, "hostNetwork": True, "image": IIS}
        assert await ids(api, pod("a", **made)) == ["WIN-POD-002"]
        await api.ok("DELETE", "/api/v1/nodes/win-1")
        newer = node("win-2", build=20348, runtime="containerd://1.4.4")
        await api.ok("POST", "/api/v1/nodes", {"metadata": newer["metadata"]})
        await api.ok("PATCH", "/api/v1/nodes/win-2/status", newer, media=MERGE)
        assert await ids(api, pod("b", **made)) == ["WIN-POD-003", "WIN-OS-006"]


async def test_a_selector_narrows_the_nodes() -> None:
    newer = node("win-2", runtime="containerd://1.4.4")
    newer["metadata"]["labels"]["pool"] = "new"
    async with cluster(nodes=(node("win-1"), newer)) as api:
        made = {"hostNetwork": True, "nodeSelector": {**WINDOWS, "pool": "new"}}
        assert await ids(api, pod(**made)) == ["WIN-POD-003"]


@pytest.mark.parametrize(
    ("expected", "made"),
    [
        (
            ["WIN-POD-001"],
            {
                "nodeSelector": WINDOWS,
                "image": IIS,
                "initContainers": [{"name": "i", "image": "busybox"}],
            },
        ),
        (["WIN-OS-007"], {"nodeSelector": WINDOWS, "image": "nginx:1.19"}),
        (
            ["WIN-OS-005"],
            {"nodeSelector": WINDOWS, "image": "mcr.microsoft.com/windows/nanoserver:ltsc2022"},
        ),
        (["WIN-POD-010"], {"image": IIS}),
        (
            ["WIN-CTR-005"],
            {"nodeSelector": WINDOWS, "container": {"env": [{"name": "A"}, {"name": "a"}]}},
        ),
        (
            ["WIN-STO-003"],
            {
                "nodeSelector": WINDOWS,
                "volumes": [{"name": "s", "secret": {"secretName": "x"}}],
                "container": {"volumeMounts": [{"name": "s", "mountPath": "/s", "subPath": "key"}]},
            },
        ),
        (
            ["WIN-SEC-013"],
            {
                "nodeSelector": WINDOWS,
                "securityContext": {
                    "runAsNonRoot": True,
                    "windowsOptions": {"runAsUserName": "ContainerAdministrator"},
                },
            },
        ),
        (
            ["WIN-SEC-001"],
            {
                "nodeSelector": WINDOWS,
                "container": {"securityContext": {"privileged": True}},
                "initContainers": [
                    {"name": "i", "image": "example/i", "securityContext": {"privileged": True}}
                ],
            },
        ),
    ],
)
async def test_what_no_single_field_shows(expected: list[str], made: dict[str, Any]) -> None:
    async with cluster() as api:
        assert await ids(api, pod(**made)) == expected


async def test_chosen_ids_are_refused_and_the_others_warned_of() -> None:
    async with cluster(reject=("WIN-STO-*",)) as api:
        made = pod(
            nodeSelector=WINDOWS,
            hostPID=True,
            volumes=[{"name": "n", "nfs": {"server": "s", "path": "/"}}],
        )
        answer = await api.send("POST", PODS, made)
        assert answer.status == 403
        text = (
            b'pods \\"p\\" is forbidden: WIN-STO-010: spec.volumes[0].nfs: NFS volumes cannot be '
            b"mounted. Use SMB"
        )
        assert text in answer.body
        assert next(value for name, value in answer.headers if name == b"Warning").startswith(
            b'299 - "WIN-POD-004: '
        )
        assert (await api.call("POST", PODS, pod(nodeSelector=WINDOWS, hostPID=True)))[0] == 201


async def test_a_refused_field_cannot_come_by_an_update() -> None:
    async with cluster(reject=("WIN-POD-004",)) as api:
        target = f"{NS}/podtemplates"
        await api.ok(
            "POST",
            target,
            {"metadata": {"name": "t"}, "template": {"spec": pod(nodeSelector=WINDOWS)["spec"]}},
        )
        assert (
            await api.call(
                "PATCH", f"{target}/t", {"template": {"spec": {"hostPID": True}}}, media=MERGE
            )
        )[0] == 403


async def test_warnings_can_be_turned_off() -> None:
    async with cluster(warn=False, reject=("WIN-POD-005",)) as api:
        assert await ids(api, pod(nodeSelector=WINDOWS, hostPID=True)) == []
        assert (await api.call("POST", PODS, pod("q", nodeSelector=WINDOWS, hostIPC=True)))[
            0
        ] == 403


SERVICE = {
    "metadata": {"name": "web"},
    "spec": {
        "selector": {"app": "web"},
        "ports": [{"port": 80}],
        "sessionAffinity": "ClientIP",
        "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}},
    },
}


def labelled(os: str) -> dict[str, Any]:
    made = pod(nodeSelector={"kubernetes.io/os": os})
    made["metadata"]["labels"] = {"app": "web"}
    return made


async def test_services_of_windows_pods_are_looked_at() -> None:
    async with cluster() as api:
        await api.ok("POST", PODS, labelled("windows"))
        assert await ids(api, SERVICE, f"{NS}/services") == ["WIN-SVC-002", "WIN-SVC-004"]


async def test_services_created_first_are_reported_with_their_pods() -> None:
    async with cluster() as api:
        assert await ids(api, SERVICE, f"{NS}/services") == []
        given = await warnings(api, "POST", PODS, labelled("windows"))
        assert [text.split(": ")[:3] for text in given] == [
            ["WIN-SVC-002", "Service web", "spec.sessionAffinity"],
            ["WIN-SVC-004", "Service web", "spec.sessionAffinityConfig.clientIP.timeoutSeconds"],
        ]


async def test_services_of_linux_pods_give_no_warnings() -> None:
    async with cluster(reject=("WIN-*",)) as api:
        await api.ok("POST", PODS, labelled("linux"))
        assert await ids(api, SERVICE, f"{NS}/services") == []


async def test_without_the_option_nothing_is_reported() -> None:
    async with run() as api:
        assert await ids(api, pod(nodeSelector=WINDOWS, hostPID=True)) == []
