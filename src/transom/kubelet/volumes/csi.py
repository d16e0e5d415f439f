"""csi: volumes of drivers that register with the kubelet. None can here, so what is shown is how their lack looks."""

from __future__ import annotations

from transom.client.api import is_not_found
from transom.client.resources import CSI_DRIVERS
from transom.kubelet.base import VolumeFailure
from transom.kubelet.volumes.plugin import Mounted, Plugin, SilentFailure, Spec, StageFailure, Tools
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object

NAME = "kubernetes.io/csi"


async def set_up(tools: Tools, pod: Object, spec: Spec, before: Mounted | None, max_age: float) -> Mounted:
    name = str(spec.source.get("driver") or "")
    driver = await _driver(tools, name)
    unknown = f"driver name {name} not found in the list of registered CSI drivers"
    if spec.persistent is None:
        if "Ephemeral" not in _modes(driver):
            lack = " (no CSIDriver object)" if driver is None else f" (only supports {_listed(_modes(driver))})"
            raise StageFailure(
                "MountVolume.NewMounter initialization failed", f'volume mode "Ephemeral" not supported by driver {name}{lack}'
            )
        raise VolumeFailure(f"kubernetes.io/csi: mounter.SetUpAt failed to get CSI client: {unknown}")
    if driver is None or (driver.get("spec") or {}).get("attachRequired", True):
        # The attach controller has to report it in the node's status first, and without a driver never does.
        raise SilentFailure(f'Volume not attached according to node status for volume "{spec.name}"')
    raise StageFailure(
        "MountVolume.MountDevice failed",
        f"kubernetes.io/csi: attacher.MountDevice failed to create newCsiDriverClient: {unknown}",
    )


async def _driver(tools: Tools, name: str) -> Object | None:
    try:
        return await tools.env.client.get(CSI_DRIVERS, "", name)
    except ApiError as problem:
        if is_not_found(problem):
            return None
        raise VolumeFailure(str(problem)) from problem


def _modes(driver: Object | None) -> list[str]:
    return list((driver or {}).get("spec", {}).get("volumeLifecycleModes") or ()) or ["Persistent"]


def _listed(modes: list[str]) -> str:
    return "[" + " ".join(f'"{mode}"' for mode in modes) + "]"


PLUGIN = Plugin(NAME, set_up)
