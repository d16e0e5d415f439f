"""The requests of `transom cloud` to a running cluster: disks, shares, and their faults."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any, Final

from transom.cloud.disks import ATTACH_LIMITS, CloudDisk
from transom.cloud.errors import CloudError
from transom.cloud.provider import CloudProvider, cloud_summary
from transom.cloud.shares import FileShare
from transom.kit.durations import DurationError, parse_duration
from transom.kit.user_errors import EXIT_USAGE, UserError
from transom.machinery.quantity import QuantityError, parse_quantity

_PLUGINS: Final = {name.removeprefix("kubernetes.io/"): name for name in ATTACH_LIMITS}
DISK_OPTIONS: Final = ("attach-error", "detach-error", "latency", "missing")


async def answer_cloud_request(
    cloud: CloudProvider, nodes: Container[str], verb: str, body: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Raises UserError."""
    match verb:
        case "list":
            return cloud_summary(cloud)
        case "create":
            return _create(cloud, str(body.get("type", "")), str(body.get("name", "")), body)
        case "delete":
            return _delete(cloud, str(body.get("name", "")))
        case "detach":
            return await _detach(cloud, str(body.get("name", "")))
        case "limit":
            if body.get("node") not in nodes:
                raise UserError(
                    f"there is no node {body.get('node')!r}", "transom node list shows them"
                )
            return _limit(
                cloud,
                str(body.get("node", "")),
                str(body.get("type", "")),
                str(body.get("count", "")),
            )
        case "set":
            return _set(cloud, str(body.get("name", "")), body.get("values") or {})
    raise UserError(f"unknown verb {verb!r}")


def _create(
    cloud: CloudProvider, kind: str, name: str, body: Mapping[str, Any]
) -> Mapping[str, Any]:
    if kind not in _PLUGINS:
        raise UserError(
            f"unknown type of disk {kind!r}", f"choose one of {', '.join(_PLUGINS)}", EXIT_USAGE
        )
    if not name:
        raise UserError(
            "the disk needs a name",
            "for example: transom cloud create gce-pd data --size 10Gi",
            EXIT_USAGE,
        )
    if cloud.find(f"{_PLUGINS[kind]}/{name}"):
        raise UserError(f"there is a disk {name!r} already", "choose another name")
    try:
        size = int(parse_quantity(str(body.get("size") or "1Gi")).value())
    except QuantityError as problem:
        raise UserError(
            f"--size: {problem}", "write a quantity, for example 10Gi", EXIT_USAGE
        ) from problem
    try:
        return {
            "id": cloud.create_disk(
                f"{_PLUGINS[kind]}/{name}", size, str(body.get("zone") or "")
            ).identity
        }
    except CloudError as problem:
        raise UserError(str(problem)) from problem


def _disk(cloud: CloudProvider, name: str) -> CloudDisk:
    found = cloud.find(name)
    if len(found) == 1:
        return found[0]
    if found:
        raise UserError(
            f"several disks are called {name!r}",
            f"name one by its ID: {', '.join(d.name for d in found)}",
        )
    known = ", ".join(disk.short_name for disk in cloud.disks()) or "none"
    raise UserError(f"there is no disk {name!r}", f"the disks of this cluster: {known}")


def _share(cloud: CloudProvider, name: str) -> FileShare | None:
    wanted = name.replace("/", "\\").lower()
    return next((share for share in cloud.shares() if share.path.lower() == wanted), None)


def _delete(cloud: CloudProvider, name: str) -> Mapping[str, Any]:
    if (share := _share(cloud, name)) is not None:
        cloud.delete_share(share.server, share.name)
        return {"name": share.path}
    disk = _disk(cloud, name)
    try:
        cloud.delete_disk(disk.name)
    except CloudError as problem:
        raise UserError(
            str(problem),
            f"delete the pods that use it, or run: transom cloud detach {disk.short_name}",
        ) from problem
    return {"name": disk.short_name}


async def _detach(cloud: CloudProvider, name: str) -> Mapping[str, Any]:
    """Detaches like a cloud administrator, without involving Kubernetes."""
    disk = _disk(cloud, name)
    nodes = sorted(disk.attachments)
    if not nodes:
        raise UserError(f"no node has disk {name!r}")
    for node in nodes:
        try:
            await cloud.detach(disk.name, node, force=True)
        except CloudError as problem:
            raise UserError(str(problem)) from problem
    return {"name": disk.short_name, "nodes": nodes}


def _limit(cloud: CloudProvider, node: str, kind: str, count: str) -> Mapping[str, Any]:
    if kind not in _PLUGINS:
        raise UserError(
            f"unknown type of disk {kind!r}", f"choose one of {', '.join(_PLUGINS)}", EXIT_USAGE
        )
    if count != "default" and not (count.isdigit() and int(count) <= 1000):
        raise UserError(f"a node takes 0 to 1000 disks, not {count!r}", "or `default`", EXIT_USAGE)
    cloud.set_limit(node, _PLUGINS[kind], None if count == "default" else int(count))
    return {"name": node}


def _set(cloud: CloudProvider, name: str, values: Mapping[str, Any]) -> Mapping[str, Any]:
    if not values:
        raise UserError(
            "nothing to set",
            f"for example: transom cloud set {name or 'data'} latency=30",
            EXIT_USAGE,
        )
    if name == "all":
        if set(values) != {"latency"}:
            raise UserError(
                "for all disks only the latency can be set",
                "for example: transom cloud set all latency=10",
                EXIT_USAGE,
            )
        cloud.latency = _seconds(str(values["latency"])) or 0.0
        return {"name": "all"}
    if (share := _share(cloud, name)) is not None:
        if set(values) != {"offline"}:
            raise UserError(
                "a share has the option offline",
                f"for example: transom cloud set {name} offline=on",
                EXIT_USAGE,
            )
        share.offline = _switch("offline", str(values["offline"]))
        return {"name": share.path}
    disk = _disk(cloud, name)
    for option, value in values.items():
        match option:
            case "attach-error":
                disk.attach_error = str(value)
            case "detach-error":
                disk.detach_error = str(value)
            case "missing":
                disk.missing = _switch(option, str(value))
            case "latency":
                disk.latency = _seconds(str(value))
            case _:
                raise UserError(
                    f"a disk has no option {option!r}",
                    f"what can be set: {', '.join(DISK_OPTIONS)}",
                    EXIT_USAGE,
                )
    return {"name": disk.short_name}


def _switch(option: str, value: str) -> bool:
    """An empty text is off, as for the other faults."""
    if value not in ("on", "off", ""):
        raise UserError(f"{option} is on or off, not {value!r}", code=EXIT_USAGE)
    return value == "on"


def _seconds(value: str) -> float | None:
    """A number of seconds or a duration; None for an empty text: the provider's default."""
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parse_duration(value)
        except DurationError as problem:
            raise UserError(
                f"latency is a number of seconds or a duration, not {value!r}",
                "for example: latency=30 or latency=1m30s",
                EXIT_USAGE,
            ) from problem
    if not 0 <= seconds <= 3600:
        raise UserError("latency is 0 to 3600 seconds", code=EXIT_USAGE)
    return seconds
