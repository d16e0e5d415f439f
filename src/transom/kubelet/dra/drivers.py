"""DRA drivers that have registered with the kubelet, and the calls that a kubelet makes to them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from transom.client.resources import GroupVersionResource
from transom.kit.clock import Timer
from transom.kit.goquote import go_quote
from transom.kit.lazy import lazy_import
from transom.kit.named_tuple import NamedTuple
from transom.kit.rpc import RpcError
from transom.kubelet.base import KubeletContext
from transom.kubelet.plugins.handler import PluginRefused
from transom.machinery.errors import ApiError

if TYPE_CHECKING:
    from transom.kubelet.plugins import endpoint as plugin_endpoint
    from transom.machinery.protobuf.table import Message
else:
    plugin_endpoint = lazy_import("transom.kubelet.plugins.endpoint")

log = logging.getLogger("transom.kubelet")

DRA: Final = "DRAPlugin"
RESOURCE_SLICES: Final = GroupVersionResource(
    "resource.k8s.io", "v1", "resourceslices", False, "ResourceSlice"
)
WIPING_DELAY: Final = 30.0  # a driver that is updated has this long to come back
_SERVICES: Final = ("v1.DRAPlugin", "v1beta1.DRAPlugin")
_PACKAGE: Final = "/k8s.io.kubelet.pkg.apis.dra."
_CALL_SECONDS: Final = 45.0

ObserveCall = Callable[[str, str, str, float], None]
"""`observe(driver, method, code, seconds)`."""


class DriverNotRegistered(Exception):
    """The text is Kubernetes'."""


class RegisteredDraDriver(NamedTuple):
    name: str
    path: str  # of its socket
    service: str  # v1.DRAPlugin


class DraDriverRegistry:
    """A driver that is updated without a gap registers twice; the last registration is used.

    Deletes the ResourceSlices of drivers that are gone: nothing could prepare their devices.
    """

    def __init__(
        self, env: KubeletContext, later: Callable[[str], None], observe: ObserveCall
    ) -> None:
        """`later(driver)` deletes the slices of a driver ("" for all) in the background."""
        self._env = env
        self._later = later
        self._observe = observe
        self._drivers: dict[str, list[RegisteredDraDriver]] = {}
        self._wipes: dict[str, Timer] = {}

    def validate(self, name: str, endpoint: str, versions: Sequence[str]) -> None:
        """Raises PluginRefused."""
        try:
            self._service(name, endpoint, versions)
        except PluginRefused as problem:
            raise PluginRefused(f"plugin validation failed with err: {problem}") from problem

    def _service(self, name: str, endpoint: str, versions: Sequence[str]) -> str:
        found = next((version for version in versions if version in _SERVICES), "")
        if found:
            return found
        why = "empty list of supported gRPC services (aka supported versions)"
        if versions:
            why = (
                f"none of services supported by the plugin ({_quoted(versions)}) are supported by "
                f"the kubelet ({_quoted(_SERVICES)})"
            )
        raise PluginRefused(
            f"invalid supported gRPC versions of DRA driver plugin {name} at endpoint {endpoint}: "
            f"{why}"
        )

    async def register(self, name: str, endpoint: str, versions: Sequence[str]) -> None:
        """Raises PluginRefused."""
        found = self._drivers.setdefault(name, [])
        if any(driver.path == endpoint for driver in found):
            raise PluginRefused(
                f"plugin registration failed with err: endpoint {endpoint} already registered for "
                f"DRA driver plugin {name}"
            )
        found.append(RegisteredDraDriver(name, endpoint, self._service(name, endpoint, versions)))
        if timer := self._wipes.pop(name, None):
            timer.cancel()

    async def deregister(self, name: str, endpoint: str) -> None:
        left = [driver for driver in self._drivers.get(name, ()) if driver.path != endpoint]
        if left:
            self._drivers[name] = left
            return
        if self._drivers.pop(name, None) is not None:
            self._wipes[name] = self._env.clock.call_later(WIPING_DELAY, self._wipe, name)

    def _wipe(self, name: str) -> None:
        del self._wipes[name]
        self._later(name)

    def stop(self) -> None:
        for timer in self._wipes.values():
            timer.cancel()
        self._wipes.clear()

    async def delete_slices(self, name: str) -> bool:
        """Of one driver on this node, or of all ("")."""
        selector = f"spec.nodeName={self._env.config.node_name}"
        if name:
            selector += f",spec.driver={name}"
        try:
            await self._env.client.delete_collection(RESOURCE_SLICES, field_selector=selector)
        except (ApiError, OSError) as problem:
            log.info("%s: ResourceSlices stay: %s", self._env.config.node_name, problem)
            return False
        return True

    def get(self, name: str) -> RegisteredDraDriver:
        """Raises DriverNotRegistered."""
        found = self._drivers.get(name)
        if not found:
            raise DriverNotRegistered(
                f"DRA driver {name} is not registered" if name else "DRA driver name is empty"
            )
        return found[-1]

    async def call(
        self, driver: RegisteredDraDriver, method: str, claims: Sequence[Message]
    ) -> dict[str, Any]:
        """The results by the claim's uid. Raises RpcError."""
        endpoint = plugin_endpoint.PluginEndpoint(self._env.host.files, driver.path)
        path = f"{_PACKAGE}{driver.service}/{method}"
        code, begin = "OK", self._env.clock.monotonic()
        try:
            answer = await endpoint.call(path, {"claims": [*claims]}, _CALL_SECONDS)
        except RpcError as problem:
            code = problem.code
            raise
        finally:
            self._observe(driver.name, path, code, self._env.clock.monotonic() - begin)
        return {
            entry.get("key") or "": entry.get("value") or {} for entry in answer.get("claims") or ()
        }


def _quoted(texts: Sequence[str]) -> str:
    return f"[{' '.join(map(go_quote, texts))}]"
