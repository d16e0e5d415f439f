"""Windows containers as `NativeRuntime` needs them: the `Platform` of Wine."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from transom.hosts.windows.accounts import User
from transom.runtime.api import ContainerConfig, RuntimeFailure, SandboxConfig, Version, WindowsResources
from transom.runtime.native.platform import (
    CannotStart,
    ContainerRequest,
    Limits,
    Running,
    SandboxPlan,
    Spec,
    Usage,
)
from transom.runtime.wine import accounts, bundle, commandline, drives, environment, installation, jobs, limits, template, texts
from transom.runtime.wine.helpers import Helpers
from transom.runtime.wine.watching import watch
from transom.windows import builds

_PATIENCE: Final = 30.0  # for Wine to start the program
_SHUTDOWN_TIMEOUT: Final = 5.0  # WaitToKillServiceTimeout, which docker heeds and containerd does not
_DEFAULT_DIRECTORY: Final = "C:\\"
_ALWAYS_MISSING: Final = (
    "PowerShell is a stand-in that knows a part of the language; netsh, icacls and schtasks are stubs that do nothing",
    "the registry hives of image layers are not applied: what a Dockerfile has done to the registry is not there",
    "programs see all processors and all memory of the machine, whatever their limits",
    "a memory limit holds for each process, not for all of a container together",
    "32-bit programs do not run unless Wine's 32-bit part is installed",
)


class WinePlatform:
    """`cache` keeps the template and may be shared by all clusters of a machine; `build` is the node's, whose containers
    must fit it; None runs any."""

    os: Literal["linux", "windows"] = "windows"
    separator = "\\"
    raw_terminal = True

    def __init__(
        self, cache: Path, *, build: int | None = None, engine: Literal["containerd", "docker"] = "containerd",
        helpers: Helpers | None = None,
    ) -> None:  # fmt: skip
        self.version = Version("containerd", "1.4.3-wine") if engine == "containerd" else Version("docker", "19.3.14-wine")
        self._cache = cache
        self._build = build
        self._engine = engine
        self._texts = texts.TEXTS[engine]
        self._wine = installation.find()
        self._helpers = helpers or Helpers(cache)
        self._template: template.Template | None = None
        self._making = asyncio.Lock()

    # What there is

    def unusable(self) -> str:
        if self._wine is None:
            return "Wine (wine64) is not installed"
        return ""

    def missing(self) -> list[str]:
        rootless = [] if os.geteuid() == 0 else ["without root every account of a container may do everything in it"]
        return [*self._helpers.missing(), *rootless, *_ALWAYS_MISSING]

    async def prepare(self) -> template.Template:
        """Makes the template if there is none; costs nothing else."""
        if self._template is None:
            async with self._making:
                if self._template is None:
                    wine = self._installed()
                    try:
                        self._template = await asyncio.to_thread(template.prepare, self._cache, wine, self._helpers)
                    except (OSError, subprocess.SubprocessError) as problem:
                        raise RuntimeFailure("Unavailable", f"cannot make a Windows prefix: {problem}") from problem
        return self._template

    def _installed(self) -> installation.Installation:
        if self._wine is None:
            raise RuntimeFailure("Unavailable", self.unusable())
        return self._wine

    # Sandboxes and containers

    def sandbox(self, config: SandboxConfig, node: str) -> SandboxPlan:
        """Containers share the network only; each has its own of everything else."""
        return SandboxPlan(hostname=config.hostname or node, ipc=False, pid=False)

    async def layers(self, request: ContainerRequest) -> Sequence[Path]:
        made = await self.prepare()
        number = self._build_of(request).number
        if self._build is not None and not builds.process_isolation(self._build, number):
            raise self._texts.other_build(request.id, request.sandbox.plan.hostname)
        return [made.drive, made.helpers, *request.image.layers]

    def _build_of(self, request: ContainerRequest) -> builds.Build:
        named = builds.by_name(str(request.image.config.get("os.version", "")))
        return named or builds.BUILDS.get(self._build or 0, builds.DEFAULT)

    def limits(self, config: ContainerConfig, cpus: int) -> Limits:
        return limits.of(_resources(config), cpus)

    async def create(self, request: ContainerRequest) -> Spec:
        user = self._user(request)
        line = commandline.of_container(request.config, _image(request))
        if not line:
            raise self._texts.no_command(request.id)
        if user is None:
            raise self._texts.cannot_start(request.id, texts.BAD_LOGON)
        made, wine = await self.prepare(), self._installed()
        return await asyncio.to_thread(self._write, request, user, line, made, wine)

    def _write(
        self, request: ContainerRequest, user: User, line: str, made: template.Template, wine: installation.Installation
    ) -> Spec:
        at, owner, hostname = bundle.places(request), accounts.unix_id(user), request.sandbox.plan.hostname
        at.prefix.mkdir(parents=True)
        drives.unite(request.snapshot, made.drive, request.image.layers)
        made.write_registry(at.prefix, self._build_of(request), bundle.adapter(request))
        bundle.make_prefix(at.prefix, owner, request)
        root = bundle.make_root(wine, user, self._helpers, request)
        if owner:
            bundle.let_users_write(request.snapshot, request.image.layers)
        profile = request.snapshot / drives.spelt(request.snapshot, drives.split(user.profile)[1])
        if not profile.is_dir():
            template.make_profile(profile, owner)
        if self._helpers.get("wdns.so") is None:
            bundle.announce_names(request.snapshot, hostname, request.sandbox.ips)
        command = self._command(request, user, line, jobs.MAIN, wine)
        args = bundle.first_args(wine, self._helpers, request, command)
        return bundle.specification(wine, request, root, self._process(request, user, args, wine), made.texts)

    def _command(
        self, request: ContainerRequest, user: User, line: str, name: str, wine: installation.Installation
    ) -> list[str]:
        """What Unix is to run for a Windows command line."""
        if self._helpers.get("winrun.exe") is None:
            return [str(wine.loader), *commandline.split(line)]
        jobs.write(
            bundle.places(request).prefix, name, accounts.unix_id(user), cwd=_directory(request), command=line,
            env=self._environment(request, user),
        )  # fmt: skip
        return [str(wine.loader), bundle.WINRUN, jobs.inside(name)]

    def _process(self, request: ContainerRequest, user: User, args: Sequence[str], wine: installation.Installation) -> Spec:
        address = next(iter(request.sandbox.ips), "")
        bare = self._helpers.get("winrun.exe") is None
        extra = self._given(request) if bare else []
        if bare:  # Wine's own way for additions to the path
            extra += [("WINEPATH", value) for name, value in extra if name.lower() == "path"]
        return bundle.process(
            wine, user, args, address, self._helpers, data=limits.of_process(_resources(request.config)), extra=extra
        )

    def _environment(self, request: ContainerRequest, user: User) -> dict[str, str]:
        cpus = _resources(request.config).cpu_count or os.cpu_count() or 1
        return environment.of_process(user, request.sandbox.plan.hostname, cpus, self._given(request))

    def _given(self, request: ContainerRequest) -> list[tuple[str, str]]:
        return [*environment.of_image(_image(request).get("Env") or ()), *request.config.env]

    def _user(self, request: ContainerRequest) -> User | None:
        return accounts.find(request.config, _image(request), request.image.layers, request.sandbox.plan.hostname)

    async def started(self, container: Running) -> None:
        """Waits until Windows has made the process, or has said why not."""
        if self._helpers.get("winrun.exe") is None:
            return
        request = container.request
        prefix, loop = bundle.places(request).prefix, asyncio.get_running_loop()
        end = loop.time() + _PATIENCE
        with watch(jobs.folder(prefix), container.pid) as news:
            while loop.time() < end:
                alive = _alive(container.pid)  # before the look at what it has written, which may be its last word
                state = jobs.read(prefix, jobs.MAIN)
                if state.what == "error":
                    raise self._texts.cannot_start(request.id, state.number)
                if state.what != "nothing" or not alive:
                    return
                await news.wait()

    def failure(self, request: ContainerRequest, text: str) -> CannotStart:
        return self._texts.cannot_create(request.id, text)

    # Commands

    def exec_process(self, container: Running, command: Sequence[str], *, tty: bool, exec_id: str) -> Spec:
        request = container.request
        user, wine = self._user(request), self._installed()
        if user is None:
            raise self._texts.cannot_exec(request.id, exec_id, texts.BAD_LOGON)
        folders = environment.search_path(self._environment(request, user))
        seen = Path(f"/proc/{container.pid}/root{jobs.PREFIX}")  # with its volumes
        known = os.access(seen, os.R_OK)  # not to those who are not root
        if not command or (known and not drives.find_program(seen, command[0], folders, _directory(request))):
            raise self._texts.cannot_exec(request.id, exec_id, texts.NOT_FOUND)
        args = self._command(request, user, commandline.join(command), exec_id, wine)
        return self._process(request, user, args, wine)

    def exec_failure(self, container: Running, exec_id: str, command: Sequence[str], text: str) -> RuntimeFailure:
        return self._texts.exec_failed(exec_id, text)

    # The end

    def stop_patience(self, container: Running, grace: float) -> float:
        return min(grace, _SHUTDOWN_TIMEOUT) if self._engine == "docker" else grace

    async def stop(self, container: Running) -> None:
        """The init makes CTRL_SHUTDOWN_EVENT of it; without one nobody would listen."""
        container.signal(signal.SIGTERM if self._helpers.get("init") is not None else signal.SIGKILL)

    def exit_code(self, request: ContainerRequest, status: int, exec_id: str = "") -> int:
        prefix, name = bundle.places(request).prefix, exec_id or jobs.MAIN
        code = jobs.exit_code(jobs.read(prefix, name), status)
        if exec_id:
            jobs.forget(prefix, name)
        return code

    def finished(self, request: ContainerRequest) -> None:
        """Everything is in the container's own folder, which goes with it."""

    # Statistics

    def usage(self, request: ContainerRequest, counted: Usage) -> Usage:
        return limits.shown(_resources(request.config), counted)

    def layer_usage(self, request: ContainerRequest, counted: tuple[int, int]) -> tuple[int, int]:
        """NTFS counts no inodes."""
        return counted[0], 0


def _alive(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")


def _resources(config: ContainerConfig) -> WindowsResources:
    return config.windows.resources if config.windows is not None else WindowsResources()


def _image(request: ContainerRequest) -> Mapping[str, Any]:
    found = request.image.config.get("config")
    return found if isinstance(found, Mapping) else {}


def _directory(request: ContainerRequest) -> str:
    return request.config.working_dir or str(_image(request).get("WorkingDir") or "") or _DEFAULT_DIRECTORY
