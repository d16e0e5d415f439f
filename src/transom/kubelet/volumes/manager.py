"""Mounts the volumes of pods, updates those whose content changes, and unmounts them.

A failed volume is retried after half a second, then with exponential back-off; a pod waits for its
volumes at most two minutes. The retry state is kept from one wait to the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol, runtime_checkable

from transom.client.events import WARNING
from transom.kit.prometheus import Family
from transom.kubelet import paths
from transom.kubelet.base import KubeletContext
from transom.kubelet.failures import VolumeFailure
from transom.kubelet.plugins.drivers import CsiDriverRegistry
from transom.kubelet.referenced import FRESH, SHARED, ReferencedObjects
from transom.kubelet.volumes import (
    azure_file,
    claims,
    config_map,
    csi,
    disks,
    downward_api,
    empty_dir,
    flex,
    host_path,
    image,
    in_tree,
    local,
    projected,
    secret,
)
from transom.kubelet.volumes.block import map_device
from transom.kubelet.volumes.devices import Devices
from transom.kubelet.volumes.growth import VolumeGrowth
from transom.kubelet.volumes.metrics import StorageMetrics, total_volumes, volume_plugin_label
from transom.kubelet.volumes.nested import NestedMountPoints
from transom.kubelet.volumes.plugin import (
    MountedVolume,
    PodVolumeSpec,
    SilentFailure,
    StageFailure,
    VolumeHost,
    VolumePlugin,
)
from transom.kubelet.volumes.tokens import TokenManager
from transom.machinery.attachable import ATTACHABLE, unique_volume_name
from transom.machinery.objects import Object
from transom.machinery.releases import Release
from transom.machinery.releases.metrics import metric_rules
from transom.machines.files import FileTree
from transom.machines.smallfiles import list_small_directory

MOUNT_SECONDS: Final = 2 * 60 + 3.0
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 2 * 60 + 2.0
_ATTACH_WAIT = 0.25  # between two checks whether a volume is attached
_IN_A_ROW = 50  # volumes before other tasks may run
_SET_UP = "MountVolume.SetUp failed"
_MEASURED_FOR, _MEASURE_SECONDS = 10.0, 1.0

PLUGINS: Final[Mapping[str, VolumePlugin]] = {
    "secret": secret.PLUGIN,
    "configMap": config_map.PLUGIN,
    "projected": projected.PLUGIN,
    "downwardAPI": downward_api.PLUGIN,
    "emptyDir": empty_dir.PLUGIN,
    "hostPath": host_path.PLUGIN,
    "image": image.PLUGIN,
    "local": local.PLUGIN,
    "csi": csi.PLUGIN,
    "flexVolume": flex.PLUGIN,
    "azureFile": azure_file.PLUGIN,
    **disks.PLUGINS,
    **in_tree.PLUGINS,
}

_TEAR_DOWNS: Final = tuple(
    plugin.tear_down for plugin in PLUGINS.values() if plugin.tear_down is not None
)


@runtime_checkable
class _Real(Protocol):
    """The machine's files."""

    def bind(self, source: str, path: str) -> None: ...


class _Waiting:
    """A volume that failed."""

    __slots__ = ("at", "seconds")

    def __init__(self) -> None:
        self.at = 0.0
        self.seconds = 0.0

    def wait(self, now: float, seconds: float) -> None:
        self.at = now + seconds

    def failed(self, now: float) -> None:
        self.seconds = min(self.seconds * 2, _LONGEST_WAIT) or _FIRST_WAIT
        self.at = now + self.seconds


class _PodVolumes:
    __slots__ = ("annotations", "growing", "kept_up", "mounted", "plugins", "waiting")

    def __init__(self) -> None:
        self.annotations: Mapping[str, str] | None = None
        self.mounted: dict[str, MountedVolume] = {}
        self.kept_up: tuple[PodVolumeSpec, ...] = ()  # those whose content may change
        self.growing: tuple[PodVolumeSpec, ...] = ()  # those that may be expanded
        self.waiting: dict[str, _Waiting] | None = None
        # volume -> label of its plugin, also before it is mounted
        self.plugins: dict[str, str] = {}


class VolumeManager:
    __slots__ = (
        "_env",
        "_growth",
        "_in_use",
        "_in_use_changed",
        "_measured",
        "_measuring",
        "_metrics",
        "_open",
        "_pods",
        "_tools",
    )

    def __init__(
        self,
        env: KubeletContext,
        objects: ReferencedObjects,
        drivers: CsiDriverRegistry | None = None,
        in_use_changed: Callable[[], None] = lambda: None,
    ) -> None:
        """`in_use_changed` is called when `in_use` returns something else."""
        self._env = env
        tokens = TokenManager(env.client, env.clock, env.rng)
        self._tools = VolumeHost(
            env,
            objects,
            tokens,
            drivers or CsiDriverRegistry(),
            Devices(env),
            NestedMountPoints(env),
        )
        self._growth = VolumeGrowth(self._tools)
        self._metrics = StorageMetrics(metric_rules(Release(*env.config.release)))
        self._in_use: list[str] = []
        self._in_use_changed = in_use_changed
        self._pods: dict[str, _PodVolumes] = {}
        # Directories of pods that this process keeps open on Windows, which cannot be removed then.
        self._open: dict[str, list[str]] = {}
        self._measuring: asyncio.Task[None] | None = None
        self._measured = float("-inf")

    # For the pod workers

    async def mount(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        state = self._pods.get(uid)
        if state is None:
            self._make_directories(uid)
            state = self._pods[uid] = _PodVolumes()
        expected, devices = claims.used_volumes(pod)
        missing = [name for name in expected if name not in state.mounted]
        annotations = pod["metadata"].get("annotations")
        # users annotate a pod to trigger a sync
        max_age = SHARED if annotations == state.annotations else FRESH
        state.annotations = annotations
        for spec in state.kept_up:
            await self._attempt(pod, spec, state, max_age)
        for spec in state.growing:
            await self._growth.look(pod, spec, PLUGINS[spec.kind], state.mounted[spec.outer].path)
        if missing:
            await self._mount_missing(pod, state, expected, devices, missing)

    async def unmount(self, uid: str) -> None:
        """Called when the pod's containers have ended."""
        began, failed = self._env.clock.monotonic(), True
        try:
            await self._tear_down(uid)
            failed = False
        finally:
            state = self._pods.get(uid) or _PodVolumes()
            seconds = self._env.clock.monotonic() - began
            for name in state.mounted:
                self._metrics.record(state.plugins[name], "volume_unmount", seconds, failed)
        self._pods.pop(uid, None)
        self._tools.tokens.forget(uid)
        self._tools.devices.release(uid)
        self._report_in_use()

    def keep_open(self, uid: str, directories: Sequence[str]) -> None:
        """Directories outside of the pod's own, of hostPath volumes, do not matter."""
        own = self._env.os.host_path(paths.pod_dir(self._env, uid))
        if inside := [path for path in directories if path.startswith(own)]:
            self._open.setdefault(uid, []).extend(inside)

    async def _tear_down(self, uid: str) -> None:
        env = self._env
        files, directory = env.host.files, paths.pod_dir(env, uid)
        if uid in self._open:
            raise VolumeFailure(
                f"remove {self._open[uid][0]}: The process cannot access the file because it is "
                "being used by another process."
            )
        try:
            if files.exists(directory):
                for tear_down in _TEAR_DOWNS:
                    await tear_down(self._tools, uid)
                await self._unmount_memory(uid)
                if isinstance(files, _Real):  # containers may have left any number of files
                    await asyncio.to_thread(files.remove, directory, recursive=True)
                elif isinstance(files, FileTree):
                    for _ in files.remove_in_steps(directory):
                        await asyncio.sleep(0)
                else:
                    files.remove(directory, recursive=True)
        except OSError as problem:
            raise VolumeFailure(env.os.file_error("remove", directory, problem)) from problem

    def mounted(self, uid: str) -> bool:
        return uid in self._pods or self._env.host.files.exists(paths.pod_dir(self._env, uid))

    def pods(self) -> Sequence[str]:
        files, directory = self._env.host.files, paths.pods_dir(self._env)
        return list_small_directory(files, directory) if files.exists(directory) else ()

    def in_use(self) -> Sequence[str]:
        """The unique names of the volumes that must stay attached to the node."""
        disks.mounted_disks(self._tools)
        return self._tools.devices.in_use()

    def _report_in_use(self) -> None:
        now = list(self.in_use())
        if now != self._in_use:
            self._in_use = now
            self._in_use_changed()

    def collect_metrics(self) -> list[Family]:
        states = self._pods.values()
        desired = (plugin for state in states for plugin in state.plugins.values())
        actual = (state.plugins[name] for state in states for name in state.mounted)
        return [*self._metrics.collect(), total_volumes(desired, actual)]

    async def measure(self) -> None:
        """Asks CSI drivers for the usage of their volumes, unless that was just done. Does not wait
        long for a driver that does not respond: a late response is used the next time.
        """
        clock = self._env.clock
        if self._measuring is None and clock.monotonic() - self._measured < _MEASURED_FOR:
            return
        if self._measuring is None:
            volumes = [
                one for state in self._pods.values() for one in state.mounted.values() if one.driver
            ]
            if not volumes:
                return
            self._measuring = asyncio.get_running_loop().create_task(self._measure(volumes))
        await asyncio.wait([self._measuring], timeout=_MEASURE_SECONDS)

    async def _measure(self, volumes: Sequence[MountedVolume]) -> None:
        try:
            for volume in volumes:
                volume.usage = await csi.measure_csi(self._tools, volume)
        finally:
            self._measured, self._measuring = self._env.clock.monotonic(), None

    # For container creation

    def of(self, uid: str) -> Mapping[str, MountedVolume]:
        """Mounted volumes of the pod, by their names in the pod."""
        state = self._pods.get(uid)
        return state.mounted if state is not None else {}

    def groups(self, pod: Object) -> tuple[int, ...]:
        """Supplementary groups of the pod's persistent volumes, in addition to its own."""
        requested = (pod["spec"].get("securityContext") or {}).get("supplementalGroups") or ()
        texts = {m.group for m in self.of(pod["metadata"]["uid"]).values() if m.group}
        return tuple(int(t) for t in sorted(texts) if t.isdigit() and int(t) not in requested)

    # Internals

    def _make_directories(self, uid: str) -> None:
        env = self._env
        directory = paths.pod_dir(env, uid)
        try:
            env.host.files.mkdir(env.os.join(directory, "volumes"), 0o750)
        except OSError as problem:
            raise VolumeFailure(env.os.file_error("mkdir", directory, problem)) from problem

    async def _mount_missing(
        self,
        pod: Object,
        state: _PodVolumes,
        expected: Mapping[str, None],
        devices: set[str],
        missing: list[str],
    ) -> None:
        clock = self._env.clock
        end = clock.monotonic() + MOUNT_SECONDS
        specs, problems = await self._specs(pod, state, devices, missing)
        while True:
            for number, spec in enumerate(specs, 1):
                await self._attempt(pod, spec, state, FRESH)
                if number % _IN_A_ROW == 0:
                    await asyncio.sleep(0)
            specs = [spec for spec in specs if spec.outer not in state.mounted]
            if problems:
                raise self._failure(expected, state, "; ".join(problems))
            if not specs:
                state.waiting = None
                return
            now = clock.monotonic()
            if now >= end:
                raise self._failure(expected, state, "timed out waiting for the condition")
            waiting = state.waiting or {}
            due = min(waiting[spec.outer].at for spec in specs)
            await clock.sleep(max(min(due, end) - now, 0.0))

    async def _specs(
        self, pod: Object, state: _PodVolumes, devices: set[str], missing: list[str]
    ) -> tuple[list[PodVolumeSpec], list[str]]:
        by_name = {volume["name"]: volume for volume in pod["spec"].get("volumes") or ()}
        specs, problems = [], []
        for number, name in enumerate(missing, 1):
            if number % _IN_A_ROW == 0:
                await asyncio.sleep(0)
            try:
                spec = await claims.resolve_volume(
                    self._env.client, pod, by_name[name], name in devices
                )
                present = PLUGINS[spec.kind].present if spec.kind in PLUGINS else None
                if spec.kind not in PLUGINS or (
                    present is not None and not await present(self._tools, spec)
                ):
                    raise VolumeFailure(
                        f'failed to get Plugin from volumeSpec for volume "{spec.name}" '
                        "err=no volume plugin matched"
                    )
                specs.append(spec)
                state.plugins[name] = volume_plugin_label(PLUGINS[spec.kind], spec)
            except VolumeFailure as problem:
                problems.append(str(problem))
        return specs, problems

    @staticmethod
    def _failure(expected: Mapping[str, None], state: _PodVolumes, why: str) -> VolumeFailure:
        unmounted = " ".join(name for name in expected if name not in state.mounted)
        return VolumeFailure(
            f"unmounted volumes=[{unmounted}], unattached volumes=[{' '.join(expected)}]: {why}"
        )

    async def _attempt(
        self, pod: Object, spec: PodVolumeSpec, state: _PodVolumes, max_age: float
    ) -> None:
        """One attempt, when it is due."""
        waiting = state.waiting.get(spec.outer) if state.waiting else None
        if waiting is not None and self._env.clock.monotonic() < waiting.at:
            return
        plugin = PLUGINS[spec.kind]
        began, failed = self._env.clock.monotonic(), True
        try:
            mounted = await self._set_up(pod, spec, plugin, state.mounted.get(spec.outer), max_age)
        except VolumeFailure as problem:
            failed = not isinstance(problem, SilentFailure)  # it waits for its attachment
            self._failed(pod, spec, state, problem)
            if not failed:
                return
        except OSError as problem:
            path = problem.filename or spec.name
            self._failed(
                pod, spec, state, VolumeFailure(self._env.os.file_error("open", path, problem))
            )
        else:
            failed = False
            mounted.group = spec.group
            self._report_in_use()
            if (
                plugin.grow is not None
                and spec.persistent is not None
                and spec.outer not in state.mounted
            ):
                state.growing += (spec,)
            if (plugin.refreshes or mounted.republish) and spec.outer not in state.mounted:
                state.kept_up += (spec,)
            state.mounted[spec.outer] = mounted
            if waiting is not None and state.waiting is not None:
                del state.waiting[spec.outer]
        self._metrics.record(
            state.plugins[spec.outer],
            "map_volume" if spec.block else "volume_mount",
            self._env.clock.monotonic() - began,
            failed,
        )

    async def _set_up(
        self,
        pod: Object,
        spec: PodVolumeSpec,
        plugin: VolumePlugin,
        before: MountedVolume | None,
        max_age: float,
    ) -> MountedVolume:
        if spec.persistent is not None and not claims.fits_node(
            spec.persistent, self._node_labels()
        ):
            stage = "MapVolume" if spec.block else "MountVolume"
            raise StageFailure(
                f"{stage}.NodeAffinity check failed", "no matching NodeSelectorTerms"
            )
        if spec.kind in ATTACHABLE and spec.kind != "csi":
            name = unique_volume_name(spec.kind, spec.source)
            self._tools.devices.want(pod["metadata"]["uid"], name)
            if before is None:
                self._tools.devices.check_attached(name, spec.name)
        if spec.block and (spec.kind != "csi" or self._env.os.block_devices()):
            return await map_device(self._tools, pod, spec, plugin.name)
        mounted = await plugin.set_up(self._tools, pod, spec, before, max_age)
        if before is None and plugin.grow is not None and spec.persistent is not None:
            await self._growth.before_use(pod, spec, plugin, mounted.path)
        return mounted

    def _node_labels(self) -> Mapping[str, str]:
        node = self._env.node()
        return (node["metadata"].get("labels") or {}) if node is not None else {}

    def _failed(
        self, pod: Object, spec: PodVolumeSpec, state: _PodVolumes, problem: VolumeFailure
    ) -> None:
        if state.waiting is None:
            state.waiting = {}
        waiting = state.waiting.setdefault(spec.outer, _Waiting())
        if isinstance(problem, SilentFailure):
            waiting.wait(self._env.clock.monotonic(), _ATTACH_WAIT)
            self._report_in_use()
            return
        waiting.failed(self._env.clock.monotonic())
        stage, reason = (
            (problem.stage, problem.reason)
            if isinstance(problem, StageFailure)
            else (_SET_UP, "FailedMount")
        )
        self._env.events.event(
            pod, WARNING, reason, f'{stage} for volume "{spec.name}" : {problem}'
        )

    async def _unmount_memory(self, uid: str) -> None:
        """Volumes in memory must be unmounted before their directories can be removed; also those
        of a previous kubelet.
        """
        env = self._env
        files = env.host.files
        top = env.os.join(paths.pod_dir(env, uid), "volumes")
        for plugin in list_small_directory(files, top) if files.exists(top) else ():
            names = paths.volume_names(env, env.os.join(top, plugin))
            for number, name in enumerate(names, 1):
                env.os.unmount(files, env.os.join(top, plugin, name))
                if number % _IN_A_ROW == 0:
                    await asyncio.sleep(0)
