"""/statusz and /flagz: the releases that serve them, their text, objects and access rules."""

from __future__ import annotations

from typing import Any

import pytest
from tests.apiserver.harness import Api, start

from transom.apiserver.serving.zpages import accepts_text, debugging_paths
from transom.http.messages import PeerCertificate
from transom.machinery.codec import from_yaml

GATES = {"ComponentFlagz": True, "ComponentStatusz": True}
NOTE = (
    "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility "
    "guarantees and is for debugging purposes only."
)
PATHS = ["/flagz", "/healthz", "/livez", "/metrics", "/readyz", "/statusz", "/version"]


def object_of(kind: str, version: str = "v1beta1", media: str = "application/json") -> str:
    return f"{media};v={version};g=config.k8s.io;as={kind}"


async def lines(api: Api, path: str, accept: str = "text/plain") -> list[str]:
    answer = await api.send("GET", path, accept=accept)
    assert answer.status == 200, answer.body
    assert (b"Content-Type", b"text/plain; charset=utf-8") in answer.headers
    return list(answer.body.decode().split("\n"))


def unmarked(line: str) -> str:
    """A line of the text without its random delimiter."""
    for name in ("Started", "Up", "Go version", "Binary version", "Emulation version", "Paths"):
        if line.startswith(name):
            return f"{name}|{line.removeprefix(name).lstrip(':= ')}"
    return line


@pytest.mark.parametrize("release", ["1.20", "1.31", "1.32", "1.35"])
async def test_pages_are_off_by_default_before_1_36(release: str) -> None:
    api = await start(release=release)
    for path in ("/statusz", "/flagz"):
        status, _ = await api.call("GET", path, accept="text/plain")
        assert status == 404
    assert not {"/statusz", "/flagz"} & set((await api.ok("GET", "/"))["paths"])


@pytest.mark.parametrize(
    ("release", "component", "version", "paths"),
    [
        ("1.32", "kube-apiserver", "1.32.13", None),
        ("1.33", "kube-apiserver", "1.33.13", None),
        ("1.34", "apiserver", "1.34.11", " ".join(PATHS)),
        ("1.35", "apiserver", "1.35.8", " ".join(PATHS)),
        ("1.36", "apiserver", "1.36.4", " ".join(PATHS)),
    ],
)
async def test_statusz_as_text(
    release: str, component: str, version: str, paths: str | None
) -> None:
    api = await start(release=release, feature_gates=GATES)
    api.clock.advance(3723)
    found = [unmarked(line) for line in await lines(api, "/statusz")]
    assert found[:4] == ["", f"{component} statusz", NOTE, ""]
    assert found[5] == "Up|1 hr 02 min 03 sec"
    assert found[6].startswith("Go version|go1.2")
    assert found[7:9] == [f"Binary version|{version}", f"Emulation version|{release}"]
    assert found[9:] == ([""] if paths is None else [f"Paths|{paths}", ""])
    assert found[4].startswith("Started|") and " UTC " in found[4]


@pytest.mark.parametrize(
    ("release", "head"),
    [
        ("1.32", ["", "kube-apiserver flags", NOTE, ""]),
        ("1.35", ["", "kube-apiserver flagz", NOTE]),
        ("1.36", ["", "apiserver flagz", NOTE]),
    ],
)
async def test_flagz_as_text(release: str, head: list[str]) -> None:
    api = await start(release=release, feature_gates=GATES)
    found = await lines(api, "/flagz")
    assert found[: len(head)] == head
    assert found[len(head)].startswith("advertise-address")
    assert any(
        line.startswith("feature-gates")
        and line.endswith(":ComponentFlagz=true,:ComponentStatusz=true")
        for line in found
    )
    assert found == await lines(api, "/flagz")  # the text is made once


async def test_1_36_serves_objects() -> None:
    api = await start(
        release="1.36", runtime_config={"api/alpha": True}, service_cidr="10.1.0.0/16"
    )
    api.clock.advance(90)
    found = await api.ok("GET", "/statusz", accept=object_of("Statusz"))
    assert found.pop("startTime").endswith("Z")
    assert found.pop("goVersion").startswith("go1.")
    assert found == {
        "kind": "Statusz",
        "apiVersion": "config.k8s.io/v1beta1",
        "metadata": {"name": "apiserver"},
        "uptimeSeconds": 90,
        "binaryVersion": "1.36.4",
        "emulationVersion": "1.36",
        "paths": PATHS,
    }
    answer = await api.send("GET", "/flagz", accept=object_of("Flagz", media="application/yaml"))
    assert (b"Content-Type", b"application/yaml") in answer.headers
    flagz: Any = from_yaml(answer.body)
    assert (flagz["apiVersion"], flagz["metadata"]) == (
        "config.k8s.io/v1beta1",
        {"name": "apiserver"},
    )
    assert flagz["flags"]["service-cluster-ip-range"] == "10.1.0.0/16"
    assert flagz["flags"]["runtime-config"] == "api/alpha=true"
    assert flagz["flags"]["authorization-mode"] == "[Node,RBAC]"


async def test_v1alpha1_is_deprecated_in_1_36() -> None:
    for release, warned in (("1.35", False), ("1.36", True)):
        api = await start(release=release, feature_gates=GATES)
        answer = await api.send("GET", "/flagz", accept=object_of("Flagz", "v1alpha1"))
        assert answer.status == 200
        text = (
            '299 - "This version of the flagz endpoint is deprecated. Please use a newer version."'
        )
        assert ((b"Warning", text.encode()) in answer.headers) is warned


@pytest.mark.parametrize(
    "accept",
    [
        "application/xml",
        "application/json",
        "application/json;v=v1beta1;g=config.k8s.io",
        object_of("Flagz"),
        object_of("Statusz", "v2"),
        object_of("Statusz", media="text/plain"),
        object_of("Statusz", media="application/vnd.kubernetes.protobuf"),
    ],
)
async def test_other_forms_are_not_acceptable(accept: str) -> None:
    api = await start(release="1.36")
    status, found = await api.call("GET", "/statusz", accept=accept)
    assert (status, found["reason"]) == (406, "NotAcceptable")
    assert found["message"] == (
        "only the following media types are accepted: "
        "application/json, application/yaml, text/plain"
    )


@pytest.mark.parametrize("accept", ["", "*/*", "application/json, */*", "text/*", "text/plain"])
async def test_text_is_the_default_form(accept: str) -> None:
    api = await start(release="1.36")
    assert "apiserver statusz" in await lines(api, "/statusz", accept)


async def test_1_35_has_objects_only_as_json() -> None:
    api = await start(release="1.35", feature_gates=GATES)
    accept = object_of("Statusz", "v1alpha1", "application/yaml")
    answer = await api.send("GET", "/statusz", accept=accept)
    assert answer.status == 500
    text = "content negotiation failed: unsupported media type 'application/yaml'"
    assert text in answer.body.decode()
    status, _ = await api.call("GET", "/statusz", accept=object_of("Statusz"))
    assert status == 406


async def test_before_1_35_only_text_is_served() -> None:
    api = await start(release="1.34", feature_gates=GATES)
    for accept in ("", "application/json", object_of("Statusz", "v1alpha1")):
        answer = await api.send("GET", "/statusz", accept=accept)
        assert (answer.status, answer.body) == (
            406,
            b"media type not acceptable, must be: text/plain\n",
        )


def test_text_may_have_a_charset_and_no_other_parameter() -> None:
    assert accepts_text("application/json, text/plain;charset=UTF-8")
    assert accepts_text("*/*;q=0.5")
    assert not accepts_text("text/plain;charset=latin1")
    assert not accepts_text("text/plain;v=1")


def test_paths_of_the_api_are_not_for_debugging() -> None:
    paths = ["/", "/api/v1", "/apis", "/openapi/v3", "/healthz/etcd", "/healthz", "/.well-known/x"]
    assert debugging_paths(paths) == ["/healthz"]


@pytest.mark.parametrize(("release", "gates"), [("1.32", GATES), ("1.36", {})])
async def test_only_system_monitoring_may_read_them(release: str, gates: dict[str, bool]) -> None:
    api = await start(release=release, feature_gates=gates)
    assert {"/statusz", "/flagz"} < set((await api.ok("GET", "/"))["paths"])
    for path in ("/statusz", "/flagz"):
        for peer, expected in (
            (None, 403),
            (PeerCertificate("jane", []), 403),
            (PeerCertificate("jane", ["system:monitoring"]), 200),
        ):
            answer = await api.send("GET", path, accept="text/plain", peer=peer)
            assert answer.status == expected, (path, peer)


async def test_a_disabled_page_is_not_granted() -> None:
    api = await start(release="1.36", feature_gates={"ComponentFlagz": False})
    role = await api.ok("GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:monitoring")
    urls = {url for rule in role["rules"] for url in rule.get("nonResourceURLs", ())}
    assert "/statusz" in urls and "/flagz" not in urls
    status, _ = await api.call("GET", "/flagz", accept="text/plain")
    assert status == 404
