from __future__ import annotations

import pytest
from tests.runtime.sim import harness

from transom.runtime.api import LinuxSandbox, RuntimeFailure
from transom.runtime.sim.engine import Flavour


async def test_a_sandbox_has_an_address_until_it_is_stopped() -> None:
    r = harness.make()
    sandbox = await r.sandbox()
    (found,) = r.runtime.sandboxes("uid-1")
    assert (found.id, found.state, found.ips) == (sandbox, "ready", ("10.244.1.2",))
    main = await r.container("ignore", sandbox=sandbox)
    await r.runtime.stop_sandbox(sandbox)
    assert r.state(main).exit_code == 137
    assert r.runtime.sandboxes()[0].state == "notready"
    await r.runtime.remove_sandbox(sandbox)
    assert (
        r.runtime.sandboxes(),
        r.runtime.containers("uid-1"),
        r.runtime.container(main),
    ) == ([], [], None)
    assert r.events == [
        ("sandbox", "uid-1"),
        ("started", "uid-1"),
        ("died", "uid-1"),
        ("sandbox", "uid-1"),
        ("removed", "uid-1"),
        ("removed", "uid-1"),
    ]


FAILURES = [
    (
        "windows",
        "docker",
        {"sandbox_image": "k8s.gcr.io/pause:3.2"},
        "",
        'failed pulling image "k8s.gcr.io/pause:3.2": no matching manifest for windows/amd64 '
        "10.0.17763 in the manifest list "
        "entries",
    ),
    (
        "windows",
        "containerd",
        {"sandbox_image": "k8s.gcr.io/pause:3.2"},
        "",
        'failed to get sandbox image "k8s.gcr.io/pause:3.2": failed to pull image '
        '"k8s.gcr.io/pause:3.2": failed to pull and '
        'unpack image "k8s.gcr.io/pause:3.2": no match for platform in manifest: not found',
    ),
    ("linux", "docker", {}, "kata", 'RuntimeHandler "kata" not supported'),
    (
        "linux",
        "containerd",
        {},
        "kata",
        'failed to get sandbox runtime: no runtime for "kata" is configured',
    ),
]


@pytest.mark.parametrize(("os", "flavour", "options", "handler", "text"), FAILURES)
async def test_sandboxes_that_cannot_be(
    os: str, flavour: str, options: dict[str, str], handler: str, text: str
) -> None:
    r = harness.make(os, flavour, **options)  # type: ignore[arg-type]
    with pytest.raises(RuntimeFailure) as raised:
        await r.sandbox(handler)
    assert raised.value.description == text


async def test_no_address_no_sandbox() -> None:
    r = harness.make()
    r.network.fault = "cni config uninitialized"
    with pytest.raises(RuntimeFailure) as raised:
        await r.sandbox()
    (left,) = r.runtime.sandboxes()
    assert left.state == "notready"
    assert raised.value.description == (
        f'failed to set up sandbox container "{left.id}" network for pod "web": '
        'networkPlugin cni failed to set up pod "web_ns" network: cni config uninitialized'
    )
    assert (
        r.runtime.status().network_message
        == "docker: network plugin is not ready: cni config uninitialized"
    )
    c = harness.make(flavour="containerd")
    c.network.fault = "cni config uninitialized"
    with pytest.raises(RuntimeFailure, match='failed to setup network for sandbox "'):
        await c.sandbox()
    assert c.runtime.sandboxes() == []
    assert (
        c.runtime.status().network_message
        == "Network plugin returns error: cni plugin not initialized"
    )


async def test_the_hosts_network_is_there_on_linux_only() -> None:
    host = LinuxSandbox(host_network=True)
    r = harness.make()
    sandbox = await r.sandbox(linux=host)
    assert r.runtime.sandboxes()[0].ips == ()
    await r.container("serve", "8080", sandbox=sandbox)
    assert (await r.dataplane.connect("10.0.0.1", 8080)).recv(9) == b"hello"
    d = harness.make("windows", "docker")
    with pytest.raises(RuntimeFailure) as raised:
        await d.sandbox(linux=host)
    assert raised.value.description == (
        'failed to start sandbox container for pod "web": Error response from daemon: '
        "network host not found"
    )
    c = harness.make("windows", "containerd")
    await c.sandbox(linux=host)
    assert c.runtime.sandboxes()[0].ips == ("10.244.1.2",)


async def test_a_reboot_ends_everything() -> None:
    r = harness.make()
    main = await r.container("serve", "80")
    r.host.reboot()
    state = r.state(main)
    assert (state.state, state.exit_code, state.reason) == ("exited", 255, "Error")
    assert r.runtime.sandboxes()[0].state == "notready"
    assert r.programs[0].killed
    with pytest.raises(ConnectionRefusedError):
        await r.dataplane.connect("10.244.1.2", 80)


async def test_builds_must_match_in_process_isolation() -> None:
    r = harness.make("windows", "docker")
    image = "example/windows-app:1803"
    sandbox = await r.sandbox()
    with pytest.raises(RuntimeFailure) as raised:
        await r.container("ignore", image=image, sandbox=sandbox)
    (c,) = r.runtime.containers()
    assert raised.value.description.startswith(
        f'failed to start container "{c.id}": Error response from daemon: '
        f"hcsshim::CreateComputeSystem {c.id}: "
        "The container operating system does not match the host operating "
        'system.\n(extra info: {"SystemType":"Container"'
    )
    assert (c.state, c.exit_code, c.reason, c.started_at) == (
        "exited",
        128,
        "ContainerCannotRun",
        c.created_at,
    )
    d = harness.make("windows", "containerd")
    with pytest.raises(RuntimeFailure) as raised:
        await d.container("ignore", image=image)
    (c,) = d.runtime.containers()
    assert (
        raised.value.description
        == c.message
        == (
            f"failed to create containerd task: hcs::CreateComputeSystem {c.id}: "
            "The container operating system does not match the host operating system.: unknown"
        )
    )
    assert (c.exit_code, c.reason, c.started_at) == (128, "StartError", 0.0)


async def test_a_pause_image_of_another_build() -> None:
    r = harness.make("windows", "docker", build=18362, sandbox_image="kubeletwin/pause")
    with pytest.raises(
        RuntimeFailure,
        match="The container operating system does not match the host operating system",
    ):
        await r.sandbox()


async def test_hyperv_isolation_takes_older_builds() -> None:
    old, new = "example/windows-app:1803", "example/windows-app:1909"
    annotation = {"experimental.windows.kubernetes.io/isolation-type": "hyperv"}
    r = harness.make("windows", "docker", hyperv_gate=True)
    sandbox = await r.sandbox(annotations=annotation)
    assert r.runtime.sandboxes()[0].ips == ()  # the address is the container's
    assert await r.container("ignore", image=old, sandbox=sandbox)
    assert r.runtime.sandboxes()[0].ips == ("10.244.1.2",)
    off = harness.make("windows", "docker")
    with pytest.raises(RuntimeFailure):
        await off.container("ignore", image=old, sandbox=await off.sandbox(annotations=annotation))
    c = harness.make("windows", "containerd", version="1.7.0")
    sandbox = await c.sandbox("runhcs-wcow-hypervisor")
    assert await c.container("ignore", image=old, sandbox=sandbox)
    with pytest.raises(RuntimeFailure):
        await c.container("ignore", image=new, sandbox=sandbox)
    exact = await c.sandbox("runhcs-wcow-hypervisor-17134", uid="uid-2")
    assert await c.container("ignore", image=old, sandbox=exact)


@pytest.mark.parametrize("build", [17763, 18362, 18363, 19041, 19042, 20348, 26100])
@pytest.mark.parametrize("flavour", ["docker", "containerd"])
async def test_every_build_has_a_pause_image(build: int, flavour: Flavour) -> None:
    r = harness.make("windows", flavour, build=build)
    assert await r.sandbox()
