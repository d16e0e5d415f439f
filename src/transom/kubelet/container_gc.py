"""Garbage collection of dead containers, sandboxes and logs.

Keeps the newest dead instance of each container of a pod, for its log and its status, and the
newest sandbox of each pod; keeps nothing of deleted pods. Decides by the runtime's lists and the
pods it is given; never stops anything that runs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from transom.kubelet.base import KubeletContext
from transom.kubelet.labels import POD_NAME, POD_NAMESPACE, POD_UID
from transom.kubelet.logrotate import remove_logs
from transom.kubelet.podstate import TERMINAL, is_deleted, nothing_runs
from transom.machinery.objects import Object
from transom.machines.api import Files
from transom.machines.smallfiles import list_small_directory
from transom.runtime.api import Container, RuntimeFailure, Sandbox

log = logging.getLogger("transom.kubelet")

PERIOD = 60.0
KEEP_PER_CONTAINER = 1
EVICTED = "Evicted"
_LONGEST_LINK = 256 - 4  # a file name without .log


class ContainerGC:
    __slots__ = ("_env", "_pod", "_sources_ready")

    def __init__(
        self,
        env: KubeletContext,
        pod: Callable[[str], Object | None],
        sources_ready: Callable[[], bool],
    ) -> None:
        """`pod` returns a pod with its newest status by uid; until all sources have delivered their
        pods, no pod counts as deleted.
        """
        self._env = env
        self._pod = pod
        self._sources_ready = sources_ready

    async def collect(self, *, terminated_too: bool = False) -> None:
        """`terminated_too`: also remove the newest dead containers of pods that have ended but are
        not deleted, to free disk space.
        """
        ready = self._sources_ready()
        await self._containers(ready, terminated_too)
        if ready:
            await self._sandboxes(terminated_too)
            self._log_directories()
        self._dead_links()

    # ---- containers ----

    async def _containers(self, ready: bool, terminated_too: bool) -> None:
        units: dict[tuple[str, str], list[Container]] = {}
        for container in self._env.runtime.containers():
            if container.state != "running":
                units.setdefault((container.labels.get(POD_UID, ""), container.name), []).append(
                    container
                )
        for (uid, _), containers in units.items():
            gone = ready and self._is_gone(uid, terminated_too)
            for container in _newest_first(containers)[0 if gone else KEEP_PER_CONTAINER :]:
                await self._remove(container)

    async def _remove(self, container: Container) -> None:
        try:
            if container.state == "unknown":
                await self._env.runtime.stop_container(container.id, 2)
            remove_log(self._env, container)
            await self._env.runtime.remove_container(container.id)
        except (RuntimeFailure, OSError) as problem:
            log.warning("the container %s was not removed: %s", container.id, problem)

    # ---- sandboxes ----

    async def _sandboxes(self, terminated_too: bool) -> None:
        in_use = {c.sandbox_id for c in self._env.runtime.containers()}
        by_pod: dict[str, list[Sandbox]] = {}
        for sandbox in self._env.runtime.sandboxes():
            by_pod.setdefault(sandbox.config.uid, []).append(sandbox)
        for uid, sandboxes in by_pod.items():
            sandboxes.sort(key=lambda s: s.created_at, reverse=True)
            for sandbox in sandboxes[0 if self._is_gone(uid, terminated_too) else 1 :]:
                if sandbox.state != "ready" and sandbox.id not in in_use:
                    await self._remove_sandbox(sandbox)

    async def _remove_sandbox(self, sandbox: Sandbox) -> None:
        try:
            await self._env.runtime.stop_sandbox(sandbox.id)
            await self._env.runtime.remove_sandbox(sandbox.id)
        except RuntimeFailure as problem:
            log.warning("the sandbox %s was not removed: %s", sandbox.id, problem)

    # ---- logs ----

    def _log_directories(self) -> None:
        files, root = self._env.host.files, self._env.config.pod_logs_dir
        for name in _listed(files, root):
            if self._is_gone(name.rpartition("_")[2], False):
                try:
                    files.remove(self._env.os.join(root, name), recursive=True)
                except OSError as problem:
                    log.warning("the log directory %s was not removed: %s", name, problem)

    def _dead_links(self) -> None:
        files, root = self._env.host.files, _links_directory(self._env)
        for name in _listed(files, root):
            path = self._env.os.join(root, name)
            if not name.endswith(".log") or files.exists(path):
                continue
            container = self._env.runtime.container(name.removesuffix(".log").rpartition("-")[2])
            # During a log rotation, the link of a running container is dangling for a moment.
            if container is None or container.state == "exited":
                files.remove(path)

    # ---- pods ----

    def _is_gone(self, uid: str, terminated_too: bool) -> bool:
        pod = self._pod(uid)
        if pod is None:
            return True
        status = pod.get("status") or {}
        if status.get("phase") == "Failed" and status.get("reason") == EVICTED:
            return True
        if is_deleted(pod) and nothing_runs(status):
            return True
        return terminated_too and status.get("phase") in TERMINAL


def log_link(container: Container) -> str:
    """The name of the link to a container's log: `web_default_app-0123.log`."""
    labels = container.labels
    name = f"{labels.get(POD_NAME, '')}_{labels.get(POD_NAMESPACE, '')}_{container.name}-{container.id}"
    return name[:_LONGEST_LINK] + ".log"


def _links_directory(env: KubeletContext) -> str:
    """The directory next to that of the pods' logs: /var/log/containers."""
    root = env.config.pod_logs_dir
    cut = max(root.rfind("/"), root.rfind("\\"))
    return env.os.join(root[:cut], "containers")


def link_log(env: KubeletContext, container: Container) -> None:
    """Log collectors find logs by the names of these links."""
    files, directory = env.host.files, _links_directory(env)
    try:
        if container.log_path and files.exists(container.log_path):
            files.mkdir(directory)
            files.symlink(container.log_path, env.os.join(directory, log_link(container)))
    except OSError as problem:
        log.warning("no link to the log %s: %s", container.log_path, problem)


def remove_log(env: KubeletContext, container: Container) -> None:
    """Includes rotated logs and the link to the log."""
    if container.log_path:
        remove_logs(env.host.files, container.log_path)
    link = env.os.join(_links_directory(env), log_link(container))
    try:
        env.host.files.remove(link)
    except FileNotFoundError:
        return  # not every runtime creates one


def _listed(files: Files, path: str) -> Sequence[str]:
    try:
        return list_small_directory(files, path)
    except FileNotFoundError:
        return ()


def _newest_first(containers: Iterable[Container]) -> list[Container]:
    return sorted(containers, key=lambda c: c.created_at, reverse=True)
