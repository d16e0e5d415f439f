"""The only place from which Transom starts programs (except the monitor: see
`trust.spawn_program`).

Every program is checked by `trust` first. It starts in `/`, in a session of its own, with a short
environment instead of this process's, and without any of its descriptors.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from typing import IO

from transom.kit.trust import clean_environment, executable


def run_program(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    input: bytes | None = None,
    timeout: float | None = None,
    cwd: str = "/",
    check: bool = False,
    capture: bool = True,
    output: IO[bytes] | None = None,
    outside: Sequence[str] = (),
) -> subprocess.CompletedProcess[bytes]:
    """Runs a program until it exits. Raises OSError and SubprocessError. `argv[0]` is an absolute
    path or a name. Its standard output goes to `output` if given.
    """
    out = subprocess.PIPE if capture else subprocess.DEVNULL
    return subprocess.run(
        list(argv),
        executable=executable(argv, outside),
        env=dict(clean_environment() if env is None else env),
        stdin=subprocess.DEVNULL if input is None else None,
        input=input,
        stdout=out if output is None else output,
        stderr=out,
        timeout=timeout,
        cwd=cwd,
        check=check,
        close_fds=True,
        start_new_session=True,
    )


async def call_program(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    input: bytes | None = None,
    seconds: float | None = None,
    merge_stderr: bool = False,
    outside: Sequence[str] = (),
) -> tuple[int, bytes, bytes]:
    """Runs a program until it exits, without blocking: exit code, standard output, standard error.
    A program that takes too long is killed. Raises OSError and TimeoutError.
    """
    process = await asyncio.create_subprocess_exec(
        *argv,
        executable=executable(argv, outside),
        env=dict(clean_environment() if env is None else env),
        stdin=asyncio.subprocess.DEVNULL if input is None else asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT if merge_stderr else asyncio.subprocess.PIPE,
        cwd="/",
        close_fds=True,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(seconds):
            output, errors = await process.communicate(input)
    except BaseException:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # kills its children too
            await process.wait()
        raise
    return process.returncode or 0, output, errors or b""
