"""The Gateway API: which listeners accept an HTTPRoute, and the routes that result.

Served are Gateways whose class has our controller name, or is called `transom`. All listeners for
HTTP share one port of the ingress controller, those for HTTPS the other one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

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
REFERENCE_GRANTS = GroupVersionResource(GROUP, "v1beta1", "referencegrants", True, "ReferenceGrant")
HTTP_ROUTES = GroupVersionResource(GROUP, "v1", "httproutes", True, "HTTPRoute")
GATEWAY_RESOURCES = (GATEWAY_CLASSES, GATEWAYS, HTTP_ROUTES)
SCHEMES: Final = {"HTTP": "http", "HTTPS": "https"}  # by protocol of a listener
# The reason why an object of the first namespace cannot use the Service or Secret of this namespace
# and name, as in conditions; None if it can.
ReferenceProblem = Callable[[str, str, str], str | None]
_SUPPORTED_FILTERS = (
    "RequestHeaderModifier",
    "ResponseHeaderModifier",
    "RequestRedirect",
    "URLRewrite",
)
_PATH_TYPES = {"Exact": EXACT, "RegularExpression": REGULAR_EXPRESSION}


def gateway_api_installed(definitions: Iterable[Object]) -> bool:
    """Whether there are CustomResourceDefinitions of all kinds that we read, in their version."""
    served = {
        (spec.get("group"), (spec.get("names") or {}).get("plural"), version.get("name"))
        for spec in (one.get("spec") or {} for one in definitions)
        for version in spec.get("versions") or ()
        if version.get("served")
    }
    return all((kind.group, kind.plural, kind.version) in served for kind in GATEWAY_RESOURCES)


def grants_installed(definitions: Iterable[Object]) -> bool:
    kind = REFERENCE_GRANTS
    return any(
        spec.get("group") == kind.group
        and (spec.get("names") or {}).get("plural") == kind.plural
        and any(v.get("name") == kind.version and v.get("served") for v in spec["versions"])
        for spec in (one.get("spec") or {} for one in definitions)
    )


def is_granted(
    grants: Iterable[Object], kind: str, namespace: str, target_kind: str, target: tuple[str, str]
) -> bool:
    """Whether objects of a kind of the Gateway API in a namespace may refer to a Service or Secret
    (namespace and name): always in their own namespace, elsewhere with a ReferenceGrant there.
    """
    target_namespace, name = target
    if namespace == target_namespace:
        return True
    for grant in grants:
        spec = grant.get("spec") or {}
        if (
            grant["metadata"]["namespace"] == target_namespace
            and any(
                (row.get("group"), row.get("kind"), row.get("namespace"))
                == (GROUP, kind, namespace)
                for row in spec.get("from") or ()
            )
            and any(
                not row.get("group")
                and row.get("kind") == target_kind
                and row.get("name") in (None, "", name)
                for row in spec.get("to") or ()
            )
        ):
            return True
    return False


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


class ParentAttachment(NamedTuple):
    """A parent reference of a route to one of our Gateways, with the listeners that accept it."""

    parent: Object
    gateway: str  # namespace/name
    listeners: tuple[Object, ...]
    reason: str  # that of the condition Accepted
    message: str = ""


def attach_route(route: Object, gateways: dict[str, Object]) -> list[ParentAttachment]:
    """All parent references of a route that name one of our Gateways."""
    namespace = route["metadata"]["namespace"]
    found = []
    for parent in (route.get("spec") or {}).get("parentRefs") or ():
        key = f"{parent.get('namespace') or namespace}/{parent.get('name', '')}"
        if parent.get("kind", "Gateway") == "Gateway" and key in gateways:
            found.append(_attach(route, parent, key, gateways[key]))
    return found


def _attach(route: Object, parent: Object, key: str, gateway: Object) -> ParentAttachment:
    named = [
        listener
        for listener in gateway_listeners(gateway)
        if parent.get("sectionName") in (None, listener.get("name"))
        and parent.get("port") in (None, listener.get("port"))
    ]
    if not named:
        return ParentAttachment(
            parent, key, (), "NoMatchingParent", "No listener has this name and port"
        )
    same = route["metadata"]["namespace"] == key.partition("/")[0]
    allowed = [listener for listener in named if _allows(listener, same)]
    if not allowed:
        return ParentAttachment(
            parent, key, (), "NotAllowedByListeners", "No listener allows this route"
        )
    accepting = tuple(listener for listener in allowed if _common_hosts(listener, route))
    if not accepting:
        return ParentAttachment(
            parent,
            key,
            (),
            "NoMatchingListenerHostname",
            "No listener has a hostname of this route",
        )
    return ParentAttachment(parent, key, accepting, "Accepted")


def gateway_listeners(gateway: Object) -> list[Object]:
    return (gateway.get("spec") or {}).get("listeners") or []


def _allows(listener: Object, same_namespace: bool) -> bool:
    """Whether it accepts HTTPRoutes of its own, or of another namespace."""
    allowed = listener.get("allowedRoutes") or {}
    kinds = allowed.get("kinds") or ()
    if listener.get("protocol") not in SCHEMES or (
        kinds and not any(row.get("kind") == "HTTPRoute" for row in kinds)
    ):
        return False
    source = (allowed.get("namespaces") or {}).get("from") or "Same"
    return source == "All" or (source == "Same" and same_namespace)


def _common_hosts(listener: Object, route: Object) -> list[str]:
    """The host names that both have; "" for any host."""
    own = listener.get("hostname") or ""
    wanted = (route.get("spec") or {}).get("hostnames") or [""]
    common = (_common_host(own, host) for host in wanted)
    return [host for host in common if host is not None]


def _common_host(first: str, second: str) -> str | None:
    """The narrower of two names, if one includes the other."""
    for wide, narrow in ((first, second), (second, first)):
        if not wide or wide == narrow:
            return narrow
        if wide.startswith("*.") and narrow.endswith(wide[1:]):
            return narrow
    return None


def unsupported_in_route(route: Object) -> str | None:
    """What of a route is not done here. Requests that need it get an error instead."""
    found = map(_unsupported_in_rule, (route.get("spec") or {}).get("rules") or ())
    return next((what for what in found if what), None)


def _unsupported_in_rule(rule: Object) -> str:
    for one in rule.get("filters") or ():
        if one.get("type") not in _SUPPORTED_FILTERS:
            return f"the filter {one.get('type')}"
    refs = rule.get("backendRefs") or ()
    return "a filter of a backend" if any(ref.get("filters") for ref in refs) else ""


def http_routes(
    route: Object, gateways: dict[str, Object], service_problem: ReferenceProblem
) -> list[IngressRoute]:
    """The routes of an HTTPRoute, for each scheme and host of the listeners that accept it."""
    places = {
        (SCHEMES[listener["protocol"]], host)
        for attachment in attach_route(route, gateways)
        for listener in attachment.listeners
        for host in _common_hosts(listener, route)
    }
    if not places:
        return []
    spec, meta = route.get("spec") or {}, route["metadata"]
    source = f"httproute {meta['namespace']}/{meta['name']}"
    found = []
    for rule in spec.get("rules") or ():
        backends = tuple(_backends(rule, meta["namespace"], service_problem))
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
                    scheme=scheme,
                    unsupported=_unsupported_in_rule(rule),
                )
                for scheme, host in sorted(places)
            ]
    return found


def _value_match(match: Object, name: str) -> ValueMatch:
    value = match.get("value", "")
    expression = match.get("type") == "RegularExpression"
    return ValueMatch(name, value, compile_regexp(f"^(?:{value})$") if expression else None)


def _backends(
    rule: Object, namespace: str, service_problem: ReferenceProblem
) -> Iterable[RouteBackend]:
    for ref in rule.get("backendRefs") or ():
        yield RouteBackend(
            ref.get("namespace") or namespace,
            ref["name"],
            ref.get("port", ""),
            ref.get("weight", 1),
            invalid=unresolved_reason(ref, namespace, service_problem) is not None,
        )


def unresolved_reason(ref: Object, namespace: str, service_problem: ReferenceProblem) -> str | None:
    """Why a reference to a backend cannot be resolved: a reason of the condition ResolvedRefs."""
    if ref.get("kind", "Service") != "Service" or ref.get("group"):
        return "InvalidKind"
    return service_problem(namespace, ref.get("namespace") or namespace, ref["name"])
