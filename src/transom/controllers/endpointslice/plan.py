"""Packs endpoints into slices of a hundred. Pure functions.

Changes few slices: endpoints stay where they are, slices that change anyway are filled first, and
the rest goes into a slice that has room for all of it, or into new ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from transom.client.resources import SERVICES
from transom.controllers.endpointslice.common import (
    MANAGED_BY,
    SERVICE_NAME,
    Endpoints,
    Ports,
    SliceChanges,
    endpoint_key,
    new_slice,
    same_endpoint,
    slice_endpoints,
    slice_ports,
)
from transom.controllers.service_pods import HEADLESS, has_cluster_ip
from transom.machinery.objects import Object, with_metadata

MANAGER = "endpointslice-controller.k8s.io"
MOST_ENDPOINTS = 100
_RESERVED = (SERVICE_NAME, MANAGED_BY, HEADLESS)


def plan_slices(
    service: Object,
    existing: Sequence[Object],
    desired: Mapping[Ports, Endpoints],
    address_type: str,
    most: int = MOST_ENDPOINTS,
    *,
    keeps_empty: bool = False,
    assign_hints: Callable[[SliceChanges, list[Object]], None] | None = None,
) -> SliceChanges:
    """Plans the changes from the current slices of one address type to the desired endpoints, by
    ports. `keeps_empty`: an empty slice stays as it is. `assign_hints` gets the changes and the
    slices that do not change.
    """
    plan = SliceChanges()
    by_ports: dict[Ports, list[Object]] = {}
    for piece in existing:
        if _is_owned(piece, service):
            by_ports.setdefault(slice_ports(piece), []).append(piece)
        else:
            plan.delete.append(piece)
    for ports, endpoints in desired.items():
        _pack(plan, service, by_ports.pop(ports, ()), endpoints, ports, address_type, most)
    for pieces in by_ports.values():
        plan.delete += pieces
    if len(existing) == len(plan.delete) and not plan.create:
        # There is always at least one slice; it is empty if there are no endpoints.
        if keeps_empty and len(plan.delete) == 1 and _is_empty(plan.delete[0], service):
            plan.delete.clear()
        else:
            plan.create.append(new_slice(service, SERVICES, address_type, (), _labels(service)))
    if assign_hints is not None:
        touched = {piece["metadata"]["name"] for piece in (*plan.update, *plan.delete)}
        assign_hints(plan, [p for p in existing if p["metadata"]["name"] not in touched])
    plan.recycle(lambda piece: _is_owned(piece, service))
    return plan


def _pack(
    plan: SliceChanges,
    service: Object,
    existing: Iterable[Object],
    desired: Endpoints,
    ports: Ports,
    address_type: str,
    most: int,
) -> None:
    missing = dict(desired)
    labels = _labels(service)
    changed: list[Object] = []
    unchanged: list[Object] = []
    for piece in existing:
        before = slice_endpoints(piece)
        kept = [
            found for old in before if (found := missing.pop(endpoint_key(old), None)) is not None
        ]
        if len(kept) == len(before) and all(map(same_endpoint, kept, before)):
            if _own_labels(piece) == _own_labels(service):
                unchanged.append(piece)
            else:
                changed.append({**with_metadata(piece, labels=labels), "endpoints": kept})
        elif kept:
            changed.append({**with_metadata(piece, labels=labels), "endpoints": kept})
        else:
            plan.delete.append(piece)
    rest = list(missing.values())
    for piece in sorted(changed, key=lambda piece: -len(piece["endpoints"])):
        room = most - len(piece["endpoints"])
        if rest and room > 0:
            piece["endpoints"] = piece["endpoints"] + rest[:room]
            rest = rest[room:]
    plan.update += changed
    while rest:
        best = _with_room(unchanged, len(rest), most) if len(rest) < most else None
        if best is None:
            plan.create.append(
                {
                    **new_slice(service, SERVICES, address_type, ports, labels),
                    "endpoints": rest[:most],
                }
            )
        else:
            unchanged.remove(best)
            plan.update.append({**best, "endpoints": slice_endpoints(best) + rest})
        rest = rest[most:]


def _with_room(pieces: Iterable[Object], count: int, most: int) -> Object | None:
    """The slice that will be fullest after adding this many."""
    fitting = [piece for piece in pieces if 0 <= most - len(slice_endpoints(piece)) - count < most]
    return max(fitting, key=lambda piece: len(slice_endpoints(piece)), default=None)


def _is_owned(piece: Object, service: Object) -> bool:
    return any(
        ref["uid"] == service["metadata"]["uid"]
        and ref["kind"] == "Service"
        and ref["apiVersion"] == "v1"
        for ref in piece["metadata"].get("ownerReferences") or ()
    )


def _is_empty(piece: Object, service: Object) -> bool:
    """Whether this is the slice of a service without endpoints."""
    return (
        _is_owned(piece, service)
        and not slice_endpoints(piece)
        and not slice_ports(piece)
        and (piece["metadata"].get("labels") or {}) == _labels(service)
    )


def _own_labels(obj: Object) -> dict[str, str]:
    return {
        name: value
        for name, value in (obj["metadata"].get("labels") or {}).items()
        if name not in _RESERVED
    }


def _labels(service: Object) -> dict[str, str]:
    out = _own_labels(service)
    if not has_cluster_ip(service):
        out[HEADLESS] = ""
    return out | {SERVICE_NAME: service["metadata"]["name"], MANAGED_BY: MANAGER}
