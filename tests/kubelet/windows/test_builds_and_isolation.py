"""Images and the builds of Windows that they are for: pulls, pause images, Hyper-V isolation, Linux
images.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.kubelet.conftest import Node

from transom.runtime.sim.catalogue import catalogue_with
from transom.windows.builds import BUILDS

from .windows_pods import (
    BOTH,
    WAIT,
    container,
    in_runtime,
    meant,
    printed,
    recorded,
    running,
    state,
    state_reason,
    states,
    until,
    waiting,
)

flavours = pytest.mark.parametrize("flavour", BOTH)
MISMATCH = "The container operating system does not match the host operating system."
ISOLATED = {"annotations": {"experimental.windows.kubernetes.io/isolation-type": "hyperv"}}
GATE = {"feature_gates": {"HyperVContainer": True}}
# Of our own making: a list without the node's build, single images of an older and of a newer
# build.
OWN = catalogue_with(
    """
images:
- {name: example.com/new-list, windows: [19041, 19042], userland: servercore}
- {name: example.com/old-list, windows: [17134], userland: servercore}
- {name: example.com/old, windows: [17134], manifest: single, userland: servercore}
- {name: example.com/new, windows: [19041], manifest: single, userland: servercore}
- {name: example.com/old-pause, windows: [17134], manifest: single, userland: nanoserver, program: pause}
""",
    "own",
)


def on(build: int) -> dict[str, Any]:
    return {"machine": {"build": BUILDS[build]}}


@pytest.mark.windows("OS-25", "OS-29", "WIN-OS-005", "WIN-OS-006")
@pytest.mark.parametrize(
    ("flavour", "text"),
    [
        (
            "docker",
            "rpc error: code = Unknown desc = no matching manifest for windows/amd64 "
            "10.0.17763 in the manifest list "
            "entries",
        ),
        (
            "containerd",
            "rpc error: code = NotFound desc = failed to pull and unpack image "
            '"example.com/new-list:latest": no '
            "match for platform in manifest: not found",
        ),
    ],
)
async def test_a_list_without_the_nodes_build_cannot_be_pulled(
    node: Any, flavour: str, text: str
) -> None:
    async with node("windows", flavour=flavour, runtime={"catalogue": OWN}) as node:
        await node.create("p", containers=[container(image="example.com/new-list")])
        assert await waiting(node, "ErrImagePull") == text
        assert (
            await waiting(node, "ImagePullBackOff")
            == 'Back-off pulling image "example.com/new-list"'
        )
        failed = await recorded(node, "Failed")
        assert failed[:2] == [
            f'Failed to pull image "example.com/new-list": {text}',
            "Error: ErrImagePull",
        ]
        assert (await node.pod("p"))["status"]["phase"] == "Pending"


@pytest.mark.windows(
    "OS-25", "OS-29", "OS-30", "WIN-OS-004", "WIN-OS-008", "TRB-107", "TRB-108", "TRB-109"
)
@pytest.mark.parametrize("image", ["example.com/old", "mcr.microsoft.com/windows/servercore:1803"])
@flavours
async def test_a_container_of_another_build_does_not_start(
    node: Any, flavour: str, image: str
) -> None:
    async with node("windows", flavour=flavour, runtime={"catalogue": OWN}) as node:
        await node.create("p", restartPolicy="Never", containers=[container(image=image)])
        pod = await until(
            node,
            "p",
            lambda pod: pod["status"]["phase"] != "Pending" or "ErrImage" in str(pod["status"]),
        )
        # a list of the one build, in which containerd looks
        if image.startswith("mcr.") and flavour == "containerd":
            assert "no match for platform in manifest" in state(pod)["waiting"]["message"]
            return
        end = state(pod)["terminated"]
        identity = in_runtime(node, pod).id
        assert (end["exitCode"], end["reason"]) == (
            128,
            {"docker": "ContainerCannotRun", "containerd": "StartError"}[flavour],
        )
        if flavour == "docker":
            assert end["message"].startswith(
                f"hcsshim::CreateComputeSystem {identity}: {MISMATCH}\n(extra info: {{"
            )
        else:
            assert end["message"] == (
                f"failed to create containerd task: hcs::CreateComputeSystem {identity}: "
                f"{MISMATCH}: unknown"
            )
        assert MISMATCH in (await recorded(node, "Failed"))[0]


@pytest.mark.windows("OS-25", "WIN-OS-004")
async def test_docker_does_not_take_an_image_of_a_later_build(node: Any) -> None:
    async with node("windows", runtime={"catalogue": OWN}) as node:
        await node.create("p", containers=[container(image="example.com/new")])
        text = await waiting(node, "ErrImagePull")
        assert text.endswith(
            "a Windows version 10.0.19041-based image is incompatible with a 10.0.17763 host"
        )


@pytest.mark.windows("OS-20", "OS-25")
@pytest.mark.parametrize("build", [17763, 18362, 18363, 19041, 19042, 20348])
async def test_the_image_of_a_nodes_own_build_runs(node: Any, build: int) -> None:
    async with node("windows", **on(build)) as node:
        image = f"mcr.microsoft.com/windows/servercore:{BUILDS[build].tags[0]}"
        await node.create("p", containers=[container(image=image)])
        pod = await running(node)
        assert f"10.0.{build}" in await printed(node, pod, "ver")


@pytest.mark.windows("OS-29")
@pytest.mark.parametrize(
    ("build", "flavour", "version", "runs"),
    [
        (25398, "containerd", "1.7.0", True),
        (25398, "containerd", "1.4.3", False),
        (20348, "containerd", "1.7.0", True),
    ],
)
async def test_new_hosts_take_somewhat_older_images(
    node: Any, build: int, flavour: str, version: str, runs: bool
) -> None:
    settings = (
        on(build) | {"pod_infra_image": "registry.k8s.io/pause:3.10.2"}
        if build == 26100
        else on(build)
    )
    images = catalogue_with(
        "images: [{name: example.com/pause, windows: [20348, 25398], program: pause}]", "own"
    )
    async with node(
        "windows",
        flavour=flavour,
        runtime={"version": version, "catalogue": images},
        **settings,
        pod_infra_image="example.com/pause",
    ) as node:
        await node.create(
            "p", containers=[container(image="mcr.microsoft.com/windows/servercore:ltsc2022")]
        )
        if runs:
            await running(node)
        else:
            assert "no match for platform" in await waiting(node, "ErrImagePull")


@pytest.mark.windows("OS-11", "WIN-OS-007", "WIN-POD-010")
@pytest.mark.parametrize(
    ("flavour", "image", "text"),
    [
        (
            "docker",
            "example.com/linux-app",
            'image operating system "linux" cannot be used on this platform',
        ),
        (
            "docker",
            "nginx:1.19",
            "no matching manifest for windows/amd64 10.0.17763 in the manifest list entries",
        ),
        ("containerd", "nginx:1.19", "no match for platform in manifest: not found"),
        ("containerd", "example.com/linux-app", "hcsshim::ImportLayer failed in Win32"),
    ],
)
async def test_linux_containers_do_not_run_on_windows_nodes(
    node: Any, flavour: str, image: str, text: str
) -> None:
    async with node("windows", flavour=flavour) as node:
        await node.create("p", containers=[{"name": "c", "image": image}])
        assert text in await waiting(node, "ErrImagePull")


@pytest.mark.windows("OS-11", "POD-04", "WIN-POD-001")
async def test_windows_containers_do_not_run_on_linux_nodes(node: Any) -> None:
    async with node("linux") as node:
        await node.create("p", containers=[container()])
        text = await waiting(node, "ErrImagePull")
        assert "no matching manifest for linux/amd64" in text


@pytest.mark.windows("POD-04", "WIN-POD-001")
@flavours
async def test_windows_and_linux_containers_may_not_be_deployed_in_the_same_pod(
    node: Any, flavour: str
) -> None:
    async with node("windows", flavour=flavour) as node:
        await node.create(
            "p",
            containers=[
                container(),
                {"name": "linux", "image": "busybox:1.32", "command": ["sleep", "9"]},
            ],
        )
        await node.settle(60)
        pod = await node.pod("p")
        assert pod["status"]["phase"] == "Pending"
        assert "running" in state(pod) and state(pod, "linux")["waiting"]["reason"] in (
            "ErrImagePull",
            "ImagePullBackOff",
        )
        assert [s["ready"] for s in states(pod)] == [True, False]
        assert {c["type"]: c["status"] for c in pod["status"]["conditions"]}["Ready"] == "False"


# ---- the pause image ----


@pytest.mark.windows("RT-01", "RT-15", "TRB-111", "TRB-36")
@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("mcr.microsoft.com/oss/kubernetes/pause:1.4.1", "v1.20.15"),
        ("mcr.microsoft.com/k8s/core/pause:1.2.0", "v1.14.10"),
    ],
)
async def test_the_pause_image_is_pulled_first_and_shown_on_the_node(
    node: Any, image: str, version: str
) -> None:
    async with node("windows", pod_infra_image=image, version=version) as node:
        await node.create("p", containers=[container()])
        await running(node)
        names = [name for row in node.runtime.images() for name in row.tags]
        assert names[0] == image and len(names) == 2
        await node.settle(30)
        shown = (await node.client.get(_nodes(), "", "node1"))["status"]["images"]
        assert image in [name for row in shown for name in row["names"]]
        assert [text for text in await recorded(node, "Pulling") if "pause" in text] == []


def _nodes() -> Any:
    from transom.client.resources import NODES

    return NODES


@pytest.mark.windows("RT-01", "TRB-36", "TRB-107", "WIN-NODE-008")
@pytest.mark.parametrize(
    ("flavour", "text"),
    [
        (
            "docker",
            'rpc error: code = Unknown desc = failed pulling image "k8s.gcr.io/pause:3.2": '
            "no matching manifest for "
            "windows/amd64 10.0.17763 in the manifest list entries",
        ),
        (
            "containerd",
            "rpc error: code = NotFound desc = failed to get sandbox image "
            '"k8s.gcr.io/pause:3.2": failed to pull '
            'image "k8s.gcr.io/pause:3.2": failed to pull and unpack image '
            '"k8s.gcr.io/pause:3.2": no match for platform in '
            "manifest: not found",
        ),
    ],
)
async def test_the_kubelets_default_pause_image_is_for_linux_alone(
    node: Any, flavour: str, text: str
) -> None:
    async with node("windows", flavour=flavour, pod_infra_image="k8s.gcr.io/pause:3.2") as node:
        await node.create("p", containers=[container()])
        await node.settle(20)
        pod = await node.pod("p")
        assert state(pod) == {"waiting": {"reason": "ContainerCreating"}}
        messages = await recorded(node, "FailedCreatePodSandBox")
        assert messages[0] == f"Failed to create pod sandbox: {text}"


@pytest.mark.windows("TRB-107", "OS-25", "WIN-OS-004")
@flavours
async def test_a_pause_image_of_another_build_keeps_pods_in_container_creating(
    node: Any, flavour: str
) -> None:
    async with node(
        "windows",
        flavour=flavour,
        pod_infra_image="example.com/old-pause",
        runtime={"catalogue": OWN},
    ) as node:
        await node.create("p", containers=[container()])
        await node.settle(20)
        assert state(await node.pod("p")) == {"waiting": {"reason": "ContainerCreating"}}
        [text, *_] = await recorded(node, "FailedCreatePodSandBox")
        if flavour == "docker":
            assert text.startswith(
                "Failed to create pod sandbox: rpc error: code = Unknown desc = failed to "
                'start sandbox container for pod "p": '
                "Error response from daemon: hcsshim::CreateComputeSystem "
            )
            assert f"{MISMATCH}\n(extra info: {{" in text
            assert "Pod sandbox changed, it will be killed and re-created." in await recorded(
                node, "SandboxChanged"
            )
        else:
            assert "failed to create containerd task: hcs::CreateComputeSystem " in text
            assert text.endswith(f"{MISMATCH}: unknown")


@pytest.mark.windows("OS-20")
async def test_a_node_of_windows_server_2022_needs_a_newer_pause_image(node: Any) -> None:
    async with node(
        "windows", **on(20348), pod_infra_image="mcr.microsoft.com/oss/kubernetes/pause:1.4.1"
    ) as node:
        await node.create(
            "p", containers=[container(image="mcr.microsoft.com/windows/servercore:ltsc2022")]
        )
        await node.settle(20)
        assert MISMATCH in (await recorded(node, "FailedCreatePodSandBox"))[0]


# ---- Hyper-V isolation ----


@pytest.mark.windows("OS-08", "OS-09", "OS-31", "ROAD-13", "ROAD-14", "WIN-OS-009")
@pytest.mark.parametrize(
    "settings",
    [
        {"version": "v1.14.10"},
        {"version": "v1.16.15", "feature_gates": {"HyperVContainer": False}},
        {"version": "v1.21.14"},
    ],
)
async def test_without_the_gate_the_annotation_for_hyper_v_has_no_effect(
    node: Any, settings: Any
) -> None:
    async with node("windows", runtime={"catalogue": OWN}, **settings) as node:
        await node.create("p", metadata=ISOLATED, containers=[container()])
        pod = await running(node)
        assert not node.runtime._core.sandboxes[meant(node, pod).id].isolation.hyperv
        await node.create(
            "q",
            metadata=ISOLATED,
            restartPolicy="Never",
            containers=[container(image="example.com/old")],
        )
        pod = await until(node, "q", lambda pod: pod["status"]["phase"] == "Failed")
        assert MISMATCH in state(pod)["terminated"]["message"]


@pytest.mark.windows("OS-26", "ROAD-02", "ROAD-14", "ROAD-15", "ROAD-18")
@pytest.mark.parametrize("version", ["v1.14.10", "v1.16.15"])
async def test_hyper_v_isolation_by_annotation_and_gate_takes_older_builds(
    node: Any, version: str
) -> None:
    async with node("windows", runtime={"catalogue": OWN}, version=version, **GATE) as node:
        limits = {"limits": {"cpu": "1500m"}}
        for image in ("example.com/old", "example.com/old-list"):
            name = image.rpartition("/")[2]
            await node.create(
                name, metadata=ISOLATED, containers=[container(image=image, resources=limits)]
            )
            pod = await running(node, name)
            assert node.runtime._core.sandboxes[meant(node, pod).id].isolation.hyperv
            assert pod["status"]["podIP"].startswith("10.244.1.")  # the container's own
            resources = node.runtime._core.containers[
                in_runtime(node, pod).id
            ].config.windows.resources
            assert (resources.cpu_count, resources.cpu_maximum) == (2, 7500)
            assert "10.0.17134" in await printed(node, pod, "ver")


@pytest.mark.windows("ROAD-16", "WIN-OS-010")
@pytest.mark.parametrize("version", ["v1.14.10", "v1.16.15"])
async def test_a_hyper_v_isolated_pod_has_one_container(node: Any, version: str) -> None:
    async with node("windows", version=version, **GATE) as node:
        await node.create("p", metadata=ISOLATED, containers=[container(), container(name="d")])
        pod = await until(
            node, "p", lambda pod: state_reason(pod, "d") == "CreateContainerError", 5
        )
        assert "running" in state(pod) and not states(pod)[1]["ready"]
        text = "Error response from daemon: Hyper-V isolation is limited to 1 container per Pod"
        assert state(pod, "d")["waiting"]["message"] == text
        assert f"Error: {text}" in await recorded(node, "Failed")


@pytest.mark.windows("OS-09", "OS-31", "ROAD-05", "WIN-OS-012")
@pytest.mark.parametrize("version", ["v1.17.17", "v1.20.15"])
@pytest.mark.parametrize("gate", [GATE, {}])
async def test_hyper_v_isolation_is_refused_by_the_releases_that_call_it_planned(
    node: Any, version: str, gate: Any
) -> None:
    async with node("windows", runtime={"catalogue": OWN}, version=version, **gate) as node:
        await node.create("p", metadata=ISOLATED, containers=[container(image="example.com/old")])
        await node.settle(20)
        assert state(await node.pod("p")) == {"waiting": {"reason": "ContainerCreating"}}
        [text, *_] = await recorded(node, "FailedCreatePodSandBox")
        release = version[1:5]
        assert text == (
            "Failed to create pod sandbox: Hyper-V isolation is not supported by Kubernetes "
            f"{release}: support is "
            "planned for a later release and will require containerd"
        )
        await node.create("q", containers=[container()])
        await running(node, "q")


@pytest.mark.windows("OS-09", "OS-31", "ROAD-01")
@pytest.mark.parametrize("handler", ["runhcs-wcow-hypervisor", "runhcs-wcow-hypervisor-17763"])
async def test_the_containerd_of_1_20_has_no_handler_for_hyper_v(node: Any, handler: str) -> None:
    async with node("windows", flavour="containerd") as node:
        await _runtime_class(node, handler)
        await node.create("p", runtimeClassName="own", containers=[container()])
        await node.settle(20)
        assert (await recorded(node, "FailedCreatePodSandBox"))[0].endswith(
            f'no runtime for "{handler}" is configured'
        )


@pytest.mark.windows("ROAD-12", "OS-26")
@pytest.mark.parametrize(
    ("handler", "image", "runs"),
    [
        ("runhcs-wcow-process", "example.com/old", False),
        ("runhcs-wcow-hypervisor", "example.com/old", True),
        ("runhcs-wcow-hypervisor-17134", "example.com/old", True),
    ],
)
async def test_a_runtime_class_selects_the_isolation_with_containerd(
    node: Any, handler: str, image: str, runs: bool
) -> None:
    async with node(
        "windows", flavour="containerd", runtime={"catalogue": OWN, "version": "1.7.0"}
    ) as node:
        await _runtime_class(node, handler)
        await node.create(
            "p", runtimeClassName="own", restartPolicy="Never", containers=[container(image=image)]
        )
        if runs:
            pod = await running(node)
            assert meant(node, pod).handler == handler
        else:
            pod = await until(node, "p", lambda pod: pod["status"]["phase"] == "Failed")
            assert MISMATCH in state(pod)["terminated"]["message"]


@pytest.mark.windows("ROAD-05", "WIN-RUN-003")
@pytest.mark.parametrize(
    ("flavour", "text"),
    [
        (
            "docker",
            'rpc error: code = Unknown desc = RuntimeHandler "runhcs-wcow-vm" not supported',
        ),
        (
            "containerd",
            "rpc error: code = Unknown desc = failed to get sandbox runtime: no runtime for "
            '"runhcs-wcow-vm" is '
            "configured",
        ),
    ],
)
async def test_a_runtime_handler_that_the_runtime_does_not_know(
    node: Any, flavour: str, text: str
) -> None:
    async with node("windows", flavour=flavour) as node:
        await _runtime_class(node, "runhcs-wcow-vm")
        await node.create("p", runtimeClassName="own", containers=[container()])
        await node.settle(10)
        assert (await recorded(node, "FailedCreatePodSandBox"))[
            0
        ] == f"Failed to create pod sandbox: {text}"


@pytest.mark.windows("WIN-RUN-003")
async def test_docker_takes_the_handler_docker(node: Any) -> None:
    async with node("windows") as node:
        await _runtime_class(node, "docker")
        await node.create("p", runtimeClassName="own", containers=[container(*WAIT)])
        await running(node)


async def _runtime_class(node: Node, handler: str) -> None:
    from transom.client.resources import RUNTIME_CLASSES

    await node.client.create(RUNTIME_CLASSES, "", {"metadata": {"name": "own"}, "handler": handler})
    await node.settle(1)
