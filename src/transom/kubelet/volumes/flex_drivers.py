"""FlexVolume drivers: where they lie on a node, how they are run, and what their answers mean.

A driver is a program that is started for each command and answers in JSON. On a node with real files it is really run, with
paths of this machine. On a simulated node nothing runs: a driver whose file is there behaves as the one of its name would,
Microsoft's smb.cmd and iscsi.cmd with their options, any other as one that needs no attaching; what it mounts is a directory
of the node.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, runtime_checkable

from transom.kubelet.base import Env, VolumeFailure

FOLDER: Final = "/usr/libexec/kubernetes/kubelet-plugins/volume/exec"
NOT_SUPPORTED: Final = "Not supported"
_SECONDS: Final = 120.0
_WINDOWS: Final = (".cmd", ".exe", ".ps1", ".bat")
_SMB, _ISCSI = "microsoft.com~smb.cmd", "microsoft.com~iscsi.cmd"


class NotSupported(VolumeFailure):
    """The driver leaves this command to the kubelet."""


@dataclass(slots=True)
class FlexDriver:
    """`folder` is `VENDOR~NAME`; `capabilities` what `init` has answered."""

    folder: str
    path: str
    capabilities: Mapping[str, Any] = field(default_factory=dict)

    @property
    def attaches(self) -> bool:
        return bool(self.capabilities.get("attach", True))


@runtime_checkable
class _Real(Protocol):
    def real(self, path: str) -> str: ...


def folder_of(driver: str) -> str:
    """`microsoft.com/smb.cmd` lies in `microsoft.com~smb.cmd`."""
    return driver.replace("/", "~")


def find(env: Env, folder: str) -> str | None:
    """The driver's program, when it is on the node."""
    path = env.os.join(env.os.host_path(FOLDER), folder, folder.rpartition("~")[2])
    return path if not folder.startswith(".") and env.host.files.exists(path) else None


async def call(env: Env, driver: FlexDriver, command: str, *arguments: str) -> dict[str, Any]:
    """The driver's answer. Raises NotSupported, and VolumeFailure with the driver's message."""
    files = env.host.files
    if isinstance(files, _Real) and not driver.path.lower().endswith(_WINDOWS):
        output, problem = await _run(files, env, driver.path, command, arguments)
    else:
        output, problem = json.dumps(_Simulated(env, driver).answer(command, arguments)), ""
    try:
        answer = json.loads(output)
    except ValueError as error:
        raise VolumeFailure(problem or _bad_json(output)) from error
    status = answer.get("status") if isinstance(answer, dict) else None
    if status == NOT_SUPPORTED:
        raise NotSupported(NOT_SUPPORTED)
    if status != "Success":
        message = answer.get("message", "") if isinstance(answer, dict) else ""
        raise VolumeFailure(f"{command} command failed, status: {status}, reason: {message}")
    if problem:
        raise VolumeFailure(problem)
    return dict(answer)


def _bad_json(output: str) -> str:
    if not output.strip():
        return "unexpected end of JSON input"
    return f"invalid character '{output.strip()[0]}' looking for beginning of value"


async def _run(files: _Real, env: Env, path: str, command: str, arguments: Sequence[str]) -> tuple[str, str]:
    """What it said, and how it failed. Paths of the node become those of this machine."""
    root = env.config.root_dir
    given = [_on_this_machine(files, one) if one.startswith(root) else one for one in arguments]
    try:
        process = await asyncio.create_subprocess_exec(
            files.real(path), command, *given, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT, start_new_session=True,
        )
    except OSError as problem:
        return "", f"fork/exec {path}: {os.strerror(problem.errno or 0).lower()}"
    try:
        async with asyncio.timeout(_SECONDS):
            output, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return "", "Timeout"
    return output.decode(errors="replace"), f"exit status {process.returncode}" if process.returncode else ""


def _on_this_machine(files: _Real, path: str) -> str:
    """The place itself, also where there is a link."""
    folder, _, name = path.rpartition("/")
    return f"{files.real(folder)}/{name}"


class _Simulated:
    """A driver that does not run."""

    def __init__(self, env: Env, driver: FlexDriver) -> None:
        self._env = env
        self._driver = driver

    def answer(self, command: str, arguments: Sequence[str]) -> dict[str, Any]:
        if command == "init":
            return {"status": "Success", "capabilities": {"attach": False}}
        if command == "mount":
            return self._mount(arguments[0], json.loads(arguments[1]))
        if command == "unmount":
            if self._env.os.mounted(self._env.host.files, arguments[0]):
                self._env.host.files.remove(arguments[0])
            return {"status": "Success", "message": f"Unmounted {arguments[0]}"}
        return {"status": NOT_SUPPORTED, "message": f"Unsupported command {command}"}

    def _mount(self, target: str, options: Mapping[str, str]) -> dict[str, Any]:
        env, files = self._env, self._env.host.files
        problem, source = self._source(options)
        if problem:
            return {"status": "Failure", "message": f"Caught exception {problem}"}
        name = "".join(c if c.isalnum() or c in "-_." else "~" for c in source)
        backing = env.os.join(env.config.root_dir, "plugins", "kubernetes.io/flexvolume", self._driver.folder, "mounts", name)
        files.mkdir(backing, 0o755)
        if files.exists(target) and not env.os.mounted(files, target):
            files.remove(target)
        env.os.bind(files, backing, target)
        return {"status": "Success", "message": f"Mounted {source} on {target}"}

    def _source(self, options: Mapping[str, str]) -> tuple[str, str]:
        """Why it fails, and what is mounted."""
        if self._driver.folder == _SMB:
            source = options.get("source", "").removeprefix("smb:").replace("/", "\\")
            if not source.startswith("\\\\") or len([part for part in source.split("\\") if part]) < 2:
                return f"the source '{options.get('source', '')}' is no share", ""
            return "", source.lower()
        if self._driver.folder == _ISCSI:
            missing = [key for key in ("targetPortal", "iqn") if not options.get(key)]
            lun = options.get("lun", "0")
            if missing:
                return f"the option {missing[0]} is missing", ""
            return "", f"{options['targetPortal']}-{options['iqn']}-lun-{lun}"
        return "", options.get("kubernetes.io/pvOrVolumeName", "volume")
