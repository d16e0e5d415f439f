"""The Gateway API: the routes of HTTPRoutes, and what Gateways and HTTPRoutes report.

Served are Gateways whose class has our controller name, or is called `transom`. All listeners share
the two ports of the ingress controller.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from transom.client.resources import GroupVersionResource
from transom.ingress.routes import (
    EXACT,
    PREFIX,
    REGULAR_EXPRESSION,
    IngressRoute,
    RouteBackend,
    ValueMatch,
)
from transom.kit.regexp import RegexpError, compile_regexp
from transom.machinery.objects import Object

GROUP = "gateway.networking.k8s.io"
CONTROLLER = "transom.dev/gateway-controller"
CLASS_NAME = "transom"
GATEWAY_CLASSES = GroupVersionResource(GROUP, "v1", "gatewayclasses", False, "GatewayClass")
GATEWAYS = GroupVersionResource(GROUP, "v1", "gateways", True, "Gateway")
HTTP_ROUTES = GroupVersionResource(GROUP, "v1", "httproutes", True, "HTTPRoute")
GATEWAY_RESOURCES = (GATEWAY_CLASSES, GATEWAYS, HTTP_ROUTES)
_PATH_TYPES = {"Exact": EXACT, "RegularExpression": REGULAR_EXPRESSION}


def gateway_crd(definition: Object) -> bool:
    """Whether a CustomResourceDefinition is that of HTTPRoute, in the version that we read."""
    spec = definition.get("spec") or {}
    versions = [row.get("name") for row in spec.get("versions") or () if row.get("served")]
    names = spec.get("names") or {}
    return spec.get("group") == GROUP and names.get("plural") == "httproutes" and "v1" in versions


def own_gateways(classes: Iterable[Object], gateways: Iterable[Object]) -> dict[str, Object]:
    """The Gateways that we serve, by namespace/name."""
    named = {
        obj["metadata"]["name"]: (obj.get("spec") or {}).get("controllerName") for obj in classes
    }
    return {
        f"{gateway['metadata']['namespace']}/{gateway['metadata']['name']}": gateway
        for gateway in gateways
        if named.get(class_name := (gateway.get("spec") or {}).get("gatewayClassName", ""))
        == CONTROLLER
        or (class_name == CLASS_NAME and class_name not in named)
    }


def attached_parents(route: Object, gateways: dict[str, Object]) -> list[Object]:
    """The parent references of a route that name one of our Gateways."""
    namespace = route["metadata"]["namespace"]
    found = []
    for parent in (route.get("spec") or {}).get("parentRefs") or ():
        key = f"{parent.get('namespace') or namespace}/{parent.get('name', '')}"
        if parent.get("kind", "Gateway") == "Gateway" and _allows(
            gateways.get(key), parent, namespace, key.partition("/")[0]
        ):
            found.append(parent)
    return found


def _allows(gateway: Object | None, parent: Object, namespace: str, own: str) -> bool:
    """Whether a listener of the Gateway accepts routes of this namespace."""
    if gateway is None:
        return False
    for listener in (gateway.get("spec") or {}).get("listeners") or ():
        if parent.get("sectionName", listener.get("name")) != listener.get("name"):
            continue
        allowed = ((listener.get("allowedRoutes") or {}).get("namespaces") or {}).get("from")
        if allowed == "All" or (allowed in (None, "Same") and namespace == own):
            return True
    return False


def http_routes(route: Object, gateways: dict[str, Object]) -> list[IngressRoute]:
    """The routes of an HTTPRoute that is attached to one of our Gateways."""
    if not attached_parents(route, gateways):
        return []
    spec, meta = route.get("spec") or {}, route["metadata"]
    source = f"httproute {meta['namespace']}/{meta['name']}"
    found = []
    for rule in spec.get("rules") or ():
        backends = tuple(_backends(rule, meta["namespace"]))
        matches: list[Object] = rule.get("matches") or [{}]
        for match in matches:
            path = match.get("path") or {}
            kind = _PATH_TYPES.get(path.get("type", ""), PREFIX)
            text = path.get("value") or "/"
            try:
                pattern = compile_regexp(f"^(?:{text})$") if kind == REGULAR_EXPRESSION else None
                headers = tuple(
                    _value_match(h, h["name"].lower()) for h in match.get("headers") or ()
                )
                query = tuple(_value_match(q, q["name"]) for q in match.get("queryParams") or ())
            except RegexpError:
                continue
            found += [
                IngressRoute(
                    host,
                    text,
                    kind,
                    backends,
                    source,
                    str(meta.get("creationTimestamp") or ""),
                    match.get("method", ""),
                    headers,
                    query,
                    tuple(rule.get("filters") or ()),
                    pattern,
                    any_depth=True,
                )
                for host in spec.get("hostnames") or ("",)
            ]
    return found


def _value_match(match: Object, name: str) -> ValueMatch:
    value = match.get("value", "")
    expression = match.get("type") == "RegularExpression"
    return ValueMatch(name, value, compile_regexp(f"^(?:{value})$") if expression else None)


def _backends(rule: Object, namespace: str) -> Iterable[RouteBackend]:
    for ref in rule.get("backendRefs") or ():
        if ref.get("kind", "Service") == "Service" and not ref.get("group"):
            yield RouteBackend(
                ref.get("namespace") or namespace,
                ref["name"],
                ref.get("port", ""),
                ref.get("weight", 1),
            )


# ---- status ----


def _condition(kind: str, generation: int, now: str) -> Object:
    """A condition that is met; its reason has the same name."""
    return {
        "type": kind,
        "status": "True",
        "reason": kind,
        "message": "",
        "observedGeneration": generation,
        "lastTransitionTime": now,
    }


def gateway_status(gateway: Object, address: str, attached: int, now: str) -> Object:
    """The status of a Gateway that is served at this address."""
    generation = gateway["metadata"].get("generation", 1)
    kinds = [{"group": GROUP, "kind": "HTTPRoute"}]

    def conditions(*names: str) -> list[Object]:
        return [_condition(name, generation, now) for name in names]

    return {
        "addresses": [{"type": "IPAddress", "value": address}],
        "conditions": conditions("Accepted", "Programmed"),
        "listeners": [
            {
                "name": listener["name"],
                "attachedRoutes": attached,
                "supportedKinds": kinds,
                "conditions": conditions("Accepted", "Programmed", "ResolvedRefs"),
            }
            for listener in (gateway.get("spec") or {}).get("listeners") or ()
        ],
    }


def route_status(route: Object, parents: list[Object], now: str) -> Object:
    generation = route["metadata"].get("generation", 1)
    return {
        "parents": [
            {
                "parentRef": parent,
                "controllerName": CONTROLLER,
                "conditions": [
                    _condition(name, generation, now) for name in ("Accepted", "ResolvedRefs")
                ],
            }
            for parent in parents
        ]
    }


def same_status(first: Any, second: Any) -> bool:
    """Whether two statuses differ only in their times."""
    if isinstance(first, dict) and isinstance(second, dict):
        keys = (first.keys() | second.keys()) - {"lastTransitionTime"}
        return all(same_status(first.get(key), second.get(key)) for key in keys)
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(same_status, first, second))
    return bool(first == second)
