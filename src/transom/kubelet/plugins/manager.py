"""Looks for sockets in `plugins_registry`, asks who is there, and lets CSI drivers take part in the node's work.

On a simulated node the files say when somebody begins to listen; a real folder is looked at every second, as kubelets do.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol, runtime_checkable

from transom.kit.rpc import RpcError
from transom.kubelet.base import Env
from transom.kubelet.plugins import nodeinfo
from transom.kubelet.plugins.drivers import Driver, Drivers
from transom.kubelet.plugins.endpoint import Endpoint
from transom.kubelet.plugins.nodeinfo import NotTold

log = logging.getLogger("transom.kubelet")

CSI: Final = "CSIPlugin"
_REGISTRY: Final = "plugins_registry"
_ROUND: Final = 1.0
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 2 * 60 + 2.0
_ASK_SECONDS, _NOTIFY_SECONDS = 1.0, 5.0
_SERVICE: Final = "/pluginregistration.Registration"


@runtime_checkable
class _Telling(Protocol):
    """Files that say when sockets come and go."""

    def on_sockets(self, function: Callable[[], None]) -> Callable[[], None]: ...


class _Refused(Exception):
    """The plugin is told why it does not take part."""


class _Known(NamedTuple):
    made: float  # the time of the socket: another one may have its name
    driver: str


class PluginManager:
    __slots__ = ("_drivers", "_env", "_failures", "_known", "_look_again")

    def __init__(self, env: Env, drivers: Drivers) -> None:
        self._env = env
        self._drivers = drivers
        self._known: dict[str, _Known] = {}
        self._failures: dict[str, tuple[float, float]] = {}  # when to try again, and how long it was waited
        self._look_again = asyncio.Event()

    async def run(self) -> None:
        """Until cancelled. A node without plugins costs nothing when its files tell."""
        files = self._env.host.files
        stop = files.on_sockets(self._look_again.set) if isinstance(files, _Telling) else None
        try:
            self._make_directories()
            while True:
                self._look_again.clear()
                await self._look()
                await self._pause(None if stop is not None else _ROUND)
        finally:
            if stop is not None:
                stop()

    def _make_directories(self) -> None:
        """Drivers mount them, and want them to be there."""
        try:
            for path in (self._env.os.join(self._env.config.root_dir, "plugins"), self._directory()):
                self._env.host.files.mkdir(path, 0o750)
        except OSError as problem:
            log.warning("%s: no driver can register: %s", self._env.config.node_name, problem)

    def _directory(self) -> str:
        return self._env.os.join(self._env.config.root_dir, _REGISTRY)

    async def _pause(self, seconds: float | None) -> None:
        clock = self._env.clock
        waits = [at - clock.monotonic() for at, _ in self._failures.values()]
        least = min([*waits, *([seconds] if seconds is not None else [])], default=None)
        timer = clock.call_later(max(least, 0.0), self._look_again.set) if least is not None else None
        try:
            await self._look_again.wait()
        finally:
            if timer is not None:
                timer.cancel()

    # ---- one look ------------------------------------------------------------------------------------------------

    async def _look(self) -> None:
        found = dict(self._sockets(self._directory()))
        for path, known in list(self._known.items()):
            if found.get(path) != known.made:
                del self._known[path]
                await self._unregister(known.driver)
        for path in list(self._failures):
            if path not in found:
                del self._failures[path]
        now = self._env.clock.monotonic()
        for path, made in found.items():
            if path not in self._known and self._failures.get(path, (now, 0.0))[0] <= now:
                await self._attempt(path, made)

    def _sockets(self, directory: str) -> Sequence[tuple[str, float]]:
        files, out = self._env.host.files, list[tuple[str, float]]()
        try:
            names = files.listdir(directory)
        except OSError:
            return out
        for name in names:
            path = self._env.os.join(directory, name)
            try:
                stat = files.stat(path, follow=False)
            except OSError:
                continue
            if stat.kind == "directory":
                out.extend(self._sockets(path))
            elif stat.kind == "socket" and not name.startswith("."):
                out.append((path, stat.mtime))
        return out

    async def _attempt(self, path: str, made: float) -> None:
        try:
            await self._register(path, made)
        except (RpcError, _Refused, NotTold) as problem:
            log.info("%s: the plugin at %s did not register: %s", self._env.config.node_name, path, problem)
            waited = min(self._failures.get(path, (0.0, 0.0))[1] * 2, _LONGEST_WAIT) or _FIRST_WAIT
            self._failures[path] = self._env.clock.monotonic() + waited, waited
        else:
            self._failures.pop(path, None)

    async def _register(self, path: str, made: float) -> None:
        endpoint = Endpoint(self._env.host.files, path)
        info = await endpoint.call(f"{_SERVICE}/GetInfo", {}, _ASK_SECONDS)
        try:
            if info.get("type") != CSI:
                raise _Refused(f"no handler registered for plugin type: {info.get('type', '')} at socket {path}")
            driver = self._driver(info.get("name") or "", info.get("endpoint") or path, info.get("supported_versions") or [])
            self._known[path] = _Known(made, driver.name)
            await self._take(driver)
        except (RpcError, _Refused, NotTold) as problem:
            self._known.pop(path, None)
            await self._notify(endpoint, f"RegisterPlugin error -- {problem}")
            raise
        await self._notify(endpoint, "")

    async def _notify(self, endpoint: Endpoint, error: str) -> None:
        status = {"plugin_registered": not error, "error": error}
        await endpoint.call(f"{_SERVICE}/NotifyRegistrationStatus", status, _NOTIFY_SECONDS)

    # ---- CSI drivers ---------------------------------------------------------------------------------------------

    def _driver(self, name: str, endpoint: str, versions: Sequence[str]) -> Driver:
        """Raises _Refused."""
        begin = f"plugin validation failed with err: validation failed for CSI Driver {name} at endpoint {endpoint}: "
        called = f'{begin}kubernetes.io/csi: ValidatePlugin for CSI driver "{name}" failed.'
        if not versions:
            raise _Refused(f"{called} Plugin returned an empty list for supported versions")
        numbers = [number for number in map(_number, versions) if number is not None and number[0] <= 1]
        if not numbers:
            listed = " ".join(f'"{version}"' for version in versions)
            raise _Refused(
                f"{called} None of the versions specified [{listed}] are supported. err=None of the CSI versions reported by "
                "this driver are supported"
            )
        version, other = max(numbers), self._drivers.find(name)
        if other is not None and other.version >= version:
            shown = ".".join(map(str, other.version))
            raise _Refused(
                f"{called} Another driver with the same name is already registered with a higher supported version: "
                f'"{shown}"'
            )
        return Driver(name, Endpoint(self._env.host.files, endpoint), version)

    async def _take(self, driver: Driver) -> None:
        """Raises _Refused."""
        self._drivers.add(driver)
        try:
            info = await driver.node("NodeGetInfo")
            topology = (info.get("accessible_topology") or {}).get("segments") or {}
            await nodeinfo.install(
                self._env, driver.name, info.get("node_id") or "", info.get("max_volumes_per_node") or 0, topology
            )
        except (RpcError, NotTold) as problem:
            await self._unregister(driver.name)
            raise _Refused(f"plugin registration failed with err: {problem}") from problem

    async def _unregister(self, name: str) -> None:
        self._drivers.remove(name)
        try:
            await nodeinfo.uninstall(self._env, name)
        except NotTold as problem:
            log.warning("%s: %s", self._env.config.node_name, problem)


def _number(text: str) -> tuple[int, ...] | None:
    parts = text.removeprefix("v").split(".")
    return tuple(map(int, parts)) if all(part.isdecimal() for part in parts) else None
