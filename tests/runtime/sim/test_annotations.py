from __future__ import annotations

from typing import Any

import pytest
from tests.runtime.sim import harness

from transom.runtime.api import (
    LinuxContainer,
    LinuxResources,
    PortMapping,
    RuntimeFailure,
    SandboxConfig,
)
from transom.runtime.sim.annotations import (
    NO_PLAN,
    SimulatedFailure,
    UsagePoint,
    annotations_of_container,
    make_container_plan,
    simulated_failure,
)
from transom.userland.start import start_program


def test_annotations_for_one_container_come_first() -> None:
    annotations = {"exit-code": "1", "web.exit-code": "2", "db.cpu": "1"}
    annotations = {f"sim.transom.dev/{key}": value for key, value in annotations.items()} | {
        "x": "y"
    }
    assert annotations_of_container(annotations, "web") == {"exit-code": "2"}
    assert annotations_of_container(annotations, "db") == {"exit-code": "1", "cpu": "1"}
    assert annotations_of_container({"x": "y"}, "web") == {}


@pytest.mark.parametrize(
    ("annotations", "attempt", "expected"),
    [
        ({}, 0, {}),
        ({"exit-code": "3"}, 0, {"run_time": 0.0, "exit_code": 3}),
        ({"run-time": "1m30s"}, 0, {"run_time": 90.0}),
        ({"run-time": "2.5", "exit-code": "4"}, 0, {"run_time": 2.5, "exit_code": 4}),
        ({"crash": "5s"}, 7, {"run_time": 5.0, "exit_code": 1}),
        ({"crash": "5s", "times": "2"}, 1, {"run_time": 5.0, "exit_code": 1}),
        ({"crash": "5s", "times": "2"}, 2, {}),
        ({"run-time": "soon", "exit-code": "x", "cpu": "much"}, 0, {}),
        (
            {"memory": "0s=50Mi, 60s=300Mi"},
            0,
            {"memory": (UsagePoint(0, 50 << 20), UsagePoint(60, 300 << 20))},
        ),
        ({"cpu": "250m"}, 0, {"cpu": (UsagePoint(0, 0.25),)}),
        ({"log-lines": "3", "log-interval": "100ms"}, 0, {"log_lines": 3, "log_interval": 0.1}),
    ],
)
def test_plans(annotations: dict[str, str], attempt: int, expected: dict[str, object]) -> None:
    assert make_container_plan(annotations, attempt) == NO_PLAN._replace(**expected)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("true", SimulatedFailure(0, "")),
        ("2", SimulatedFailure(2, "")),
        ("boom", SimulatedFailure(0, "boom")),
        ("false", None),
        ("", None),
    ],
)
def test_failures(value: str, expected: SimulatedFailure | None) -> None:
    assert simulated_failure({"fail-start": value}, "fail-start") == expected


async def test_run_time_and_exit_code() -> None:
    r = harness.make()
    main = await r.container(
        "ignore",
        annotations=harness.annotations(run_time="10s", exit_code="3"),
    )
    await r.clock.run_for(9.9)
    assert r.state(main).state == "running"
    await r.clock.run_for(0.1)
    assert (r.state(main).exit_code, r.state(main).reason, r.programs[0].killed) == (
        3,
        "Error",
        True,
    )


async def test_a_server_can_be_slow_to_be_ready() -> None:
    r = harness.make()
    await r.container("serve", "80", annotations=harness.annotations(ready_delay="5s"))
    with pytest.raises(ConnectionRefusedError):
        await r.dataplane.connect("10.244.1.2", 80)
    await r.clock.run_for(5)
    assert (await r.dataplane.connect("10.244.1.2", 80)).recv(9) == b"hello"


async def test_lines_come_one_by_one() -> None:
    r = harness.make()
    await r.container(
        "ignore",
        annotations=harness.annotations(log="hello\nthere", log_lines="2", log_interval="2s"),
    )
    await r.clock.run_for(1)
    assert [line[31:] for line in r.log().splitlines()] == [
        "stdout F hello",
        "stdout F there",
        "stdout F line 1",
    ]
    await r.clock.run_for(60)
    assert r.log().endswith(":09.000000000Z stdout F line 2\n")


async def test_memory_grows_until_the_limit_is_met() -> None:
    r = harness.make()
    limited = LinuxContainer(resources=LinuxResources(memory_limit=200 << 20))
    main = await r.container(
        "ignore",
        linux=limited,
        annotations=harness.annotations(memory="0s=50Mi,60s=300Mi", cpu="0s=500m,30s=0"),
    )
    await r.clock.run_for(59)
    (stats,) = r.runtime.container_stats()
    assert stats.working_set == 50 << 20
    assert stats.cpu is not None
    assert round(stats.cpu.core_nanoseconds / 1e9) == 15
    await r.clock.run_for(1)
    assert (r.state(main).exit_code, r.state(main).reason) == (137, "OOMKilled")


async def test_pulls_starts_and_sandboxes_fail_as_often_as_wished() -> None:
    r = harness.make()
    config = SandboxConfig("web", "ns", "uid-1", annotations=harness.annotations(fail_pull="1"))
    with pytest.raises(RuntimeFailure, match="manifest for busybox:latest not found"):
        await r.runtime.pull_image("busybox", None, config)
    assert await r.do(r.runtime.pull_image("busybox", None, config))
    with pytest.raises(RuntimeFailure, match="Error response from daemon: no luck"):
        await r.container("ignore", annotations=harness.annotations(fail_start="no luck"))
    assert await r.container("ignore", annotations=harness.annotations(fail_start="1"), attempt=1)
    with pytest.raises(RuntimeFailure, match="Error response from daemon: gone"):
        await r.sandbox(annotations=harness.annotations(fail_sandbox="gone"))


@pytest.mark.parametrize(
    ("labels", "init"), [({"job-name": "migrate"}, False), ({}, True)], ids=["job", "init"]
)
async def test_an_unknown_program_that_must_end_does(labels: dict[str, str], init: bool) -> None:
    r = harness.make(start=start_program)
    job = await r.sandbox(labels=labels, uid="job")

    async def start(number: int, *command: str, sandbox: str = job, **fields: Any) -> str:
        fields = {"image": "example.com/shop", "init": init, **fields}
        found = await r.container(*command, sandbox=sandbox, attempt=number, **fields)
        return str(found)

    own = await start(0)
    named = await start(1, "migrate", "--all")
    server = await start(2, ports=(PortMapping(80, 0),))
    sleeper = await start(3, "sleep", "60")
    listed = await start(4, image="redis")
    elsewhere = await start(5, sandbox=await r.sandbox(uid="other"), init=False)
    await r.clock.run_for(5)
    assert [(r.state(c).state, r.state(c).exit_code) for c in (own, named)] == [("exited", 0)] * 2
    assert [r.state(c).state for c in (server, sleeper, listed, elsewhere)] == ["running"] * 4
