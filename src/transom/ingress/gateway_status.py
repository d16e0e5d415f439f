"""What GatewayClasses, Gateways and HTTPRoutes report: the conditions of the Gateway API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transom.ingress.gateway import (
    CONTROLLER,
    GROUP,
    SCHEMES,
    ParentAttachment,
    ReferenceProblem,
    gateway_listeners,
    unresolved_reason,
    unsupported_in_route,
)
from transom.machinery.objects import Object


def _condition(
    kind: str, generation: int, now: str, reason: str = "", message: str = "", met: bool = True
) -> Object:
    """The reason of a condition that is met is its type."""
    return {
        "type": kind,
        "status": "True" if met else "False",
        "reason": reason or kind,
        "message": message,
        "observedGeneration": generation,
        "lastTransitionTime": now,
    }


def class_status(gateway_class: Object, now: str) -> Object:
    generation = gateway_class["metadata"].get("generation", 1)
    return {"conditions": [_condition("Accepted", generation, now)]}


def gateway_status(
    gateway: Object,
    address: str,
    attachments: Sequence[ParentAttachment],
    certificate_problem: ReferenceProblem,
    now: str,
) -> Object:
    """The status of a Gateway that is served at this address; `attachments` are those to it, each
    of another route.
    """
    generation = gateway["metadata"].get("generation", 1)
    names = [one["name"] for found in attachments for one in found.listeners]
    return {
        "addresses": [{"type": "IPAddress", "value": address}],
        "conditions": [_condition(kind, generation, now) for kind in ("Accepted", "Programmed")],
        "listeners": [
            {
                "name": listener["name"],
                "attachedRoutes": names.count(listener["name"]),
                "supportedKinds": [{"group": GROUP, "kind": "HTTPRoute"}]
                if listener.get("protocol") in SCHEMES
                else [],
                "conditions": _listener_conditions(
                    listener, gateway["metadata"]["namespace"], certificate_problem, generation, now
                ),
            }
            for listener in gateway_listeners(gateway)
        ],
    }


def _listener_conditions(
    listener: Object,
    namespace: str,
    certificate_problem: ReferenceProblem,
    generation: int,
    now: str,
) -> list[Object]:
    supported = listener.get("protocol") in SCHEMES
    refused = next(
        (
            (ref["name"], reason)
            for ref in (listener.get("tls") or {}).get("certificateRefs") or ()
            if (
                reason := certificate_problem(
                    namespace, ref.get("namespace") or namespace, ref["name"]
                )
            )
        ),
        None,
    )
    programmed = supported and refused is None
    return [
        _condition(
            "Accepted", generation, now, "" if supported else "UnsupportedProtocol", met=supported
        ),
        _condition("Programmed", generation, now, "" if programmed else "Invalid", met=programmed),
        _condition("ResolvedRefs", generation, now)
        if refused is None
        else _condition(
            "ResolvedRefs",
            generation,
            now,
            refused[1],
            f'The certificate in the Secret "{refused[0]}" cannot be used',
            met=False,
        ),
    ]


def route_status(
    route: Object,
    attachments: Sequence[ParentAttachment],
    service_problem: ReferenceProblem,
    now: str,
) -> Object:
    """With the entries of other controllers unchanged."""
    generation = route["metadata"].get("generation", 1)
    entries = (route.get("status") or {}).get("parents") or ()
    others = [entry for entry in entries if entry.get("controllerName") != CONTROLLER]
    resolved = _resolved(route, service_problem, generation, now)
    own = [
        {
            "parentRef": found.parent,
            "controllerName": CONTROLLER,
            "conditions": [_accepted(route, found, generation, now), resolved],
        }
        for found in attachments
    ]
    return {"parents": others + own}


def _accepted(route: Object, found: ParentAttachment, generation: int, now: str) -> Object:
    missing = unsupported_in_route(route)
    if found.listeners and missing:
        message = f"Not supported: {missing}. Requests that need it are answered with an error"
        return _condition("Accepted", generation, now, "UnsupportedValue", message, met=False)
    met = bool(found.listeners)
    return _condition("Accepted", generation, now, found.reason, found.message, met=met)


def _resolved(
    route: Object, service_problem: ReferenceProblem, generation: int, now: str
) -> Object:
    namespace = route["metadata"]["namespace"]
    for rule in (route.get("spec") or {}).get("rules") or ():
        for ref in rule.get("backendRefs") or ():
            reason = unresolved_reason(ref, namespace, service_problem)
            if reason is not None:
                message = f'The backend {ref.get("kind", "Service")} "{ref["name"]}" cannot be used'
                return _condition("ResolvedRefs", generation, now, reason, message, met=False)
    return _condition("ResolvedRefs", generation, now)


def same_status(first: Any, second: Any) -> bool:
    """Whether two statuses differ only in their times."""
    if isinstance(first, dict) and isinstance(second, dict):
        keys = (first.keys() | second.keys()) - {"lastTransitionTime"}
        return all(same_status(first.get(key), second.get(key)) for key in keys)
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(same_status, first, second))
    return bool(first == second)
