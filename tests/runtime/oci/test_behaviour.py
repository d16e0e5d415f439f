"""What a kubelet relies on, shown on every kind of runtime: simulated, Linux containers through
runc, Windows ones through Wine. Add another one to `tests/runtime/behaviour.py`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest

from transom.runtime.api import Mount, RuntimeFailure

Play = Callable[[Any], None]


async def test_the_life_of_a_sandbox(harness: Play) -> None:
    async with harness() as b:
        first = await b.sandbox("uid-1", labels={"a": "b"})
        second = await b.sandbox("uid-2")
        assert [s.id for s in b.runtime.sandboxes()] == [second, first]
        (found,) = b.runtime.sandboxes("uid-1")
        assert re.fullmatch(r"[0-9a-f]{64}", found.id)
        assert (found.state, found.config.labels, len(found.ips)) == ("ready", {"a": "b"}, 1)
        await b.runtime.stop_sandbox(first)
        (found,) = b.runtime.sandboxes("uid-1")
        assert (found.state, found.ips) == ("notready", ())
        with pytest.raises(RuntimeFailure, match=f'sandbox container "{first}" is not running'):
            await b.create(b.programs.stay(), first)
        await b.runtime.stop_sandbox(first)
        await b.runtime.remove_sandbox(first)
        assert b.runtime.sandboxes("uid-1") == []
        await b.runtime.stop_sandbox(first)
        await b.runtime.remove_sandbox(first)
        assert [e.kind for e in b.events if e.container_id == first] == [
            "sandbox",
            "sandbox",
            "removed",
        ]


async def test_the_life_of_a_container(harness: Play) -> None:
    async with harness() as b:
        sandbox = await b.sandbox()
        made = await b.create(
            b.programs.leave(3), sandbox, labels={"a": "b"}, annotations={"c": "d"}, attempt=2
        )
        assert b.state(made).state == "created"
        await b.runtime.start_container(made)
        ended = await b.ended(made)
        assert (ended.exit_code, ended.reason, ended.sandbox_id, ended.attempt) == (
            3,
            "Error",
            sandbox,
            2,
        )
        assert (ended.labels, ended.annotations) == ({"a": "b"}, {"c": "d"})
        assert 0 < ended.created_at <= ended.started_at <= ended.finished_at
        other = await b.run(b.programs.say("x"), sandbox)
        ended = await b.ended(other)
        assert (ended.exit_code, ended.reason) == (0, "Completed")
        assert [c.id for c in b.runtime.containers("uid-1")] == [other, made]
        assert [e.kind for e in b.events if e.container_id == made] == ["started", "died"]
        with pytest.raises(RuntimeFailure, match="CONTAINER_EXITED"):
            await b.runtime.start_container(made)
        await b.runtime.remove_container(made)
        assert b.runtime.container(made) is None
        await b.runtime.remove_container(made)
        await b.runtime.stop_container(made, 1)
        with pytest.raises(RuntimeFailure) as unknown:
            await b.runtime.start_container(made)
        assert unknown.value.code == "NotFound"


async def test_what_it_says_is_in_its_log(harness: Play) -> None:
    async with harness() as b:
        sandbox = await b.sandbox()
        spoken = await b.run(b.programs.say("good news"), sandbox)
        await b.ended(spoken)
        assert b.printed(spoken) == ["good news"]
        raw = b.host.files.read(b.state(spoken).log_path).decode()
        assert re.fullmatch(
            r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z stdout F good news *\r?\n", raw
        )
        bad = await b.run(b.programs.complain("bad news"), sandbox)
        await b.ended(bad)
        assert b.printed(bad, "stderr") == ["bad news"]


async def test_it_is_asked_to_leave(harness: Play) -> None:
    async with harness() as b:
        made = await b.run(b.programs.stay())
        await b.ready(made)
        await b.runtime.stop_container(made, 20)
        ended = b.state(made)
        assert ended.state == "exited"
        assert ended.exit_code == 0 or b.windows
        assert ended.finished_at - ended.started_at < 15


async def test_it_is_made_to_leave(harness: Play) -> None:
    async with harness() as b:
        made = await b.run(b.programs.insist())
        if b.windows:
            await b.runtime.stop_container(made, 0)
            assert b.state(made).exit_code != 0
            return
        await b.ready(made)
        await b.runtime.stop_container(made, 0.3)
        assert (b.state(made).exit_code, b.state(made).reason) == (137, "Error")
        removed = await b.run(b.programs.insist(), b.state(made).sandbox_id)
        await b.runtime.remove_container(removed)
        assert b.runtime.container(removed) is None
        assert [e.kind for e in b.events if e.container_id == removed] == [
            "started",
            "died",
            "removed",
        ]


async def test_a_sandbox_takes_its_containers_with_it(harness: Play) -> None:
    async with harness() as b:
        made = await b.run(b.programs.insist())
        sandbox = b.state(made).sandbox_id
        await b.runtime.stop_sandbox(sandbox)
        assert b.state(made).state == "exited"
        await b.runtime.remove_sandbox(sandbox)
        assert b.runtime.container(made) is None


async def test_what_cannot_start(harness: Play) -> None:
    async with harness() as b:
        made = await b.create(("nosuchprogram", "x"))
        with pytest.raises(RuntimeFailure) as failure:
            await b.runtime.start_container(made)
        ended = b.state(made)
        assert (ended.state, ended.exit_code, ended.reason) == ("exited", 128, "StartError")
        assert ended.message == failure.value.description
        if not b.windows:
            assert failure.value.description == (
                "failed to create containerd task: OCI runtime create failed: "
                "container_linux.go:370: starting container "
                'process caused: exec: "nosuchprogram": executable file not found in $PATH: unknown'
            )
        await b.runtime.remove_container(made)


async def test_its_surroundings(harness: Play) -> None:
    async with harness() as b:
        sandbox = await b.sandbox(hostname="web-0")
        programs = b.programs
        (name,) = await b.output(programs.hostname(), sandbox)
        assert name.lower() == "web-0"
        assert await b.output(
            programs.variable("GREETING"), sandbox, env=(("GREETING", "hello"),)
        ) == ["hello"]


async def test_volumes(harness: Play) -> None:
    async with harness() as b:
        path, inside = b.volume("data")
        separator = "\\" if b.windows else "/"
        file = f"{inside}{separator}x"
        mount = Mount(inside, path)
        sandbox = await b.sandbox()
        await b.output(b.programs.store(file, "kept"), sandbox, mounts=(mount,))
        assert b.host.files.read(f"{path}{separator}x").decode().strip() == "kept"
        read_only = Mount(inside, path, read_only=True)
        assert await b.output(b.programs.show(file), sandbox, mounts=(read_only,)) == ["kept"]
        refused = await b.run(b.programs.store(file, "changed"), sandbox, mounts=(read_only,))
        assert (await b.ended(refused)).exit_code != 0 or b.windows  # cmd does not say so
        assert b.host.files.read(f"{path}{separator}x").decode().strip() == "kept"


async def test_commands_in_it(harness: Play) -> None:
    async with harness() as b:
        made = await b.run(b.programs.stay())
        done = await b.runtime.exec_sync(made, b.programs.say("from inside"))
        assert (done.stdout.strip(), done.stderr, done.exit_code) == (b"from inside", b"", 0)
        assert (await b.runtime.exec_sync(made, b.programs.leave(5))).exit_code == 5
        assert (await b.runtime.exec_sync(made, b.programs.complain("oh"))).stderr.strip() == b"oh"
        with pytest.raises(RuntimeFailure) as late:
            await b.runtime.exec_sync(made, b.programs.stay(), 0.3)
        assert late.value.code == "DeadlineExceeded"
        with pytest.raises(RuntimeFailure, match="failed to exec in container"):
            await b.runtime.exec_sync(made, ("nosuchprogram",))
        assert b.state(made).state == "running"


async def test_a_command_with_a_client(harness: Play) -> None:
    async with harness() as b:
        made = await b.run(b.programs.stay())
        process, printed = await b.exec(made, b.programs.repeat(), stdin=True)
        process.write(b"one\n")
        process.write(b"two\n")
        process.end_input()
        async with asyncio.timeout(20):
            assert await process.wait() == 0
        assert b"".join(data for _, data in printed).split() == [b"one", b"two"]
        process, _ = await b.exec(made, b.programs.stay())
        process.close()
        async with asyncio.timeout(20):
            await process.wait()
        assert b.state(made).state == "running"


async def test_a_client_of_the_container_itself(harness: Play) -> None:
    async with harness() as b:
        made = await b.run(b.programs.repeat(), stdin=True, stdin_once=True)
        printed: list[bytes] = []
        process = await b.runtime.attach(
            made, lambda stream, data: printed.append(data), stdin=True
        )
        process.write(b"hello\n")
        await b.until(lambda: b"hello" in b"".join(printed))
        process.end_input()
        async with asyncio.timeout(20):
            assert await process.wait() == 0
        assert (await b.ended(made)).exit_code == 0
        assert b.printed(made) == ["hello"]
        with pytest.raises(RuntimeFailure, match="CONTAINER_EXITED"):
            await b.runtime.attach(made, lambda stream, data: None)


async def test_its_log_is_watched_and_rotated(harness: Play) -> None:
    async with harness() as b:
        made = await b.run(b.programs.repeat(), stdin=True)
        process = await b.runtime.attach(made, lambda stream, data: None, stdin=True)
        grown = asyncio.Event()
        end = b.runtime.watch_log(made, grown.set)
        process.write(b"before\n")
        async with asyncio.timeout(20):
            await grown.wait()
        await b.until(lambda: b.printed(made) == ["before"])
        path = b.state(made).log_path
        b.host.files.rename(path, f"{path}.1")
        b.runtime.reopen_log(made)
        await b.until(lambda: b.host.files.exists(path))
        process.write(b"after\n")
        await b.until(lambda: b.printed(made) == ["after"])
        assert b"before" in b.host.files.read(f"{path}.1")
        end()
        process.close()


async def test_statistics(harness: Play) -> None:
    async with harness() as b:
        sandbox = await b.sandbox()
        assert b.runtime.container_stats() == []
        made = await b.run(b.programs.stay(), sandbox)
        (row,) = b.runtime.container_stats("uid-1")
        assert (row.id, row.name) == (made, b.state(made).name)
        assert row.cpu is not None
        assert row.working_set is not None
        assert row.processes >= 1
        assert row.writable_layer is not None
        if b.real:
            assert row.cpu.core_nanoseconds > 0
            assert 0 < row.working_set <= row.usage
        assert b.runtime.image_filesystem().mount_point


async def test_images(harness: Play) -> None:
    async with harness() as b:
        with pytest.raises(RuntimeFailure) as missing:
            await b.runtime.pull_image("docker.io/nobody/nosuchimage:none")
        assert missing.value.code in ("NotFound", "Unknown")
        identity = await b.runtime.pull_image(b.image)
        found = b.runtime.image(b.image)
        assert found is not None
        assert b.runtime.image(found.id) == found
        assert found in list(b.runtime.images())
        assert identity
