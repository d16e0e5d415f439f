"""What `transom doctor` and `transom report` ask of a running cluster: what only its machines know."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Final

import orjson

from transom.cluster.inspect_hns import VIEWS
from transom.doctor.inside import Inside
from transom.doctor.windows import HOSTNAME
from transom.hosts.windows.services import KEY as SERVICES
from transom.hosts.windows.variables import of_machine
from transom.network.cni import defaults
from transom.network.cni.flannel import SUBNET_FILE
from transom.network.cni.paths import join
from transom.network.cni.sourcevip import FILE as SOURCE_VIP
from transom.runtime.sim.engine import SimRuntime

if TYPE_CHECKING:
    from transom.cluster.fleet import Fleet, Machine
    from transom.hosts.windows.registry import Registry

# Network mode -> the HNS network that is there before the first pod; others are made with it.
_NETWORKS: Final = {"l2bridge": defaults.BRIDGE_NAME, "overlay": defaults.OVERLAY_NAME, "transparent": "external"}
_PROGRAMS: Final = ("kubelet", "kube-proxy", "flanneld")
_HNS: Final = ("networks", "endpoints", "loadbalancers", "namespaces", "policies", "adapters", "faults")


async def inside(fleet: Fleet) -> dict[str, Any]:
    found = [replace(_inside(fleet, machine), stopped=await _stopped(machine)) for machine in fleet.machines()]
    return {"items": [asdict(one) for one in found]}


def _inside(fleet: Fleet, machine: Machine) -> Inside:
    spec, network, settings = machine.spec, machine.network, fleet.network.shared.settings
    common: dict[str, Any] = {
        "name": spec.name, "os": spec.os, "simulated": isinstance(machine.runtime, SimRuntime), "mode": settings.mode,
        "state": "stopped" if spec.stopped else "running" if machine.kubelet is not None else "starting",
        "plugin": network.plugin, "fault": network.pods.fault, "pod_cidr": network.pods.cidr.split(",")[0],
    }  # fmt: skip
    return Inside(**common, **(_windows(fleet, machine) if spec.windows else {}))


def _windows(fleet: Fleet, machine: Machine) -> dict[str, Any]:
    spec, network, settings = machine.spec, machine.network, fleet.network.shared.settings
    hns, flannel = machine.host.hns, machine.network.plugin == "flannel"
    expected = (settings.backend.get("Name", "") if flannel else "") or _NETWORKS.get(settings.mode, "")
    registry = getattr(machine.host, "registry", None)
    return {
        "network": expected if network.pods.cidr and network.plugin != "azure" else "",
        "networks": {one["Name"]: hns.management_ip(key) or "" for key, one in hns.networks.items()},
        "adapters": tuple(hns.adapters),
        "mac_spoofing": hns.mac_spoofing,
        "kube_proxy_problem": fleet.network.proxy_problem(spec.name),
        "kube_proxy_hostname": _hostname(machine, registry),
        "subnet_env": _read(machine, join("windows", SUBNET_FILE)),
        "source_vip": _source_vip(machine) if settings.mode == "overlay" else "",
        "proxy": spec.proxy,
        "variables": dict(of_machine(registry)) if registry is not None else {},
    }


def _hostname(machine: Machine, registry: Registry | None) -> str:
    """What kube-proxy takes for its node's name: as it was started, or as its service would start it."""
    running = machine.binaries.running("kube-proxy") if machine.binaries is not None else None
    if running is not None:
        line = " ".join(running.argv)
    elif registry is not None:
        key = rf"{SERVICES}\kube-proxy"
        line = str(registry.get(rf"{key}\Parameters", "AppParameters") or registry.get(key, "ImagePath") or "")
    else:
        line = ""
    found = HOSTNAME.search(line)
    return found[1] if found is not None else machine.network.hostname


async def _stopped(machine: Machine) -> dict[str, str]:
    binaries = machine.binaries
    if binaries is None or machine.spec.stopped:
        return {}
    programs = [name for name in _PROGRAMS if name != "flanneld" or machine.network.plugin == "flannel"]
    return {name: _last(await binaries.log(name)) for name in programs if binaries.running(name) is None}


def _last(log: bytes) -> str:
    return next(reversed(log.decode(errors="replace").strip().splitlines()), "")


def _read(machine: Machine, path: str) -> str | None:
    try:
        content: bytes = machine.host.files.read(path)
    except OSError:
        return None
    return content.decode(errors="replace")


def _source_vip(machine: Machine) -> str:
    try:
        return str(orjson.loads(_read(machine, SOURCE_VIP) or "")["ip4"]["ip"]).partition("/")[0]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return ""


async def logs(fleet: Fleet, name: str) -> dict[str, Any]:
    """What a node's programs have written, and what its host networking service has been told."""
    machine = fleet.machine(name)
    found: dict[str, Any] = {"node": name, "logs": {}, "hns": None}
    if machine.spec.windows:
        fleet.network.fabric.look(name)
        found["hns"] = {view: VIEWS[view](machine.host.hns) for view in _HNS}
        if isinstance(machine.runtime, SimRuntime):
            binaries = fleet.binaries(name)
            found["logs"] = {program: (await binaries.log(program)).decode(errors="replace") for program in _PROGRAMS}
    return found
