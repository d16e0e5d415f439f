"""Watches `plugins_registry` for sockets, identifies the plugins, and hands each to the handler of
its type: CSI drivers, DRA drivers.

On a simulated node the file system reports when a plugin begins to listen; a real directory is
scanned every second, as kubelets do.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from transom.kit.lazy import lazy_import
from transom.kit.named_tuple import NamedTuple
from transom.kit.rpc import RpcError
from transom.kubelet.base import KubeletContext
from transom.kubelet.plugins.handler import PluginHandler, PluginRefused

if TYPE_CHECKING:
    from transom.kubelet.plugins import endpoint as plugin_endpoint
    from transom.kubelet.plugins.endpoint import PluginEndpoint
else:
    plugin_endpoint = lazy_import("transom.kubelet.plugins.endpoint")

log = logging.getLogger("transom.kubelet")

_REGISTRY: Final = "plugins_registry"
_ROUND: Final = 1.0
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 2 * 60 + 2.0
_ASK_SECONDS, _NOTIFY_SECONDS = 1.0, 5.0
_MOST_FILES, _DEEPEST = (
    256,
    8,
)  # scanned per round: every pod with a hostPath can create more
_SERVICE: Final = "/pluginregistration.Registration"


@runtime_checkable
class _SocketNotifier(Protocol):
    """Files that report when sockets come and go."""

    def on_sockets(self, function: Callable[[], None]) -> Callable[[], None]: ...


class _Known(NamedTuple):
    made: float  # the time of the socket: a new socket may reuse its name
    kind: str
    name: str
    endpoint: str


class PluginManager:
    """`handlers` by the type that a plugin reports."""

    __slots__ = ("_env", "_failures", "_handlers", "_known", "_look_again")

    def __init__(self, env: KubeletContext, handlers: Mapping[str, PluginHandler]) -> None:
        self._env = env
        self._handlers = handlers
        self._known: dict[str, _Known] = {}
        # when to retry, and the current back-off
        self._failures: dict[str, tuple[float, float]] = {}
        self._look_again = asyncio.Event()

    async def run(self) -> None:
        """Runs until cancelled. A node without plugins costs nothing when its files report
        changes.
        """
        files = self._env.host.files
        stop = (
            files.on_sockets(self._look_again.set) if isinstance(files, _SocketNotifier) else None
        )
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
        """Drivers mount these directories and expect them to exist."""
        try:
            for path in (
                self._env.os.join(self._env.config.root_dir, "plugins"),
                self._directory(),
            ):
                self._env.host.files.mkdir(path, 0o750)
        except OSError as problem:
            log.warning("%s: no driver can register: %s", self._env.config.node_name, problem)

    def _directory(self) -> str:
        return self._env.os.join(self._env.config.root_dir, _REGISTRY)

    async def _pause(self, seconds: float | None) -> None:
        clock = self._env.clock
        waits = [at - clock.monotonic() for at, _ in self._failures.values()]
        least = min([*waits, *([seconds] if seconds is not None else [])], default=None)
        timer = (
            clock.call_later(max(least, 0.0), self._look_again.set) if least is not None else None
        )
        try:
            await self._look_again.wait()
        finally:
            if timer is not None:
                timer.cancel()

    # ---- one scan ----

    async def _look(self) -> None:
        found = dict(self._sockets())
        for path, known in list(self._known.items()):
            if found.get(path) != known.made:
                del self._known[path]
                await self._handlers[known.kind].deregister(known.name, known.endpoint)
        for path in list(self._failures):
            if path not in found:
                del self._failures[path]
        now = self._env.clock.monotonic()
        for path, made in found.items():
            if path not in self._known and self._failures.get(path, (now, 0.0))[0] <= now:
                await self._attempt(path, made)

    def _sockets(self) -> Sequence[tuple[str, float]]:
        files, out, looked = self._env.host.files, list[tuple[str, float]](), 0
        directories = [(self._directory(), 0)]
        while directories:
            directory, depth = directories.pop(0)
            try:
                left = _MOST_FILES - looked
                names = files.some_names(directory, left)
            except OSError:
                continue
            looked += len(names)
            for name in names:
                path = self._env.os.join(directory, name)
                try:
                    stat = files.stat(path, follow=False)
                except OSError:
                    continue
                if stat.kind == "directory" and depth < _DEEPEST:
                    directories.append((path, depth + 1))
                elif stat.kind == "socket" and not name.startswith("."):
                    out.append((path, stat.mtime))
        return out

    async def _attempt(self, path: str, made: float) -> None:
        try:
            await self._register(path, made)
        except (RpcError, PluginRefused) as problem:
            log.info(
                "%s: the plugin at %s did not register: %s",
                self._env.config.node_name,
                path,
                problem,
            )
            waited = min(self._failures.get(path, (0.0, 0.0))[1] * 2, _LONGEST_WAIT) or _FIRST_WAIT
            self._failures[path] = self._env.clock.monotonic() + waited, waited
        else:
            self._failures.pop(path, None)

    async def _register(self, path: str, made: float) -> None:
        endpoint = plugin_endpoint.PluginEndpoint(self._env.host.files, path)
        info = await endpoint.call(f"{_SERVICE}/GetInfo", {}, _ASK_SECONDS)
        kind, name = info.get("type") or "", info.get("name") or ""
        end = info.get("endpoint") or path
        try:
            handler = self._handlers.get(kind)
            if handler is None:
                raise PluginRefused(
                    f"no handler registered for plugin type: {kind} at socket {path}"
                )
            handler.validate(name, end, info.get("supported_versions") or [])
            self._known[path] = _Known(made, kind, name, end)
            await handler.register(name, end, info.get("supported_versions") or [])
        except PluginRefused as problem:
            self._known.pop(path, None)
            await self._notify(endpoint, f"RegisterPlugin error -- {problem}")
            raise
        await self._notify(endpoint, "")

    async def _notify(self, endpoint: PluginEndpoint, error: str) -> None:
        status = {"plugin_registered": not error, "error": error}
        await endpoint.call(f"{_SERVICE}/NotifyRegistrationStatus", status, _NOTIFY_SECONDS)
