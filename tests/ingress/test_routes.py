"""Which backend answers a request."""

from __future__ import annotations

from typing import Any

import pytest

from transom.ingress import gateway, gateway_status
from transom.ingress.certificates import secret_context, tls_hosts
from transom.ingress.controller import CONTROLLER, serves_ingress
from transom.ingress.routes import (
    host_name,
    make_route_table,
    oldest_first,
    without_dot_segments,
)

Object = dict[str, Any]


def ingress(name: str = "i", created: str = "2026-01-01T00:00:00Z", **spec: Any) -> Object:
    meta = {"name": name, "namespace": "shop", "creationTimestamp": created}
    return {"metadata": meta, "spec": spec}


def rule(host: str, *paths: tuple[str, str, str]) -> Object:
    rows = [
        {
            "path": path,
            "pathType": kind,
            "backend": {"service": {"name": service, "port": {"number": 80}}},
        }
        for path, kind, service in paths
    ]
    return {"host": host, "http": {"paths": rows}}


def found(table: Any, host: str, path: str, **more: Any) -> str:
    route = table.find(host, path, **more)
    return route.backends[0].service if route is not None else "-"


# The table of Kubernetes' documentation: type, path of the rule, path of the request, whether it matches.
@pytest.mark.parametrize(
    ("kind", "path", "request_path", "matches"),
    [
        ("Prefix", "/", "/any/path", True),
        ("Exact", "/foo", "/foo", True),
        ("Exact", "/foo", "/bar", False),
        ("Exact", "/foo", "/foo/", False),
        ("Exact", "/foo/", "/foo", False),
        ("Prefix", "/foo", "/foo", True),
        ("Prefix", "/foo", "/foo/", True),
        ("Prefix", "/foo/", "/foo", True),
        ("Prefix", "/foo/", "/foo/", True),
        ("Prefix", "/aaa/bb", "/aaa/bbb", False),
        ("Prefix", "/aaa/bbb", "/aaa/bbb", True),
        ("Prefix", "/aaa/bbb/", "/aaa/bbb", True),
        ("Prefix", "/aaa/bbb", "/aaa/bbb/", True),
        ("Prefix", "/aaa/bbb", "/aaa/bbb/ccc", True),
        ("Prefix", "/aaa/bbb", "/aaa/bbbxyz", False),
        ("ImplementationSpecific", "/foo", "/foo/bar", True),
    ],
)
def test_paths(kind: str, path: str, request_path: str, matches: bool) -> None:
    table = make_route_table([ingress(rules=[rule("", (path, kind, "s"))])])
    assert found(table, "any", request_path) == ("s" if matches else "-")


@pytest.mark.parametrize(
    ("host", "service"),
    [
        ("shop.example.com", "exact"),
        ("SHOP.example.com", "exact"),
        ("a.example.com", "wildcard"),
        ("a.b.example.com", "any"),
        ("example.com", "any"),
        ("127.0.0.1", "any"),
    ],
)
def test_hosts(host: str, service: str) -> None:
    rules = [
        rule("", ("/", "Prefix", "any")),
        rule("*.example.com", ("/", "Prefix", "wildcard")),
        rule("shop.example.com", ("/", "Prefix", "exact")),
    ]
    assert found(make_route_table([ingress(rules=rules)]), host, "/") == service


def test_the_longest_path_wins_and_exact_before_prefix() -> None:
    rules = [
        rule("h", ("/", "Prefix", "root"), ("/a", "Prefix", "a"), ("/a/b", "Prefix", "ab")),
        rule("h", ("/a/b", "Exact", "exact")),
    ]
    table = make_route_table([ingress(rules=rules)])
    assert [found(table, "h", path) for path in ("/x", "/a/x", "/a/b", "/a/b/c")] == [
        "root",
        "a",
        "exact",
        "ab",
    ]


def test_of_equal_routes_the_oldest_object_wins() -> None:
    new = ingress("a", "2026-02-01T00:00:00Z", rules=[rule("h", ("/", "Prefix", "new"))])
    old = ingress("z", "2026-01-01T00:00:00Z", rules=[rule("h", ("/", "Prefix", "old"))])
    assert found(make_route_table([new, old]), "h", "/") == "old"


def test_default_backend_and_the_form_of_v1beta1() -> None:
    table = make_route_table([ingress(backend={"serviceName": "s", "servicePort": "http"})])
    assert table.find("h", "/") is None
    assert (table.default[0].service, table.default[0].port) == ("s", "http")
    assert make_route_table([ingress(defaultBackend={"resource": {"kind": "X"}})]).default == ()


@pytest.mark.parametrize(
    ("header", "name"),
    [("a.b:80", "a.b"), ("a.b", "a.b"), ("[::1]:80", "[::1]"), ("", "")],
)
def test_host_header(header: str, name: str) -> None:
    assert host_name(header) == name


def test_which_ingresses_are_served() -> None:
    ours = {"metadata": {"name": "edge"}, "spec": {"controller": CONTROLLER}}
    default = {"ingressclass.kubernetes.io/is-default-class": "true"}
    other = {"metadata": {"name": "nginx"}, "spec": {"controller": "k8s.io/ingress-nginx"}}
    other_default = {**other, "metadata": {"name": "nginx", "annotations": default}}
    assert serves_ingress(ingress(ingressClassName="transom"), [])
    assert serves_ingress(ingress(ingressClassName="edge"), [ours])
    assert not serves_ingress(ingress(ingressClassName="nginx"), [ours, other])
    assert not serves_ingress(ingress(ingressClassName="unknown"), [])
    assert serves_ingress(ingress(), [other])
    assert not serves_ingress(ingress(), [other_default])
    annotated = ingress()
    annotated["metadata"]["annotations"] = {"kubernetes.io/ingress.class": "nginx"}
    assert not serves_ingress(annotated, [])


def test_tls_hosts_and_secrets_that_cannot_be_used() -> None:
    tls = [{"hosts": ["a", "b"], "secretName": "one"}, {"secretName": "two"}, {"hosts": ["c"]}]
    obj = ingress(tls=tls, rules=[rule("r", ("/", "Prefix", "s"))])
    assert tls_hosts(obj) == [("a", "shop", "one"), ("b", "shop", "one"), ("r", "shop", "two")]
    assert secret_context({"data": {}}) is None
    assert secret_context({"data": {"tls.crt": "eA==", "tls.key": "eA=="}}) is None


# ---- the Gateway API ----

CLASS = {"metadata": {"name": "edge"}, "spec": {"controllerName": gateway.CONTROLLER}}


def gateway_object(class_name: str, allowed: str | None = None) -> Object:
    listener: Object = {"name": "web", "port": 80, "protocol": "HTTP"}
    if allowed:
        listener["allowedRoutes"] = {"namespaces": {"from": allowed}}
    return {
        "metadata": {"name": "g", "namespace": "infra"},
        "spec": {"gatewayClassName": class_name, "listeners": [listener]},
    }


def http_route(namespace: str = "infra", **spec: Any) -> Object:
    parent = {"name": "g", "namespace": "infra"}
    meta = {"name": "r", "namespace": namespace}
    return {"metadata": meta, "spec": {"parentRefs": [parent], **spec}}


def every_service(_route: str, _namespace: str, _name: str) -> None:
    return None


def gateway_table(route: Object, class_name: str = "edge", allowed: str | None = None) -> Any:
    owned = gateway.own_gateways([CLASS], [gateway_object(class_name, allowed)])
    return make_route_table([], gateway.http_routes(route, owned, every_service))


def backend(name: str, **more: Any) -> list[Object]:
    return [{"name": name, "port": 80, **more}]


def test_http_routes_match_paths_headers_parameters_and_methods() -> None:
    rules = [
        {"backendRefs": backend("all")},
        {"matches": [{"path": {"value": "/api"}}], "backendRefs": backend("api")},
        {
            "matches": [{"path": {"type": "RegularExpression", "value": "/v[0-9]+"}}],
            "backendRefs": backend("versioned"),
        },
        {
            "matches": [{"headers": [{"name": "X-Canary", "value": "yes"}]}],
            "backendRefs": backend("canary"),
        },
        {
            "matches": [{"queryParams": [{"name": "q", "value": "1"}]}],
            "backendRefs": backend("query"),
        },
        {"matches": [{"method": "POST"}], "backendRefs": backend("post")},
    ]
    table = gateway_table(http_route(hostnames=["*.example.com"], rules=rules))
    host = "a.b.example.com"
    assert found(table, host, "/") == "all"
    assert found(table, host, "/api/x") == "api"
    assert found(table, host, "/v12") == "versioned"
    assert found(table, host, "/v12/x") == "all"
    assert found(table, host, "/", headers={"x-canary": "yes"}) == "canary"
    assert found(table, host, "/", query={"q": ["1"]}) == "query"
    assert found(table, host, "/", method="POST") == "post"
    assert found(table, "example.org", "/") == "-"


@pytest.mark.parametrize(
    ("namespace", "class_name", "allowed", "served"),
    [
        ("infra", "edge", None, True),
        ("shop", "edge", None, False),
        ("shop", "edge", "All", True),
        ("infra", "transom", None, True),
        ("infra", "other", None, False),
    ],
)
def test_routes_attach_to_our_gateways(
    namespace: str, class_name: str, allowed: str | None, served: bool
) -> None:
    route = http_route(namespace, rules=[{"backendRefs": backend("s")}])
    table = gateway_table(route, class_name, allowed)
    assert found(table, "h", "/") == ("s" if served else "-")


NOW = "2026-01-01T00:00:00Z"
LISTENERS = [
    {"name": "web", "port": 80, "protocol": "HTTP"},
    {
        "name": "tls",
        "port": 443,
        "protocol": "HTTPS",
        "hostname": "*.example.com",
        "tls": {"certificateRefs": [{"name": "pair"}]},
    },
    {"name": "raw", "port": 9000, "protocol": "TCP"},
]


def two_listeners() -> dict[str, Object]:
    made = gateway_object("edge")
    made["spec"]["listeners"] = LISTENERS
    return {"infra/g": made}


def attached(route: Object, **parent: Any) -> gateway.ParentAttachment:
    route["spec"]["parentRefs"][0] |= parent
    (found,) = gateway.attach_route(route, two_listeners())
    return found


@pytest.mark.parametrize(
    ("parent", "hosts", "listeners", "reason"),
    [
        ({}, [], ["web", "tls"], "Accepted"),
        ({}, ["example.org"], ["web"], "Accepted"),
        ({"sectionName": "tls"}, ["a.b.example.com"], ["tls"], "Accepted"),
        ({"sectionName": "tls"}, ["*.com", "*.b.example.com"], ["tls"], "Accepted"),
        ({"sectionName": "tls"}, ["example.com"], [], "NoMatchingListenerHostname"),
        ({"port": 443}, [], ["tls"], "Accepted"),
        ({"port": 444}, [], [], "NoMatchingParent"),
        ({"sectionName": "none"}, [], [], "NoMatchingParent"),
        ({"sectionName": "raw"}, [], [], "NotAllowedByListeners"),
    ],
)
def test_listeners_accept_routes_by_section_port_and_host(
    parent: Object, hosts: list[str], listeners: list[str], reason: str
) -> None:
    found = attached(http_route(hostnames=hosts), **parent)
    assert [row["name"] for row in found.listeners] == listeners
    assert found.reason == reason


def test_a_redirect_of_http_and_a_route_of_https_do_not_disturb_each_other() -> None:
    redirect = http_route(
        rules=[{"filters": [{"type": "RequestRedirect", "requestRedirect": {"scheme": "https"}}]}]
    )
    redirect["spec"]["parentRefs"][0]["sectionName"] = "web"
    shop = http_route(rules=[{"backendRefs": backend("shop")}])
    shop["spec"]["parentRefs"][0]["sectionName"] = "tls"
    owned = two_listeners()
    routes = [r for one in (redirect, shop) for r in gateway.http_routes(one, owned, every_service)]
    table = make_route_table([], routes)
    plain, secure = (table.find("a.example.com", "/", scheme=name) for name in ("http", "https"))
    assert plain is not None and plain.filters and not plain.backends
    assert secure is not None and [one.service for one in secure.backends] == ["shop"]
    assert table.find("example.org", "/", scheme="https") is None, "the host of the listener"


def conditions(rows: list[Object]) -> list[str]:
    return [f"{row['type']}={row['status']} {row['reason']}" for row in rows]


def test_a_gateway_reports_its_listeners() -> None:
    found = [attached(http_route()), attached(http_route(), sectionName="tls")]
    one = two_listeners()["infra/g"]
    status = gateway_status.gateway_status(
        one, "127.0.0.1", found, lambda *_: "InvalidCertificateRef", NOW
    )
    web, tls, raw = status["listeners"]
    assert [row["attachedRoutes"] for row in (web, tls, raw)] == [1, 2, 0]
    assert conditions(web["conditions"]) == [
        "Accepted=True Accepted",
        "Programmed=True Programmed",
        "ResolvedRefs=True ResolvedRefs",
    ]
    assert conditions(tls["conditions"]) == [
        "Accepted=True Accepted",
        "Programmed=False Invalid",
        "ResolvedRefs=False InvalidCertificateRef",
    ]
    assert conditions(raw["conditions"])[:2] == [
        "Accepted=False UnsupportedProtocol",
        "Programmed=False Invalid",
    ]


@pytest.mark.parametrize(
    ("ref", "wanted"),
    [
        ({"name": "here"}, "ResolvedRefs=True ResolvedRefs"),
        ({"name": "gone"}, "ResolvedRefs=False BackendNotFound"),
        ({"name": "here", "namespace": "other"}, "ResolvedRefs=False RefNotPermitted"),
        ({"name": "here", "kind": "Bucket", "group": "x.io"}, "ResolvedRefs=False InvalidKind"),
    ],
)
def test_a_route_reports_backends_that_cannot_be_used(ref: Object, wanted: str) -> None:
    def problem(route: str, namespace: str, name: str) -> str | None:
        if route != namespace:
            return "RefNotPermitted"
        return None if (namespace, name) == ("infra", "here") else "BackendNotFound"

    route = http_route(rules=[{"backendRefs": [{"port": 80, **ref}]}])
    foreign = {"controllerName": "example.com/other", "parentRef": {"name": "x"}, "conditions": []}
    stale = {"controllerName": gateway.CONTROLLER, "parentRef": {"name": "y"}, "conditions": []}
    route["status"] = {"parents": [stale, foreign]}
    status = gateway_status.route_status(route, [attached(route)], problem, NOW)
    other, own = status["parents"]
    assert other == foreign
    assert conditions(own["conditions"]) == ["Accepted=True Accepted", wanted]
    (made,) = gateway.http_routes(route, two_listeners(), problem)[0].backends
    assert made.invalid is ("False" in wanted)


@pytest.mark.parametrize(
    ("grant", "granted"),
    [
        ({}, True),
        ({"to": [{"group": "", "kind": "Secret", "name": "pair"}]}, True),
        ({"to": [{"group": "", "kind": "Secret", "name": "other"}]}, False),
        ({"to": [{"group": "", "kind": "Service"}]}, False),
        ({"to": [{"group": "x.io", "kind": "Secret"}]}, False),
        ({"from": [{"group": gateway.GROUP, "kind": "HTTPRoute", "namespace": "team"}]}, False),
        ({"from": [{"group": gateway.GROUP, "kind": "Gateway", "namespace": "shop"}]}, False),
        ({"from": [{"group": "", "kind": "Gateway", "namespace": "team"}]}, False),
        ({"namespace": "team"}, False),
        ({"from": None}, False),
    ],
)
def test_other_namespaces_are_used_only_with_a_reference_grant(
    grant: Object, granted: bool
) -> None:
    spec: Object = {
        "from": [{"group": gateway.GROUP, "kind": "Gateway", "namespace": "team"}],
        "to": [{"group": "", "kind": "Secret"}],
    } | {key: value for key, value in grant.items() if key != "namespace"}
    meta = {"name": "g", "namespace": grant.get("namespace", "shop")}
    target = ("shop", "pair")
    found = [{"metadata": meta, "spec": spec}]
    assert gateway.is_granted(found, "Gateway", "team", "Secret", target) is granted
    assert not gateway.is_granted([], "Gateway", "team", "Secret", target)
    assert gateway.is_granted([], "Gateway", "shop", "Secret", target), "its own namespace"


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("/a/b", "/a/b"),
        ("/a//b", "/a//b"),
        ("/.well-known/x", "/.well-known/x"),
        ("/a..b/...", "/a..b/..."),
        ("/public/../admin", "/admin"),
        ("/public/./../admin/", "/admin"),
        ("/public//../admin", "/admin"),
        ("/public\\..\\admin", "/admin"),
        ("/public/..\\admin", "/admin"),
        ("/public/x/..", "/public/"),
        ("/public/.", "/public/"),
        ("/.", "/"),
        ("/a/..", "/"),
        ("/..", None),
        ("/public/../../admin", None),
        ("/\\..\\..", None),
    ],
)
def test_dot_segments_are_resolved_before_a_route_is_chosen(path: str, wanted: str | None) -> None:
    assert without_dot_segments(path) == wanted


def test_the_oldest_object_claims_a_host() -> None:
    young = ingress("a-first-name", "2026-02-01T00:00:00Z")
    old = ingress("z-last-name", "2026-01-01T00:00:00Z")
    assert oldest_first([young, old]) == [old, young]


@pytest.mark.parametrize(
    ("rule", "what"),
    [
        ({"filters": [{"type": "RequestMirror"}]}, "the filter RequestMirror"),
        ({"filters": [{"type": "CORS", "cors": {}}]}, "the filter CORS"),
        ({"backendRefs": [{"name": "a", "filters": [{}]}]}, "a filter of a backend"),
        ({"filters": [{"type": "URLRewrite", "urlRewrite": {}}]}, None),
    ],
)
def test_what_a_route_asks_for_in_vain(rule: Object, what: str | None) -> None:
    route = http_route(rules=[rule])
    status = gateway_status.route_status(route, [attached(route)], every_service, NOW)
    accepted = status["parents"][0]["conditions"][0]
    wanted = "Accepted=False UnsupportedValue" if what else "Accepted=True Accepted"
    assert conditions([accepted]) == [wanted] and (what or "") in accepted["message"]
    (made, *_) = gateway.http_routes(route, two_listeners(), every_service)
    assert made.unsupported == (what or "")


def test_a_class_is_accepted() -> None:
    status = gateway_status.class_status(CLASS, NOW)
    assert conditions(status["conditions"]) == ["Accepted=True Accepted"]


def test_status_changes_only_with_its_content() -> None:
    def status(attachments: list[gateway.ParentAttachment], now: str) -> Object:
        one = two_listeners()["infra/g"]
        return gateway_status.gateway_status(one, "127.0.0.1", attachments, lambda *_: True, now)

    made, later = status([], NOW), status([], "2026-01-02T00:00:00Z")
    more = status([attached(http_route())], NOW)
    assert gateway_status.same_status(made, later) and not gateway_status.same_status(made, more)
    assert not gateway_status.same_status(None, made)
