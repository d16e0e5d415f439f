"""DeviceTaintRules (resource.k8s.io): the devices that they select, and ResourceSlices with their
taints. The scheduler and the controller that evicts pods use this module.
"""

from __future__ import annotations

from collections.abc import Sequence

from transom.machinery.objects import Object

DeviceId = tuple[str, str, str]  # driver, pool, device


def rule_selects_device(rule: Object, device: DeviceId) -> bool:
    selector = rule["spec"].get("deviceSelector")
    return selector is not None and all(
        selector.get(field) in (None, value)
        for field, value in zip(("driver", "pool", "device"), device, strict=True)
    )


def apply_taint_rules(resource_slice: Object, rules: Sequence[Object]) -> Object:
    """The slice with the taints of the rules; itself if they select none of its devices."""
    spec = resource_slice["spec"]
    driver, pool = spec["driver"], spec["pool"]["name"]
    devices, changed = [], False
    for device in spec.get("devices") or ():
        where = driver, pool, device["name"]
        taints = [rule["spec"]["taint"] for rule in rules if rule_selects_device(rule, where)]
        if taints:
            changed = True
            device = {**device, "taints": [*(device.get("taints") or ()), *taints]}
        devices.append(device)
    return {**resource_slice, "spec": {**spec, "devices": devices}} if changed else resource_slice
