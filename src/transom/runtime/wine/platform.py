"""The `RuntimePlatform` for Windows containers under Wine."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import SubprocessError
from typing import Any, Final, Literal

from transom.kit.argv import join_arguments
from transom.kit.versions import version_numbers
from transom.machines.windows import host_process as host_process_rules
from transom.machines.windows.accounts import WindowsUser
from transom.runtime.api import (
    ContainerConfig,
    RuntimeFailure,
    RuntimeVersion,
    SandboxConfig,
    WindowsResources,
)
from transom.runtime.imagevolumes import IMAGE_VOLUMES_ON_WINDOWS
from transom.runtime.native.platform import (
    CannotStart,
    CgroupLimits,
    CgroupUsage,
    ContainerRequest,
    RunningContainer,
    SandboxPlan,
    Spec,
)
from transom.runtime.sim.texts import DockerTexts
from transom.runtime.wine import (
    accounts,
    bundle,
    commandline,
    drives,
    environment,
    installation,
    jobs,
    limits,
    template,
    texts,
)
from transom.runtime.wine import host_process as host_processes
from transom.runtime.wine.helpers import Helpers
from transom.runtime.wine.watching import watch_job
from transom.windows import builds

_TIMEOUT_SECONDS: Final = 30.0  # for Wine to start the program
_SHUTDOWN_TIMEOUT: Final = 5.0  # WaitToKillServiceTimeout of a fresh Windows
_SHUTDOWN_REPORT: Final = 1.0  # seconds within which a container can report a different value
_DEFAULT_DIRECTORY: Final = "C:\\"
_ALWAYS_MISSING: Final = (
    (
        "PowerShell is a stand-in that knows a part of the language; netsh, icacls and schtasks "
        "are stubs that do nothing"
    ),
    (
        "the registry hives of image layers are not applied: what a Dockerfile has done to the "
        "registry is not there"
    ),
    "programs see all processors and all memory of the machine, whatever their limits",
    "a memory limit holds for each process, not for all of a container together",
    "32-bit programs do not run unless Wine's 32-bit part is installed",
)


class WinePlatform:
    """`cache` keeps the template and may be shared by all clusters of a machine; `build` is the
    node's, which containers must match; None runs any.
    """

    os: Literal["linux", "windows"] = "windows"
    separator = "\\"
    user_namespaces = False
    demands_user_namespaces = False
    raw_terminal = True

    def __init__(
        self,
        cache: Path,
        *,
        build: int | None = None,
        engine: Literal["containerd", "docker"] = "containerd",
        version: str = "",
        helpers: Helpers | None = None,
    ) -> None:
        version = version or ("1.4.3" if engine == "containerd" else "19.3.14")
        self.version = RuntimeVersion(engine, f"{version}-wine")
        # of HostProcess containers, which docker does not know
        self._containerd = version_numbers(version) if engine == "containerd" else ()
        self._cache = cache
        self._build = build
        self._engine = engine
        self._texts = texts.TEXTS[engine]
        self._wine = installation.find_wine()
        self._helpers = helpers or Helpers(cache)
        self._template: template.WineTemplate | None = None
        self._making = asyncio.Lock()

    # Capabilities

    def unusable(self) -> str:
        if self._wine is None:
            return "Wine (wine64) is not installed"
        return ""

    def missing(self) -> list[str]:
        rootless = (
            []
            if os.geteuid() == 0
            else ["without root every account of a container may do everything in it"]
        )
        return [*self._helpers.missing(), *rootless, *_ALWAYS_MISSING]

    async def prepare(self) -> template.WineTemplate:
        """Builds the template if it does not exist; otherwise costs nothing."""
        if self._template is None:
            async with self._making:
                if self._template is None:
                    wine = self._installed()
                    try:
                        self._template = await asyncio.to_thread(
                            template.prepare_template, self._cache, wine, self._helpers
                        )
                    except (OSError, SubprocessError) as problem:
                        raise RuntimeFailure(
                            "Unavailable", f"cannot make a Windows prefix: {problem}"
                        ) from problem
        return self._template

    def _installed(self) -> installation.WineInstallation:
        if self._wine is None:
            raise RuntimeFailure("Unavailable", self.unusable())
        return self._wine

    # Sandboxes and containers

    def sandbox(self, config: SandboxConfig, node: str) -> SandboxPlan:
        """Containers share only the network; everything else is their own. Docker on Windows has no
        host network; containerd ignores the setting.
        """
        if config.linux.host_network and self._engine == "docker":
            raise DockerTexts().sandbox_start("", config.name, "network host not found")
        if config.linux.host_process and self._containerd >= host_process_rules.SINCE:
            return SandboxPlan(
                hostname=node, network=False, ipc=False, pid=False, host_process=True
            )
        return SandboxPlan(hostname=config.hostname or node, ipc=False, pid=False)

    async def layers(self, request: ContainerRequest) -> Sequence[Path]:
        made = await self.prepare()
        if request.sandbox.plan.host_process:
            return request.image.layers or [made.empty]
        number = self._build_of(request).number
        if self._build is not None and not builds.process_isolation(self._build, number):
            raise self._texts.other_build(request.id, request.sandbox.plan.hostname)
        return [made.drive, made.helpers, *request.image.layers]

    def _build_of(self, request: ContainerRequest) -> builds.WindowsBuild:
        if request.sandbox.plan.host_process:
            return builds.BUILDS.get(self._build or 0, builds.DEFAULT)
        named = builds.build_by_name(str(request.image.config.get("os.version", "")))
        return named or builds.BUILDS.get(self._build or 0, builds.DEFAULT)

    def limits(self, config: ContainerConfig, cpus: int) -> CgroupLimits:
        return limits.limits_of_resources(_resources(config), cpus)

    async def create(self, request: ContainerRequest) -> Spec:
        user = self._user(request)
        line = commandline.container_command_line(request.config, _image(request))
        if not line:
            raise self._texts.no_command(request.id)
        if request.sandbox.plan.host_process:
            line = host_process_rules.expand_mount_point(line, self._mount_point(request))
            if user is None:
                raise self._texts.cannot_create(request.id, host_process_rules.LOGON_FAILED)
        if user is None:
            raise self._texts.cannot_start(request.id, texts.BAD_LOGON)
        if self._engine == "docker":
            _check_docker_mounts(request)
        if any(mount.image for mount in request.config.mounts):
            raise RuntimeFailure(
                "Unknown",
                f'failed to generate container "{request.id}" spec: {IMAGE_VOLUMES_ON_WINDOWS}',
            )
        made, wine = await self.prepare(), self._installed()
        return await asyncio.to_thread(self._write, request, user, line, made, wine)

    def _write(
        self,
        request: ContainerRequest,
        user: WindowsUser,
        line: str,
        made: template.WineTemplate,
        wine: installation.WineInstallation,
    ) -> Spec:
        at, owner, hostname = (
            bundle.bundle_places(request),
            accounts.unix_id(user),
            request.sandbox.plan.hostname,
        )
        at.prefix.mkdir(parents=True)
        host_process = request.sandbox.plan.host_process
        if host_process:
            host_processes.install_windows(at.drive, made)
        else:
            drives.join_windows_path(request.snapshot, made.drive, request.image.layers)
        made.write_registry(at.prefix, self._build_of(request), bundle.bundle_adapter(request))
        bundle.make_prefix(at.prefix, owner, request)
        root = bundle.make_root(wine, user, self._helpers, request)
        if owner and not host_process:
            bundle.let_users_write(request.snapshot, request.image.layers)
        self._make_directory(request, at.drive, owner)
        bundle.make_user_profile(
            at.drive,
            drives.spelled_path(at.drive, drives.split_windows_path(user.profile)[1]),
            owner,
        )
        if self._helpers.get("wdns.so") is None and not host_process:
            bundle.announce_names(request.snapshot, hostname, request.sandbox.ips)
        command = self._command(request, user, line, jobs.MAIN, wine)
        args = bundle.first_args(wine, self._helpers, request, command)
        return bundle.wine_specification(
            wine,
            request,
            root,
            self._process(request, user, args, wine),
            made.replacements(wine, user),
            host_processes.drive_mounts(request, self._containerd)
            if host_process
            else bundle.container_drive(request),
        )

    def _make_directory(self, request: ContainerRequest, drive: Path, owner: int) -> None:
        """The working directory, if it is missing. The volume of a HostProcess container covers a
        directory of the node's drive.
        """
        letter, names = drives.split_windows_path(self._directory(request))
        if request.sandbox.plan.host_process:
            point = drives.split_windows_path(self._mount_point(request))[1]
            if [n.lower() for n in names[: len(point)]] == [n.lower() for n in point]:
                drive, names = request.snapshot, names[len(point) :]
        bundle.make_directory(drive, (letter, names), owner)

    def _command(
        self,
        request: ContainerRequest,
        user: WindowsUser,
        line: str,
        name: str,
        wine: installation.WineInstallation,
    ) -> list[str]:
        """The Unix command for a Windows command line."""
        if self._helpers.get("winrun.exe") is None:
            return [str(wine.loader), *commandline.split_windows_command_line(line)]
        jobs.write_job(
            bundle.bundle_places(request).prefix,
            name,
            accounts.unix_id(user),
            cwd=self._directory(request),
            command=line,
            env=self._environment(request, user),
        )
        return [str(wine.loader), bundle.WINRUN, jobs.job_path_inside(name)]

    def _process(
        self,
        request: ContainerRequest,
        user: WindowsUser,
        args: Sequence[str],
        wine: installation.WineInstallation,
    ) -> Spec:
        address = next(iter(request.sandbox.ips), "")
        bare = self._helpers.get("winrun.exe") is None
        extra = self._given(request) if bare else []
        if bare:  # Wine's own mechanism for additions to the path
            extra += [("WINEPATH", value) for name, value in extra if name.lower() == "path"]
        return bundle.wine_process(
            wine,
            user,
            args,
            address,
            self._helpers,
            data=limits.process_data_limit(_resources(request.config)),
            extra=extra,
        )

    def _environment(self, request: ContainerRequest, user: WindowsUser) -> dict[str, str]:
        cpus = _resources(request.config).cpu_count or os.cpu_count() or 1
        env = environment.process_environment(
            user, request.sandbox.plan.hostname, cpus, self._given(request)
        )
        if not request.sandbox.plan.host_process:
            return env
        return dict(
            host_process_rules.host_process_variables(env.items(), self._mount_point(request))
        )

    def _mount_point(self, request: ContainerRequest) -> str:
        return host_process_rules.mount_point(self._containerd, request.id)

    def _directory(self, request: ContainerRequest) -> str:
        requested = request.config.working_dir or str(_image(request).get("WorkingDir") or "")
        if request.sandbox.plan.host_process:
            return host_process_rules.working_directory(self._containerd, request.id, requested)
        return requested or _DEFAULT_DIRECTORY

    def _given(self, request: ContainerRequest) -> list[tuple[str, str]]:
        return [
            *environment.image_environment(_image(request).get("Env") or ()),
            *request.config.env,
        ]

    def _user(self, request: ContainerRequest) -> WindowsUser | None:
        if request.sandbox.plan.host_process:
            return host_processes.host_process_account(request, self._containerd)
        return accounts.find_wine_account(
            request.config, _image(request), request.image.layers, request.sandbox.plan.hostname
        )

    async def started(self, container: RunningContainer) -> None:
        """Waits until Windows has created the process, or has reported why not."""
        if self._helpers.get("winrun.exe") is None:
            return
        request = container.request
        prefix, loop = bundle.bundle_places(request).prefix, asyncio.get_running_loop()
        end = loop.time() + _TIMEOUT_SECONDS
        with watch_job(jobs.jobs_folder(prefix), container.pid) as changed:
            while loop.time() < end:
                alive = _alive(container.pid)  # before reading its output, which may be its last
                state = jobs.read_job(prefix, jobs.MAIN)
                if state.what == "error":
                    raise self._texts.cannot_start(request.id, state.number)
                if state.what != "nothing" or not alive:
                    return
                await changed.wait()

    def failure(self, request: ContainerRequest, text: str) -> CannotStart:
        return self._texts.cannot_create(request.id, text)

    # Commands

    def exec_process(
        self, container: RunningContainer, command: Sequence[str], *, tty: bool, exec_id: str
    ) -> Spec:
        request = container.request
        if request.sandbox.plan.host_process:
            point = self._mount_point(request)
            command = [host_process_rules.expand_mount_point(part, point) for part in command]
        user, wine = self._user(request), self._installed()
        if user is None:
            raise self._texts.cannot_exec(request.id, exec_id, texts.BAD_LOGON)
        folders = environment.windows_search_path(self._environment(request, user))
        seen = Path(f"/proc/{container.pid}/root{jobs.PREFIX}")  # with its volumes
        known = os.access(seen, os.R_OK)  # unprivileged users may not
        if not command or (
            known and not drives.has_program(seen, command[0], folders, self._directory(request))
        ):
            raise self._texts.cannot_exec(request.id, exec_id, texts.NOT_FOUND)
        try:
            args = self._command(request, user, join_arguments(command), exec_id, wine)
        except OSError as problem:  # the container has put something else there
            raise self._texts.exec_failed(exec_id, str(problem)) from problem
        return self._process(request, user, args, wine)

    def exec_failure(
        self, container: RunningContainer, exec_id: str, command: Sequence[str], text: str
    ) -> RuntimeFailure:
        return self._texts.exec_failed(exec_id, text)

    # The end

    def stop_grace_seconds(self, container: RunningContainer, grace: float) -> float:
        """Docker waits as long as the container's registry specifies. containerd waits for the
        grace period, unless the registry differs from Windows' default.
        """
        shutdown_seconds = jobs.job_shutdown_seconds(bundle.bundle_places(container.request).prefix)
        if shutdown_seconds is None or (
            self._engine == "containerd" and shutdown_seconds == _SHUTDOWN_TIMEOUT
        ):
            shutdown_seconds = _SHUTDOWN_TIMEOUT if self._engine == "docker" else grace
        return min(grace, shutdown_seconds)

    async def stop(self, container: RunningContainer) -> None:
        """The init turns it into CTRL_SHUTDOWN_EVENT; without one no process would receive it.
        Returns when the container has reported the timeout in its registry.
        """
        graceful = self._helpers.get("init") is not None
        prefix, loop = bundle.bundle_places(container.request).prefix, asyncio.get_running_loop()
        with watch_job(jobs.jobs_folder(prefix), container.pid) as changed:
            container.signal(signal.SIGTERM if graceful else signal.SIGKILL)
            end = loop.time() + _SHUTDOWN_REPORT
            while graceful and loop.time() < end and _alive(container.pid):
                if jobs.job_shutdown_seconds(prefix) is not None:
                    return
                await changed.wait()

    def exit_code(self, request: ContainerRequest, status: int, exec_id: str = "") -> int:
        prefix, name = bundle.bundle_places(request).prefix, exec_id or jobs.MAIN
        code = jobs.job_exit_code(jobs.read_job(prefix, name), status)
        if exec_id:
            jobs.forget_job(prefix, name)
        return code

    def finished(self, request: ContainerRequest) -> None:
        """Everything else is in the container's own directory, which is removed with it."""
        if request.sandbox.plan.host_process:
            host_processes.discard_account(request)

    # Statistics

    def usage(self, request: ContainerRequest, counted: CgroupUsage) -> CgroupUsage:
        return limits.shown_usage(_resources(request.config), counted)

    def layer_usage(self, request: ContainerRequest, counted: tuple[int, int]) -> tuple[int, int]:
        """NTFS does not count inodes."""
        return counted[0], 0


def _check_docker_mounts(request: ContainerRequest) -> None:
    """Docker on Windows mounts only existing directories and named pipes. Raises RuntimeFailure
    with its text.
    """
    docker = DockerTexts()
    for mount in request.config.mounts:
        source, target = mount.host_path, mount.container_path
        if bundle.pipe_name(mount):
            continue
        if target.lower().replace("/", "\\").rstrip("\\") == "c:":
            why = (
                f"destination path cannot be `c:` or `c:\\`: {target.lower().replace('/', chr(92))}"
            )
            raise docker.create_failed(
                request.id,
                f"invalid volume specification: '{source}:{target}': invalid mount config: {why}",
            )
        volume = f"{source}:{target}" + (":ro" if mount.read_only else "")
        start = (
            f"invalid volume specification: '{volume}': invalid mount config for type \"bind\": "
        )
        try:
            mode = request.host.stat(source).st_mode
        except OSError:
            raise docker.create_failed(
                request.id, f"{start}bind source path does not exist: {source}"
            ) from None
        if not stat.S_ISDIR(mode):
            raise docker.create_failed(request.id, f"{start}source path must be a directory")


def _alive(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")


def _resources(config: ContainerConfig) -> WindowsResources:
    return config.windows.resources if config.windows is not None else WindowsResources()


def _image(request: ContainerRequest) -> Mapping[str, Any]:
    found = request.image.config.get("config")
    return found if isinstance(found, Mapping) else {}
