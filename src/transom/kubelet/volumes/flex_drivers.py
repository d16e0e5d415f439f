"""FlexVolume drivers: where they are, how they are run, and what their responses mean.

A driver is a program that is started for each command and responds with one JSON object. On a
simulated node the file in the node's plugin directory runs as a program of that node. On a node
with real files the driver runs on this machine with the rights of the kubelet. So only drivers that
the cluster's owner has installed run there, from a directory outside the node's files: a pod with a
hostPath can write to those. Such drivers mount volumes in a directory that no container can reach,
and the kubelet mounts the result where the pod needs it: a driver never receives a path that a
container can change.

Windows nodes with real files (Wine) cannot run Windows scripts: Microsoft's smb.cmd and iscsi.cmd
are built in there.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from typing import Any, Final, Protocol, runtime_checkable

from transom.kit.lazy_dataclass import dataclass
from transom.kit.programs import call_program
from transom.kit.trust import UntrustedProgram, check_program
from transom.kubelet.base import KubeletContext
from transom.kubelet.failures import VolumeFailure
from transom.machinery import gojson
from transom.machinery.objects import TooDeep
from transom.machines import mounting

log = logging.getLogger("transom.kubelet")

FOLDER: Final = "/usr/libexec/kubernetes/kubelet-plugins/volume/exec"
NOT_SUPPORTED: Final = "Not supported"
_SECONDS: Final = 120.0
_MOUNT, _UNMOUNT = (
    ("mount", "mountdevice"),
    ("unmount", "unmountdevice"),
)  # their first argument is a directory of the node
_EXPAND: Final = ("expandvolume", "expandfs")
_WINDOWS: Final = (".cmd", ".exe", ".ps1", ".bat")
_FIELDS: Final = {
    name.lower(): name
    for name in (
        "status",
        "message",
        "device",
        "volumeName",
        "attached",
        "capabilities",
        "volumeNewSize",
    )
}
_SMB, _ISCSI = "microsoft.com~smb.cmd", "microsoft.com~iscsi.cmd"


class NotSupported(VolumeFailure):
    """The driver leaves this command to the kubelet."""


@dataclass(slots=True)
class FlexDriver:
    """A driver whose `init` has succeeded. `folder` is `VENDOR~NAME`; `stamp` distinguishes one
    version of its file from another.
    """

    folder: str
    path: str
    stamp: object = None
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    # commands that it does not support; they are not called again
    unsupported: set[str] = field(default_factory=set)
    # of attached volumes, by the volumes' names
    devices: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.folder.replace("~", "/", 1)

    @property
    def attaches(self) -> bool:
        return bool(self.capabilities.get("attach", True))

    @property
    def gives_group(self) -> bool:
        return bool(self.capabilities.get("fsGroup", True))


class FlexDrivers:
    """The drivers that a kubelet has found. Calls a driver's `init` when it is first needed, and
    again when its file has changed.
    """

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[str, FlexDriver] = {}

    async def get(self, env: KubeletContext, folder: str) -> FlexDriver | None:
        """None when there is no such driver, or its `init` fails. Raises VolumeFailure for one that
        must not run.
        """
        path = find_flex_driver(env, folder)
        if path is None:
            self._known.pop(folder, None)
            return None
        stamp = _stamp(env, folder, path)
        known = self._known.get(folder)
        if known is not None and known.stamp == stamp:
            return known
        driver = FlexDriver(folder, path, stamp)
        try:
            answer = await call_flex_driver(env, driver, "init")
        except NotTrusted:
            raise
        except VolumeFailure as problem:
            log.warning(
                "Error creating Flexvolume plugin from directory %s, skipping. Error: %s",
                folder,
                problem,
            )
            # Kubernetes keeps using the one that worked
            return known if known is not None else None
        driver.capabilities = answer.get("capabilities") or {}
        if known is not None:
            driver.devices = known.devices
        self._known[folder] = driver
        return driver


class NotTrusted(VolumeFailure):
    """A driver that was not installed by the cluster's owner."""


@runtime_checkable
class _Real(Protocol):
    def bind(self, source: str, path: str) -> None: ...
    def is_mount(self, path: str) -> bool: ...
    def unmount(self, path: str) -> None: ...


def flex_driver_folder(driver: str) -> str:
    """`microsoft.com/smb.cmd` is in `microsoft.com~smb.cmd`."""
    return driver.replace("/", "~")


def find_flex_driver(env: KubeletContext, folder: str) -> str | None:
    """The path of the driver on the node; None when there is no such driver."""
    if not folder or folder.startswith(".") or "\0" in folder:
        return None
    path = env.os.join(env.os.host_path(FOLDER), folder, folder.rpartition("~")[2])
    if _is_run(env, path) and os.path.exists(_installed(env, folder)):
        return path
    return path if env.host.files.exists(path) else None


def _is_run(env: KubeletContext, path: str) -> bool:
    return isinstance(env.host.files, _Real) and not path.lower().endswith(_WINDOWS)


def _installed(env: KubeletContext, folder: str) -> str:
    """Where the cluster's owner installs it on this machine."""
    return os.path.join(env.drivers.programs or "/nonexistent", folder, folder.rpartition("~")[2])


def _stamp(env: KubeletContext, folder: str, path: str) -> object:
    if _is_run(env, path):
        try:
            found = os.stat(_installed(env, folder))
            return found.st_mtime_ns, found.st_size, found.st_ino
        except OSError:
            return None
    state = env.host.files.stat(path)
    return state.mtime, state.size, state.mode


async def call_flex_driver(
    env: KubeletContext, driver: FlexDriver, command: str, *arguments: str
) -> dict[str, Any]:
    """The driver's response. Raises NotSupported, and VolumeFailure with the driver's message."""
    if command in driver.unsupported:
        raise NotSupported(NOT_SUPPORTED)
    try:
        return await _call(env, driver, command, arguments)
    except NotSupported:
        driver.unsupported.add(command)
        raise


async def _call(
    env: KubeletContext, driver: FlexDriver, command: str, arguments: Sequence[str]
) -> dict[str, Any]:
    files = env.host.files
    if not isinstance(files, _Real):
        return await _run_on_node(env, driver, command, arguments)
    if not _is_run(env, driver.path):
        return _answer(
            command, json.dumps(_BuiltIn(env, driver).answer(command, arguments)).encode(), ""
        )
    if command in _MOUNT:
        return await _mount(env, files, driver, command, arguments)
    if command in _UNMOUNT:
        return await _unmount(env, files, driver, command, arguments)
    if command in _EXPAND:  # the node's path has another meaning on this machine
        raise VolumeFailure(f"{command} is not called on nodes with real containers")
    return await _run(env, driver, command, arguments)


async def _run_on_node(
    env: KubeletContext, driver: FlexDriver, command: str, arguments: Sequence[str]
) -> dict[str, Any]:
    """Runs the file on the simulated node."""
    if env.run_program is None:
        raise VolumeFailure(f"fork/exec {driver.path}: programs of this node do not run")
    try:
        code, output, _ = await env.run_program([driver.path, command, *arguments], _SECONDS)
    except TimeoutError as problem:
        raise VolumeFailure("Timeout") from problem
    except OSError as problem:
        why = (problem.strerror or str(problem)).rstrip()
        raise VolumeFailure(
            f"fork/exec {driver.path}: {why if '%1' in why else why.lower()}"
        ) from problem
    return _answer(command, output, f"exit status {code}" if code else "")


def _answer(command: str, output: bytes, problem: str) -> dict[str, Any]:
    try:
        answer = gojson.loads(output)
    except (gojson.JsonError, TooDeep) as error:
        raise VolumeFailure(str(error)) from error
    if not isinstance(answer, dict):
        kind = gojson.kind_of(output.strip())
        raise VolumeFailure(
            f"json: cannot unmarshal {kind} into Go value of type flexvolume.DriverStatus"
        )
    # Go ignores case here
    answer = {_FIELDS.get(key.lower(), key): value for key, value in answer.items()}
    status = answer.get("status", "")
    if status == NOT_SUPPORTED:
        raise NotSupported(NOT_SUPPORTED)
    if status != "Success":
        raise VolumeFailure(
            f"{command} command failed, status: {status}, reason: {answer.get('message') or ''}"
        )
    if problem:
        raise VolumeFailure(problem)
    return answer


def _program(env: KubeletContext, driver: FlexDriver) -> str:
    """The program to run. Raises VolumeFailure when the cluster's owner did not install it."""
    installed, begin = _installed(env, driver.folder), f"fork/exec {driver.path}: permission denied"
    try:
        return check_program(installed, env.drivers.writable)
    except FileNotFoundError as problem:
        folder = env.drivers.programs or "no folder"
        raise NotTrusted(
            f"{begin}: the driver was not installed by the cluster's owner, whose drivers "
            f"are in {folder}"
        ) from problem
    except UntrustedProgram as problem:
        raise NotTrusted(f"{begin}: {problem.reason}") from problem


async def _run(
    env: KubeletContext, driver: FlexDriver, command: str, arguments: Sequence[str]
) -> dict[str, Any]:
    argv = [_program(env, driver), command, *arguments]
    try:
        code, output, _ = await call_program(
            argv, seconds=_SECONDS, merge_stderr=True, outside=env.drivers.writable
        )
    except TimeoutError as problem:
        raise VolumeFailure("Timeout") from problem
    except (OSError, ValueError) as problem:  # ValueError: a NUL in an argument
        why = (
            os.strerror(problem.errno or 0) if isinstance(problem, OSError) else "invalid argument"
        )
        raise VolumeFailure(f"fork/exec {driver.path}: {why.lower()}") from problem
    return _answer(command, output, f"exit status {code}" if code else "")


# ---- mounts ----


def _staged(env: KubeletContext, path: str) -> str:
    """Where a driver mounts the volume for a path of the node."""
    return os.path.join(env.drivers.staging, hashlib.sha256(path.encode()).hexdigest()[:32])


async def _mount(
    env: KubeletContext, files: _Real, driver: FlexDriver, command: str, arguments: Sequence[str]
) -> dict[str, Any]:
    path, staged = arguments[0], _staged(env, arguments[0])
    try:
        os.makedirs(env.drivers.staging, 0o700, exist_ok=True)
        with suppress(FileExistsError):
            os.mkdir(staged, 0o750)
    except OSError as problem:
        raise VolumeFailure(
            f"mkdir {staged}: {os.strerror(problem.errno or 0).lower()}"
        ) from problem
    try:
        answer = await _run(env, driver, command, (staged, *arguments[1:]))
    except VolumeFailure:
        _remove_empty(staged)
        raise
    try:
        files.bind(staged, path)
    except OSError as problem:
        await _run(env, driver, f"un{command}", (staged,))
        _remove_empty(staged)
        raise VolumeFailure(f"mount {path}: {os.strerror(problem.errno or 0).lower()}") from problem
    return answer


async def _unmount(
    env: KubeletContext, files: _Real, driver: FlexDriver, command: str, arguments: Sequence[str]
) -> dict[str, Any]:
    path, staged = arguments[0], _staged(env, arguments[0])
    with suppress(FileNotFoundError):
        files.unmount(path)
    try:
        answer = await _run(env, driver, command, (staged, *arguments[1:]))
    except NotSupported:
        mounting.unmount_filesystem(staged)
        _remove_empty(staged)
        raise
    _remove_empty(staged)
    return answer


def _remove_empty(folder: str) -> None:
    """Removes files that a driver left without mounting anything; keeps whatever is still mounted
    there.
    """
    if os.path.isdir(folder) and not mounting.mount_points(os.path.realpath(folder)):
        shutil.rmtree(folder, ignore_errors=True)


class _BuiltIn:
    """Microsoft's drivers on a node that cannot run them; any other driver mounts a directory named
    after its volume.
    """

    def __init__(self, env: KubeletContext, driver: FlexDriver) -> None:
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
        backing = env.os.join(
            env.config.root_dir,
            "plugins",
            "kubernetes.io/flexvolume",
            self._driver.folder,
            "mounts",
            name,
        )
        files.mkdir(backing, 0o755)
        if files.exists(target) and not env.os.mounted(files, target):
            files.remove(target)
        env.os.bind(files, backing, target)
        return {"status": "Success", "message": f"Mounted {source} on {target}"}

    def _source(self, options: Mapping[str, str]) -> tuple[str, str]:
        """Why it fails, and what is mounted."""
        if self._driver.folder == _SMB:
            source = options.get("source", "").removeprefix("smb:").replace("/", "\\")
            if (
                not source.startswith("\\\\")
                or len([part for part in source.split("\\") if part]) < 2
            ):
                return f"the source '{options.get('source', '')}' is not a share", ""
            return "", source.lower()
        if self._driver.folder == _ISCSI:
            missing = [key for key in ("targetPortal", "iqn") if not options.get(key)]
            lun = options.get("lun", "0")
            if missing:
                return f"the option {missing[0]} is missing", ""
            return "", f"{options['targetPortal']}-{options['iqn']}-lun-{lun}"
        return "", options.get("kubernetes.io/pvOrVolumeName", "volume")
