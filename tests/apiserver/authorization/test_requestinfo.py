"""The attributes of a request, against the table of Kubernetes' RequestInfoFactory."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from itertools import product

import pytest

from transom.apiserver.core import requestinfo
from transom.apiserver.core.requestinfo import RequestInfo, UnknownRequest, parse_request_info
from transom.http.messages import decode_path, parse_query

from . import oracle

PODS = "/api/v1/namespaces/other/pods"
WATCH = "/api/v1/watch/namespaces/other/pods"


def of(method: str, target: str) -> RequestInfo:
    raw = target.encode()
    path = decode_path(raw)
    assert path is not None
    return parse_request_info(method, path, parse_query(raw.partition(b"?")[2]))


@pytest.mark.parametrize(
    ("method", "target", "verb", "group", "namespace", "resource", "subresource", "name"),
    [
        ("GET", "/api/v1/namespaces", "list", "", "", "namespaces", "", ""),
        ("GET", "/api/v1/namespaces/other", "get", "", "other", "namespaces", "", "other"),
        ("GET", "/api/v1/namespaces/other/pods", "list", "", "other", "pods", "", ""),
        ("GET", "/api/v1/namespaces/other/pods/foo", "get", "", "other", "pods", "", "foo"),
        ("HEAD", "/api/v1/namespaces/other/pods/foo", "get", "", "other", "pods", "", "foo"),
        ("GET", "/api/v1/pods", "list", "", "", "pods", "", ""),
        ("HEAD", "/api/v1/pods", "list", "", "", "pods", "", ""),
        (
            "GET",
            "/api/v1/namespaces/other/pods/foo?watch=true",
            "get",
            "",
            "other",
            "pods",
            "",
            "foo",
        ),
        ("OPTIONS", "/api/v1/pods", "", "", "", "pods", "", ""),
        # the deprecated forms
        ("GET", "/api/v1/proxy/namespaces/other/pods/foo", "proxy", "", "other", "pods", "", "foo"),
        (
            "GET",
            "/api/v1/proxy/namespaces/other/pods/foo/sub/path",
            "proxy",
            "",
            "other",
            "pods",
            "",
            "foo",
        ),
        ("GET", "/api/v1/watch/pods", "watch", "", "", "pods", "", ""),
        ("GET", "/api/v1/watch/namespaces/other/pods", "watch", "", "other", "pods", "", ""),
        ("GET", "/api/v1/watch/namespaces/other/pods/foo", "watch", "", "other", "pods", "", "foo"),
        (
            "GET",
            f"{WATCH}/foo?fieldSelector=metadata.name%3Dbar",
            "watch",
            "",
            "other",
            "pods",
            "",
            "foo",
        ),
        ("DELETE", "/api/v1/watch/pods", "watch", "", "", "pods", "", ""),
        ("GET", "/api/v1/watch/namespaces/other", "watch", "", "other", "namespaces", "", "other"),
        # subresources
        (
            "GET",
            "/api/v1/namespaces/other/pods/foo/status",
            "get",
            "",
            "other",
            "pods",
            "status",
            "foo",
        ),
        (
            "PUT",
            "/api/v1/namespaces/other/finalize",
            "update",
            "",
            "other",
            "namespaces",
            "finalize",
            "other",
        ),
        (
            "PUT",
            "/api/v1/namespaces/other/status",
            "update",
            "",
            "other",
            "namespaces",
            "status",
            "other",
        ),
        (
            "GET",
            "/api/v1/namespaces/other/namespaces/foo",
            "get",
            "",
            "other",
            "namespaces",
            "",
            "foo",
        ),
        (
            "GET",
            "/api/v1/namespaces/other/pods/foo/proxy/a/b",
            "get",
            "",
            "other",
            "pods",
            "proxy",
            "foo",
        ),
        # verbs
        ("PATCH", "/api/v1/namespaces/other/pods/foo", "patch", "", "other", "pods", "", "foo"),
        ("DELETE", "/api/v1/namespaces/other/pods/foo", "delete", "", "other", "pods", "", "foo"),
        ("POST", "/api/v1/namespaces/other/pods", "create", "", "other", "pods", "", ""),
        ("DELETE", "/api/v1/nodes", "deletecollection", "", "", "nodes", "", ""),
        (
            "DELETE",
            f"{PODS}?fieldSelector=metadata.name%3Dfoo",
            "deletecollection",
            "",
            "other",
            "pods",
            "",
            "",
        ),
        (
            "POST",
            "/apis/apps/v1/namespaces/other/deployments",
            "create",
            "apps",
            "other",
            "deployments",
            "",
            "",
        ),
        # names in selectors
        (
            "GET",
            f"{PODS}?fieldSelector=metadata.name%3Dfoo",
            "list",
            "",
            "other",
            "pods",
            "",
            "foo",
        ),
        (
            "GET",
            f"{PODS}?fieldSelector=metadata.name%3D%3Dfoo&watch=1",
            "watch",
            "",
            "other",
            "pods",
            "",
            "foo",
        ),
        (
            "GET",
            f"{PODS}?watch&fieldSelector=metadata.name%3Dfoo",
            "watch",
            "",
            "other",
            "pods",
            "",
            "foo",
        ),
        (
            "GET",
            f"{PODS}?watch=False&fieldSelector=metadata.name%3Dfoo",
            "list",
            "",
            "other",
            "pods",
            "",
            "foo",
        ),
        (
            "GET",
            f"{PODS}?fieldSelector=metadata.name%21%3Dfoo",
            "list",
            "",
            "other",
            "pods",
            "",
            "",
        ),
        (
            "GET",
            "/api/v1/pods?fieldSelector=spec.nodeName%3Da%2Cmetadata.name%3Dfoo",
            "list",
            "",
            "",
            "pods",
            "",
            "foo",
        ),
        (
            "GET",
            "/api/v1/namespaces?fieldSelector=metadata.name%3Dfoo",
            "list",
            "",
            "",
            "namespaces",
            "",
            "foo",
        ),
        ("GET", "/api/v1/pods?fieldSelector=metadata.name%3D..", "list", "", "", "pods", "", ""),
        ("GET", "/api/v1/pods?fieldSelector=metadata.name%3Da%2Fb", "list", "", "", "pods", "", ""),
        (
            "GET",
            "/api/v1/pods?fieldSelector=metadata.name%3Da%2525b",
            "list",
            "",
            "",
            "pods",
            "",
            "",
        ),
        # options that cannot be decoded do not name anything
        (
            "GET",
            "/api/v1/pods?fieldSelector=metadata.name%3Dfoo&limit=x",
            "list",
            "",
            "",
            "pods",
            "",
            "",
        ),
        (
            "GET",
            "/api/v1/pods?fieldSelector=metadata.name%3Dfoo&labelSelector=a+in&watch=1",
            "watch",
            "",
            "",
            "pods",
            "",
            "",
        ),
        (
            "GET",
            "/api/v1/pods?fieldSelector=metadata.name%3Dfoo,&limit=1_0",
            "list",
            "",
            "",
            "pods",
            "",
            "",
        ),
        (
            "GET",
            "/api/v1/pods?fieldSelector=metadata.name%3Dfoo,junk",
            "list",
            "",
            "",
            "pods",
            "",
            "",
        ),
        (
            "GET",
            "/api/v1/pods?fieldSelector=metadata.name%3Da&fieldSelector=metadata.name%3Db",
            "list",
            "",
            "",
            "pods",
            "",
            "a",
        ),
        # spellings
        ("GET", "/api/v1/namespaces/other/pods/", "list", "", "other", "pods", "", ""),
        ("GET", "//api/v1/namespaces/other/pods//", "list", "", "other", "pods", "", ""),
        ("GET", "/api/v1/namespaces//pods", "list", "", "", "pods", "", ""),
        ("GET", "/api/v1/namespaces/other%2Fpods%2Ffoo", "get", "", "other", "pods", "", "foo"),
        ("GET", "/api/v1/namespaces/other/../pods", "get", "", "other", "..", "", "pods"),
        ("GET", "/api/v1/namespaces/other/./pods", "get", "", "other", ".", "", "pods"),
        ("GET", "/api/v1/namespaces/other/Pods", "list", "", "other", "Pods", "", ""),
        ("GET", "/apis//v1/pods", "list", "", "", "pods", "", ""),
        ("GET", "/api%2F/v1", "list", "", "", "v1", "", ""),
    ],
)
def test_resource_requests(
    method: str,
    target: str,
    verb: str,
    group: str,
    namespace: str,
    resource: str,
    subresource: str,
    name: str,
) -> None:
    info = of(method, target)
    assert info.is_resource
    got = (info.verb, info.group, info.namespace, info.resource, info.subresource, info.name)
    assert got == (verb, group, namespace, resource, subresource, name)


@pytest.mark.parametrize(
    "target",
    [
        "/",
        "/api",
        "/api/",
        "/api/v1",
        "/api/v1/",
        "/apis",
        "/apis/apps",
        "/apis/apps/v1",
        "/healthz",
        "/API/v1/pods",
        "/version/api/v1/pods",
    ],
)
def test_other_requests(target: str) -> None:
    info = of("GET", target)
    assert (info.is_resource, info.verb, info.resource) == (False, "get", "")


@pytest.mark.parametrize(
    "target", ["/api/v1/watch", "/api/v1/watch/", "/api/v1/proxy", "/apis/apps/v1/watch"]
)
def test_a_special_verb_needs_a_resource(target: str) -> None:
    with pytest.raises(UnknownRequest):
        of("GET", target)


SEGMENTS = (
    "api",
    "apis",
    "v1",
    "apps",
    "namespaces",
    "default",
    "pods",
    "secrets",
    "status",
    "finalize",
    "watch",
    "proxy",
    "a",
    "b",
    "log",
    "",
    ".",
    "..",
    "%2e%2e",
    "%2f",
    "a%2Fb",
    "%252f",
    "A",
    "namespaces%2Fa",
    ";",
    "a;b",
    "%00",
    "%20",
)
NAMED = "fieldSelector=metadata.name"
PARTS = (
    "watch",
    "watch=1",
    "watch=false",
    "watch=",
    "Watch=1",
    "limit=1",
    "limit=",
    "limit=x",
    "timeoutSeconds=1e3",
    "x;watch=1",
    "+watch=1",
    "%77atch=1",
    f"{NAMED}%3Da",
    f"{NAMED}==a,spec.x!=b",
    f"{NAMED}!=a",
    f"{NAMED}=a%2Fb",
    f"{NAMED}=..",
    f"{NAMED}=",
    "fieldSelector=a",
    "fieldSelector=",
    "fieldselector=metadata.name=a",
)


def test_random_requests_have_the_attributes_of_the_oracle() -> None:
    rng = random.Random(7)
    compared = 0
    for _ in range(20_000):
        prefix = rng.choice(
            ("/api/v1/", "/apis/apps/v1/", "/api/v1/watch/", "/api/v1/namespaces/", "/")
        )
        target = prefix + "/".join(rng.choices(SEGMENTS, k=rng.randrange(7)))
        if rng.random() < 0.5:
            target += "?" + "&".join(rng.choices(PARTS, k=rng.randrange(1, 4)))
        method = rng.choice(
            ("GET", "GET", "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
        )
        try:
            expected = oracle.attributes(method, target)
        except oracle.NoRequestInfo:
            with pytest.raises(UnknownRequest):
                of(method, target)
            continue
        info = of(method, target)
        got = oracle.Attributes(
            info.verb,
            info.path,
            info.is_resource,
            info.group,
            info.namespace,
            info.resource,
            info.subresource,
            info.name,
        )
        assert got == expected, (method, target)
        compared += info.is_resource
    assert compared > 10_000


_SEGMENTS = ("namespaces", "a", "pods", "status", "watch", "proxy", "*", "")
_PATHS = [
    f"/{prefix}/{'/'.join(rest)}{end}"
    for prefix in ("api/v1", "apis/apps/v1")
    for length in range(1, 5)
    for rest in product(_SEGMENTS, repeat=length)
    for end in ("", "/")
]


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_the_attributes_do_not_depend_on_other_paths(method: str) -> None:
    """Paths of objects share what was found for their collection."""

    def outcome(parse: Callable[[], RequestInfo]) -> object:
        try:
            return parse()
        except UnknownRequest as problem:
            return str(problem)

    for path in _PATHS:
        for query in ({}, {"watch": ["1"], "fieldSelector": ["metadata.name=b"]}):
            expected = outcome(partial(requestinfo._parse, method, path, query))
            for _ in range(2):
                assert outcome(partial(parse_request_info, method, path, query)) == expected, path
    found = parse_request_info(method, "/api/v1/namespaces/a/pods/b")
    assert type(found) is RequestInfo
