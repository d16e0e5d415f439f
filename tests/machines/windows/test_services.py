"""Services of a Windows machine: what the manager refuses, what it starts before and after, what it
does about failures.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.kit.clock import VirtualClock
from transom.machines.windows.registry import WindowsRegistry
from transom.machines.windows.services import (
    KEY,
    Report,
    ServiceError,
    ServiceManager,
    WindowsService,
)


class Process:
    def __init__(self, pid: int, *, answers: bool = True) -> None:
        self.pid = pid
        self.answers = answers
        self.code: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def ready(self) -> None:
        if not self.answers:
            await asyncio.Event().wait()

    async def wait(self) -> int:
        return await asyncio.shield(self.code)

    async def stop(self) -> None:
        self.end(0)

    def end(self, code: int) -> None:
        if not self.code.done():
            self.code.set_result(code)


class Machine:
    """With three services: `a`, `b` that needs `a`, and `off`, which is disabled."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.registry = WindowsRegistry()
        self.launched: list[Process] = []
        self.mute = self.stillborn = False
        self.events: list[tuple[int, str, str]] = []
        self.services = ServiceManager(
            self.clock, self.registry, self._launch, lambda *event: self.events.append(event)
        )
        self.services.create("a", "a.exe")
        self.services.create("b", "b.exe", depends=("A",))
        self.services.create("off", "off.exe", start="disabled")

    async def _launch(self, service: WindowsService, report: Report) -> Process:
        process = Process(len(self.launched) + 4, answers=not self.mute)
        self.launched.append(process)
        if self.stillborn:
            process.end(1)
        return process

    def state(self, name: str) -> str:
        return self.services.get(name).state


@asynccontextmanager
async def run() -> AsyncIterator[Machine]:
    yield Machine()


async def _refusal(work: Awaitable[Any] | None) -> int:
    try:
        if work is not None:
            await work
    except ServiceError as error:
        return error.code
    return 0


@pytest.mark.parametrize(
    ("ask", "code", "text"),
    [
        (
            lambda s: s.start("missing"),
            1060,
            "The specified service does not exist as an installed service.",
        ),
        (
            lambda s: s.stop("missing"),
            1060,
            "The specified service does not exist as an installed service.",
        ),
        (lambda s: s.stop("a"), 1062, "The service has not been started."),
        (
            lambda s: s.start("off"),
            1058,
            "The service cannot be started, either because it is disabled",
        ),
        (lambda s: s.create("A", "x.exe"), 1073, "The specified service already exists."),
        (lambda s: s.create("a/b", "x.exe"), 87, "The parameter is incorrect."),
        (
            lambda s: s.delete("missing"),
            1060,
            "The specified service does not exist as an installed service.",
        ),
    ],
)
async def test_what_cannot_be_is_refused_with_windows_own_number_and_changes_nothing(
    ask: Callable[[ServiceManager], Any], code: int, text: str
) -> None:
    async with run() as machine:
        with pytest.raises(ServiceError) as refused:
            requested = ask(machine.services)
            if asyncio.iscoroutine(requested):
                await requested
        assert (refused.value.code, refused.value.text[: len(text)]) == (code, text)
        assert not machine.launched
        assert [(s.name, s.state) for s in machine.services.all()] == [
            ("a", "STOPPED"),
            ("b", "STOPPED"),
            ("off", "STOPPED"),
        ]


async def test_a_service_starts_what_it_needs_and_cannot_lose_it() -> None:
    async with run() as machine:
        await machine.services.start("b")
        assert (machine.state("a"), machine.state("b")) == ("RUNNING", "RUNNING")
        assert await _refusal(machine.services.start("a")) == 1056
        assert await _refusal(machine.services.stop("a")) == 1051
        await machine.services.stop("a", force=True)
        assert (machine.state("a"), machine.state("b")) == ("STOPPED", "STOPPED")
        machine.services.delete("a")
        assert await _refusal(machine.services.start("b")) == 1075


async def test_a_program_that_is_not_a_service_is_ended_after_thirty_seconds() -> None:
    async with run() as machine:
        machine.mute = True
        starting = asyncio.ensure_future(_refusal(machine.services.start("a")))
        await machine.clock.run_for(29.9)
        assert (machine.state("a"), starting.done()) == ("START_PENDING", False)
        await machine.clock.run_for(0.2)
        assert (await starting, machine.state("a")) == (1053, "STOPPED")
        assert machine.launched[0].code.done()


async def test_a_program_that_ends_at_once_fails_to_start() -> None:
    async with run() as machine:
        machine.stillborn = True
        assert await _refusal(machine.services.start("b")) == 1068  # because of what it needs
        assert await _refusal(machine.services.start("a")) == 1053


@pytest.mark.windows("TRB-08", "SUP-TRB-003")
async def test_a_service_that_fails_is_started_again_as_its_recovery_says() -> None:
    async with run() as machine:
        a = machine.services.get("a")
        a.recovery = (("restart", 1000), ("restart", 5000), ("none", 0))
        await machine.services.start("a")
        for seconds in (1, 5):
            machine.launched[-1].end(1)
            await machine.clock.run_for(seconds - 0.1)
            assert (a.state, a.exit_code) == ("STOPPED", 1067)
            await machine.clock.run_for(0.2)
            assert (a.state, a.pid) == ("RUNNING", machine.launched[-1].pid)
        machine.launched[-1].end(1)
        await machine.clock.run_for(60)
        assert (a.state, len(machine.launched)) == ("STOPPED", 3)


async def test_stopping_a_service_is_not_a_failure() -> None:
    async with run() as machine:
        machine.services.get("a").recovery = (("restart", 1000),)
        await machine.services.start("a")
        await machine.services.stop("a")
        await machine.clock.run_for(60)
        assert (machine.state("a"), len(machine.launched)) == ("STOPPED", 1)


async def test_a_service_that_runs_is_deleted_when_it_stops() -> None:
    async with run() as machine:
        await machine.services.start("a")
        machine.services.delete("a")
        assert await _refusal(machine.services.start("a")) == 1072
        with pytest.raises(ServiceError, match="marked for deletion"):
            machine.services.create("a", "other.exe")
        assert machine.registry.exists(rf"{KEY}\a")
        await machine.services.stop("a")
        assert machine.services.find("a") is None
        assert not machine.registry.exists(rf"{KEY}\a")


async def test_a_start_continues_after_its_client_has_gone() -> None:
    async with run() as machine:
        machine.mute = True
        asking = asyncio.ensure_future(machine.services.start("a"))
        await machine.clock.run_for(1)
        asking.cancel()
        await machine.clock.run_for(1)
        assert machine.state("a") == "START_PENDING"
        await machine.clock.run_for(30)
        assert machine.state("a") == "STOPPED"


_STEPS = st.lists(
    st.tuples(st.sampled_from(("start", "stop", "force", "crash", "wait")), st.sampled_from("ab")),
    max_size=12,
)


@given(_STEPS)
async def test_a_service_runs_if_and_only_if_its_process_does(steps: list[tuple[str, str]]) -> None:
    async with run() as machine:
        services = machine.services
        services.get("a").recovery = (("restart", 1000),)
        for step, name in steps:
            process = services.get(name).process
            if step == "start":
                await _refusal(services.start(name))
            elif step in ("stop", "force"):
                await _refusal(services.stop(name, force=step == "force"))
            elif step == "crash" and isinstance(process, Process):
                process.end(1)
                await machine.clock.run_for(0.1)
            elif step == "wait":
                await machine.clock.run_for(2)
            alive = {one.pid for one in machine.launched if not one.code.done()}
            assert {s.pid for s in services.all() if s.state == "RUNNING"} == alive


async def test_a_path_that_is_changed_in_the_registry_counts_from_the_next_start() -> None:
    async with run() as machine:
        await machine.services.start("a")
        machine.registry.set(rf"{KEY}\a", "ImagePath", "a.exe --other")
        await machine.services.stop("a")
        assert (await machine.services.start("a")).bin_path == "a.exe --other"
        service = machine.services.get("a")
        service.description = "d"
        machine.services.changed(service)
        assert machine.registry.get(rf"{KEY}\a", "ImagePath") == "a.exe --other"


def test_services_are_found_again_in_the_registry() -> None:
    machine = Machine()
    own = machine.services.create(
        "own", r"C:\own.exe -x", display_name="My service", start="auto", account=r".\bob"
    )
    own.description = "d"
    machine.services.changed(own)
    machine.services.delete("off")
    machine.registry.set(rf"{KEY}\driver", "Group", "no program")
    again = ServiceManager(machine.clock, machine.registry, machine._launch)
    again.load(["A"])
    assert [service.name for service in again.all()] == ["b", "own"]
    assert again.get("b").depends == ("A",)
    own = again.get("My service")
    assert (own.bin_path, own.start, own.account, own.description, own.state) == (
        r"C:\own.exe -x",
        "auto",
        r".\bob",
        "d",
        "STOPPED",
    )


@pytest.mark.parametrize("seconds", [0.5, 20.0])
async def test_services_get_their_time_at_shutdown_and_none_is_restarted(seconds: float) -> None:
    """One that never ends does not delay the shutdown, and the others are stopped meanwhile."""

    async with run() as machine:
        clock, services = machine.clock, machine.services
        await services.start("b")  # and `a`, which it needs
        slow, quick = machine.launched
        services.get("b").recovery = (("restart", 0),)

        async def never() -> None:
            await asyncio.Event().wait()

        slow.stop = never  # type: ignore[method-assign]
        begin = clock.monotonic()
        stopping = asyncio.ensure_future(services.shut_down(seconds))
        await clock.run_for(seconds - 0.1)
        assert not stopping.done()
        assert quick.code.done() and machine.state("b") == "STOPPED"
        assert machine.state("a") == "STOP_PENDING"
        await clock.run_for(0.2)
        await stopping
        assert clock.monotonic() - begin == pytest.approx(seconds + 0.1)
        services.machine_stopped()
        assert machine.state("a") == "STOPPED" and len(machine.launched) == 2


async def test_a_shutdown_is_over_when_all_services_have_ended() -> None:
    async with run() as machine:
        await machine.services.start("b")
        await machine.services.shut_down(20)  # the clock does not move
        assert [machine.state(name) for name in "ab"] == ["STOPPED", "STOPPED"]


async def test_a_service_that_runs_and_can_do_so_reads_its_parameters_again() -> None:
    async with run() as machine:
        reloaded: list[str] = []
        with pytest.raises(ServiceError, match="has not been started"):
            machine.services.reload("a")
        await machine.services.start("a")
        with pytest.raises(ServiceError, match="not valid for this service"):
            machine.services.reload("a")
        machine.services.get("a").reload = lambda: reloaded.append("a")
        machine.services.reload("a")
        assert reloaded == ["a"]


async def test_failures_and_new_start_types_are_in_the_event_log() -> None:
    async with run() as machine:
        services, a = machine.services, machine.services.get("a")
        a.recovery = (("restart", 1000), ("none", 0))
        await services.start("a")
        machine.launched[-1].end(1)
        await machine.clock.run_for(1.1)
        machine.launched[-1].end(1)
        await machine.clock.run_for(0.1)
        a.start = "auto"
        services.changed(a)
        services.changed(a)
        machine.mute = True
        starting = asyncio.ensure_future(services.start("a"))
        await machine.clock.run_for(31)
        assert await _refusal(starting) == 1053
    assert [event for event in machine.events if event[0] not in (7036, 7045)] == [
        (
            7031,
            "Error",
            "The a service terminated unexpectedly.  It has done this 1 time(s).  The following "
            "corrective action will be taken in 1000 milliseconds: Restart the service.",
        ),
        (
            7034,
            "Error",
            "The a service terminated unexpectedly.  It has done this 2 time(s).",
        ),
        (
            7040,
            "Information",
            "The start type of the a service was changed from demand start to auto start.",
        ),
        (
            7009,
            "Error",
            "A timeout was reached (30000 milliseconds) while waiting for the a service to connect.",
        ),
        (
            7000,
            "Error",
            "The a service failed to start due to the following error: \r\nThe service did not "
            "respond to the start or control request in a timely fashion.",
        ),
    ]
