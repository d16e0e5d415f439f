"""Registers CSI drivers: checks their versions, and publishes them in the Node and the CSINode."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from transom.kit.lazy import lazy_import
from transom.kit.rpc import RpcError
from transom.kubelet.base import KubeletContext
from transom.kubelet.plugins import nodeinfo
from transom.kubelet.plugins.drivers import CsiDriverInfo, CsiDriverRegistry
from transom.kubelet.plugins.handler import PluginRefused
from transom.kubelet.plugins.nodeinfo import RegistrationFailure

if TYPE_CHECKING:
    from transom.kubelet.plugins import endpoint as plugin_endpoint
else:
    plugin_endpoint = lazy_import("transom.kubelet.plugins.endpoint")

log = logging.getLogger("transom.kubelet")

CSI: Final = "CSIPlugin"


class CsiPluginHandler:
    __slots__ = ("_drivers", "_env")

    def __init__(self, env: KubeletContext, drivers: CsiDriverRegistry) -> None:
        self._env = env
        self._drivers = drivers

    def validate(self, name: str, endpoint: str, versions: Sequence[str]) -> None:
        """Raises PluginRefused."""
        self._version(name, endpoint, versions)

    def _version(self, name: str, endpoint: str, versions: Sequence[str]) -> tuple[int, ...]:
        begin = (
            f"plugin validation failed with err: validation failed for CSI Driver {name} at "
            f"endpoint {endpoint}: "
        )
        called = f'{begin}kubernetes.io/csi: ValidatePlugin for CSI driver "{name}" failed.'
        if not versions:
            raise PluginRefused(f"{called} Plugin returned an empty list for supported versions")
        numbers = [
            number for number in map(_number, versions) if number is not None and number[0] <= 1
        ]
        if not numbers:
            listed = " ".join(f'"{version}"' for version in versions)
            raise PluginRefused(
                f"{called} None of the versions specified [{listed}] are supported. err=None "
                "of the CSI versions reported by "
                "this driver are supported"
            )
        version, other = max(numbers), self._drivers.find(name)
        if other is not None and other.version >= version:
            shown = ".".join(map(str, other.version))
            raise PluginRefused(
                f"{called} Another driver with the same name is already registered with a "
                "higher supported version: "
                f'"{shown}"'
            )
        return version

    async def register(self, name: str, endpoint: str, versions: Sequence[str]) -> None:
        """Raises PluginRefused."""
        version = self._version(name, endpoint, versions)
        driver = CsiDriverInfo(
            name, plugin_endpoint.PluginEndpoint(self._env.host.files, endpoint), version
        )
        self._drivers.add(driver)
        try:
            info = await driver.node("NodeGetInfo")
            topology = (info.get("accessible_topology") or {}).get("segments") or {}
            await nodeinfo.install_csi_driver(
                self._env,
                name,
                info.get("node_id") or "",
                info.get("max_volumes_per_node") or 0,
                topology,
            )
        except (RpcError, RegistrationFailure) as problem:
            await self.deregister(name, endpoint)
            raise PluginRefused(f"plugin registration failed with err: {problem}") from problem

    async def deregister(self, name: str, endpoint: str) -> None:
        self._drivers.remove(name)
        try:
            await nodeinfo.uninstall_csi_driver(self._env, name)
        except RegistrationFailure as problem:
            log.warning("%s: %s", self._env.config.node_name, problem)


def _number(text: str) -> tuple[int, ...] | None:
    parts = text.removeprefix("v").split(".")
    return tuple(map(int, parts)) if all(part.isdecimal() for part in parts) else None
