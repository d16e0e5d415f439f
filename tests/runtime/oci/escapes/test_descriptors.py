"""CVE-2024-21626: descriptors that a runtime leaves open lead out of a container, as a working
directory or otherwise. CVE-2019-5736: a container overwrites the runtime's program by
/proc/self/exe.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.oci.escapes.attack import SHELL, running, tried

from transom.runtime.api import RuntimeFailure
from transom.runtime.native import commands
from transom.runtime.native.monitor.loop import close_descriptors_on_exec
from transom.runtime.native.runc import verifies_directory

Play = Callable[[Any], None]


def _look(secret: Path) -> str:
    """Reads a file of the machine from wherever the process is, if that is outside."""
    return (
        "for up in . .. ../.. ../../.. ../../../.. ../../../../.. ../../../../../..; do cat "
        f"$up{secret}; done; true"
    )


@pytest.mark.parametrize(
    "directory",
    ["/proc/self/fd/{}", "/proc/thread-self/fd/{}", "/dev/fd/{}", "/proc/1/fd/{}", "/link/{}"],
)
async def test_a_working_directory_that_is_a_descriptor(
    oci: Play, tmp_path: Path, directory: str
) -> None:
    async with oci() as b:
        secret = tmp_path / "secret"
        secret.write_text("of the machine\n")
        extra = tmp_path / "extra"
        extra.mkdir()
        (extra / "link").symlink_to("/proc/self/fd")
        assert b.add_image is not None
        b.add_image("evil", [extra])
        sandbox = await b.sandbox()
        for number in (3, 7, 8, 9):
            with pytest.raises(RuntimeFailure, match="outside of container mount namespace root"):
                await b.run(
                    (*SHELL, _look(secret)),
                    sandbox,
                    image="evil",
                    working_dir=directory.format(number),
                )


async def test_a_working_directory_that_becomes_one(oci: Play, tmp_path: Path) -> None:
    """A command in a container whose working directory the container has exchanged for a link."""

    async with oci() as b:
        secret = tmp_path / "secret"
        secret.write_text("of the machine\n")
        for number in range(3, 12):
            made = await b.run(
                (
                    *SHELL,
                    f"rmdir /work; ln -s /proc/self/fd/{number} /work; echo ready; sleep 1000",
                ),
                "",
                working_dir="/work",
            )
            await b.ready(made)
            try:
                printed = (await b.runtime.exec_sync(made, (*SHELL, _look(secret)), 10)).stdout
            except RuntimeFailure:
                printed = b""
            await b.runtime.stop_container(made, 0)
            assert b"of the machine" not in printed


async def test_containers_have_three_descriptors(oci: Play) -> None:
    async with oci() as b:
        made = await b.run(("sleep", "1000"))

        async def descriptors(process: str) -> dict[str, str]:
            printed = (
                await b.runtime.exec_sync(made, ("ls", "-l", f"/proc/{process}/fd"))
            ).stdout.decode()
            return {
                row[0]: row[1]
                for line in printed.splitlines()
                if " -> " in line
                for row in [line.split()[-3::2]]
            }

        first = await descriptors("1")
        command = await descriptors("self")
        command.pop("3", "")  # the listing's own, when it was quick
        for found in (first, command):
            assert sorted(found) == ["0", "1", "2"]
            assert all(
                target == "/dev/null" or target.startswith("pipe:") for target in found.values()
            ), found


def test_what_is_left_inheritable_is_not_inherited() -> None:
    reader, writer = os.pipe()
    try:
        os.set_inheritable(reader, True)
        close_descriptors_on_exec()
        assert not os.get_inheritable(reader)
    finally:
        os.close(reader)
        os.close(writer)


async def test_the_runtime_is_not_overwritten(oci: Play, tmp_path: Path) -> None:
    """A command of the container is a link to /proc/self/exe: the runtime runs itself, and a
    process of the container waits for that to write to its file. The runtime is a copy here: who is
    vulnerable loses only that.
    """

    async with oci() as b:
        core = b.runtime._core
        program = tmp_path / "runc"
        shutil.copy(core.runc.program, program)
        core.runc = core.runc._replace(program=str(program))
        before = hashlib.sha256(program.read_bytes()).digest()
        hunt = (
            "rm -f /bin/evil; ln -s /proc/self/exe /bin/evil; echo ready; while true; do for "
            "p in /proc/[0-9]*; do "
            "case $(readlink $p/exe) in *runc*) exec 9<$p/exe; echo found; "
            "for i in 1 2 3 4 5 6 7 8 9; do (echo '#!/bin/sh' > /proc/self/fd/9) 2>/dev/null "
            "&& echo overwritten; done;; esac; "
            "done; done 2>/dev/null"
        )
        async with running(b, hunt, await b.sandbox()) as made:
            for _ in range(10):
                try:
                    async with asyncio.timeout(10):
                        await b.runtime.exec_sync(made, ("/bin/evil", "init"), 5)
                except RuntimeFailure:
                    continue
            assert "overwritten" not in b.printed(made)
        assert hashlib.sha256(program.read_bytes()).digest() == before
        assert await tried(b, "echo works", await b.sandbox("uid-2")) == ["works"]


async def test_a_runtime_without_the_check_gets_the_root_as_directory(
    oci: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with oci() as b:
        made = await b.run(("sleep", "1000"), working_dir="/tmp")
        assert (await b.runtime.exec_sync(made, ("pwd",))).stdout == b"/tmp\n"
        monkeypatch.setattr(commands, "verifies_directory", lambda program: False)
        assert (await b.runtime.exec_sync(made, ("pwd",))).stdout == b"/\n"
    words = b"... possible container breakout detected ..."
    for name, content, known in (("new/runc", words, True), ("old/runc", b"...", False)):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(content)
        assert verifies_directory(str(tmp_path / name)) is known
