"""Runs what needs much memory or CPU in a child process: doctor, scheduling explanations and lint of
large texts.

The console stays small and responsive while doctor examines ten thousand pods, and the memory is
free again afterwards. The child gets its job and the credentials of the console through a pipe;
`job_process` is its program.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from enum import StrEnum
from typing import Any, Final, Protocol

import orjson

from transom.client.kubeconfig import RestConfig, config_document
from transom.kit.programs import call_program
from transom.machinery.errors import ApiError

log = logging.getLogger("transom.web")

MOST_CHILDREN: Final = 2  # at once; more jobs wait
_MOST_WAITING: Final = 16
_SECONDS: Final = 120.0  # for one job


class Job(StrEnum):
    DOCTOR = "doctor"
    EXPLAIN_POD = "explain-pod"
    LINT = "lint"
    LINT_REPORT = "lint-report"


class JobRunner(Protocol):
    async def run(self, job: Job, *arguments: str) -> Any: ...


class ChildJobs:
    """The child processes of one console, for the identity and cluster of `target`."""

    def __init__(self, target: RestConfig) -> None:
        self._target = target
        self._room = asyncio.Semaphore(MOST_CHILDREN)
        self._waiting = 0

    async def run(self, job: Job, *arguments: str) -> Any:
        """The result of a job; an ApiError if it fails. A cancelled job ends its process."""
        if self._waiting >= _MOST_WAITING:
            raise ApiError(503, "ServiceUnavailable", "the console is busy: try again")
        self._waiting += 1
        try:
            async with self._room:
                return _result(await self._run(job, arguments))
        finally:
            self._waiting -= 1

    async def _run(self, job: Job, arguments: tuple[str, ...]) -> bytes:
        target = config_document(self._target)
        order = orjson.dumps({"job": job, "target": target, "arguments": arguments})
        command = [sys.executable, "-P", "-m", "transom.web.job_process"]
        try:
            _, output, problems = await call_program(
                command, env=os.environ, input=order, seconds=_SECONDS
            )
        except TimeoutError:
            raise ApiError(504, "Timeout", f"{job} takes more than {_SECONDS:.0f} s") from None
        if problems:
            log.error("%s: %s", job, problems.decode(errors="replace").strip())
        return output


def _result(output: bytes) -> Any:
    try:
        answer = orjson.loads(output)
    except orjson.JSONDecodeError:
        text = "the process that examines the cluster ended early; the console's log has the reason"
        raise ApiError(500, "InternalError", text) from None
    if "error" in answer:
        raise ApiError(answer["code"], "", answer["error"])
    return answer["result"]
