"""Termination of Windows containers: events instead of signals, five seconds, last output, exit
codes.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.kubelet.conftest import Node

from transom.client.resources import PODS
from transom.runtime.sim.catalogue import catalogue_with

from .windows_pods import (
    BOTH,
    cmd,
    container,
    ended,
    in_runtime,
    log,
    meant,
    running,
    simulation_annotations,
    state,
    states,
    stubborn,
    until,
)

flavours = pytest.mark.parametrize("flavour", BOTH)
PATIENT = """
images:
- {name: example.com/patient, windows: [17763], userland: servercore, shutdown-timeout: 20}
- {name: example.com/hasty, windows: [17763], userland: servercore, shutdown-timeout: 1}
"""


async def seconds_to_go(node: Node, name: str = "p", most: int = 60) -> float:
    """How long a deleted pod stays."""
    began = node.clock.monotonic()
    await node.client.delete(PODS, "default", name)
    for _ in range(most * 4):
        await node.settle(0.25)
        if await node.missing(name):
            return node.clock.monotonic() - began
    raise AssertionError("it is still there")


@pytest.mark.windows("FEAT-01", "API-37", "API-38", "WIN-POD-007")
@pytest.mark.parametrize(
    ("flavour", "grace", "least", "most"),
    [
        ("docker", 30, 5, 8),
        ("docker", 120, 5, 8),
        ("docker", 3, 3, 5),
        ("containerd", 30, 30, 33),
        ("containerd", 12, 12, 15),
    ],
)
async def test_a_process_that_ignores_the_event_is_gone_after_five_seconds_with_docker(
    node: Any, flavour: str, grace: int, least: float, most: float
) -> None:
    received: list[str] = []

    async with node("windows", flavour=flavour, runtime=stubborn(received)) as node:
        await node.create(
            "p", terminationGracePeriodSeconds=grace, containers=[container("stubborn")]
        )
        await running(node)
        took = await seconds_to_go(node, most=grace + 10)
        assert least <= took <= most, took
    assert received == ["CTRL_SHUTDOWN_EVENT", "killed"]


@pytest.mark.windows("API-09", "API-10", "API-11", "API-38", "WIN-CTR-007")
@flavours
async def test_the_process_is_sent_a_console_event_and_no_signal(node: Any, flavour: str) -> None:
    received: list[str] = []

    async with node("windows", flavour=flavour, runtime=stubborn(received)) as node:
        await node.create("p", containers=[container("stubborn", "leave", "2")])
        pod = await running(node)
        await node.client.delete(PODS, "default", "p")
        await node.settle(1)
        # its handler runs, and what it says is in the log
        assert log(node, pod) == "CTRL_SHUTDOWN_EVENT"
        await node.settle(4)
        assert await node.missing("p")
    assert received[0] == "CTRL_SHUTDOWN_EVENT" and not [
        name for name in received if name.startswith("SIG")
    ]


@pytest.mark.windows("API-10", "API-13", "WIN-CTR-007", "WIN-CTR-006")
@flavours
async def test_a_console_program_without_a_handler_ends_with_control_c_exit(
    node: Any, flavour: str
) -> None:
    async with node("windows", flavour=flavour) as node:
        await node.create(
            "p", restartPolicy="Never", activeDeadlineSeconds=5, containers=[container()]
        )
        pod = await until(node, "p", lambda pod: pod["status"]["phase"] == "Failed", 30)
        await node.settle(5)
        # 0xC000013A, STATUS_CONTROL_C_EXIT, in 32 bits with a sign
        assert in_runtime(node, pod).exit_code == -1073741510
        assert pod["status"]["reason"] == "DeadlineExceeded"


@pytest.mark.windows("API-39", "API-38")
@pytest.mark.parametrize(
    ("image", "grace", "least", "most"),
    [
        ("example.com/patient", 60, 20, 23),
        ("example.com/hasty", 60, 1, 4),
        # not more than the pod's own grace
        ("example.com/patient", 7, 7, 10),
    ],
)
async def test_the_five_seconds_are_in_the_registry_of_the_image(
    node: Any, image: str, grace: int, least: float, most: float
) -> None:
    async with node(
        "windows", runtime={**stubborn([]), "catalogue": catalogue_with(PATIENT, "own")}
    ) as node:
        await node.create(
            "p",
            terminationGracePeriodSeconds=grace,
            containers=[container("stubborn", image=image)],
        )
        await running(node)
        took = await seconds_to_go(node)
        assert least <= took <= most, took


@pytest.mark.windows("API-38")
@flavours
async def test_deletion_without_grace_does_not_wait(node: Any, flavour: str) -> None:
    received: list[str] = []

    async with node("windows", flavour=flavour, runtime=stubborn(received)) as node:
        await node.create("p", containers=[container("stubborn")])
        pod = await running(node)
        await node.client.delete(PODS, "default", "p", grace=0)
        await node.settle(3)
        assert not node.runtime.containers(pod["metadata"]["uid"])


# ---- last words ----


@pytest.mark.windows("FEAT-03", "API-30", "WIN-CTR-001")
@pytest.mark.parametrize(
    ("flavour", "message"), [("docker", None), ("containerd", "the disk is full\r\n")]
)
@pytest.mark.parametrize("path", ["/dev/termination-log", "C:\\log\\last.txt"])
async def test_the_termination_message_is_lost_with_docker(
    node: Any, flavour: str, message: str | None, path: str
) -> None:
    async with node("windows", flavour=flavour) as node:
        inside = path if path[1] == ":" else "C:" + path.replace("/", "\\")
        folder = inside.rpartition("\\")[0]
        script = f"mkdir {folder} 2> nul & echo the disk is full> {inside}& exit 4"
        more = {} if path.startswith("/dev") else {"terminationMessagePath": path}
        await node.create("p", restartPolicy="Never", containers=[cmd(script, **more)])
        pod = await ended(node)
        end = state(pod)["terminated"]
        assert (end["exitCode"], end.get("message")) == (4, message)


@pytest.mark.windows("API-30")
async def test_the_file_of_a_termination_message_on_the_node(node: Any) -> None:
    async with node("windows", flavour="containerd") as node:
        await node.create("p", containers=[container()])
        pod = await running(node)
        [mount] = in_runtime(node, pod).mounts
        assert mount.container_path == "c:/dev/termination-log"
        folder = f"C:\\var\\lib\\kubelet\\pods\\{pod['metadata']['uid']}\\containers\\c\\"
        assert mount.host_path.startswith(folder) and len(mount.host_path) == len(folder) + 8


@pytest.mark.windows("FEAT-03", "WIN-CTR-001")
@flavours
async def test_falling_back_to_logs_works_with_both_runtimes(node: Any, flavour: str) -> None:
    async with node("windows", flavour=flavour) as node:
        script = "echo one & echo two & exit 9"
        await node.create(
            "p",
            restartPolicy="Never",
            containers=[
                cmd(script, terminationMessagePolicy="FallbackToLogsOnError"),
            ],
        )
        message = state(await ended(node))["terminated"]["message"]
        assert [line.strip() for line in message.splitlines()] == ["one", "two"]


# ---- exit codes ----


@pytest.mark.windows("API-12", "API-13", "API-14", "WIN-CTR-006")
@flavours
async def test_exit_codes_have_32_bits(node: Any, flavour: str) -> None:
    codes = {
        0: 0,
        1: 1,
        255: 255,
        256: 256,
        70000: 70000,
        -1: -1,
        0xC0000005: -1073741819,
        2**31 - 1: 2**31 - 1,
    }

    async with node("windows", flavour=flavour) as node:
        for number, requested in enumerate(codes):
            metadata = simulation_annotations(exit_code=str(requested), run_time="1s")
            await node.create(
                f"p{number}", metadata=metadata, restartPolicy="Never", containers=[container()]
            )
        for number, (requested, shown) in enumerate(codes.items()):
            pod = await ended(node, f"p{number}")
            end = state(pod)["terminated"]
            assert (pod["status"]["phase"], end["reason"]) == (
                ("Failed", "Error") if requested else ("Succeeded", "Completed")
            )
            assert end["exitCode"] == shown


@pytest.mark.windows("API-12")
async def test_exit_codes_of_commands_decide_on_restarts(node: Any) -> None:
    async with node("windows") as node:
        await node.create(
            "p", restartPolicy="OnFailure", containers=[cmd("exit 0", "a"), cmd("exit 300", "b")]
        )
        pod = await until(
            node, "p", lambda pod: len(states(pod)) == 2 and states(pod)[1]["restartCount"], 40
        )
        assert states(pod)[0]["restartCount"] == 0
        assert states(pod)[1]["lastState"]["terminated"]["exitCode"] == 300


# ---- the sandbox ----


@pytest.mark.windows("RT-14", "RT-13")
@flavours
async def test_a_crash_keeps_the_network_of_the_pod(node: Any, flavour: str) -> None:
    async with node("windows", flavour=flavour) as node:
        await node.create(
            "p", containers=[cmd("ping -n 3 127.0.0.1 > nul & exit 1"), container(name="d")]
        )
        first = await running(node)
        pod = await until(node, "p", lambda pod: states(pod)[0]["restartCount"] == 2, 60)
        assert (
            pod["status"]["podIP"] == first["status"]["podIP"]
            and states(pod)[1]["restartCount"] == 0
        )
        assert meant(node, pod).config.attempt == 0
