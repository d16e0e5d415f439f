"""OpenAPI documents are complete, without dangling references, and readable by kubectl and an
independent protobuf decoder.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from transom.apiserver.core import discovery
from transom.apiserver.core.resources import ResourceRegistry
from transom.apiserver.openapi import documents as openapi
from transom.machinery.kinds import KINDS, STATUS, Kind
from transom.machinery.releases import Release, parse_release
from transom.machinery.schema import schema_table

VERSION = "v1.20.15"
GIZMO = Kind(
    "shop.example",
    "Gizmo",
    "gizmos",
    versions=("v1", "v2"),
    custom=True,
    subresources=(STATUS,),
    version_subresources=(("v2", ()),),
)
SCHEMA = {
    "type": "object",
    "description": "A gizmo.",
    "properties": {
        "spec": {
            "type": "object",
            "required": ["n", "maybe"],
            "properties": {
                "n": {"type": "integer", "description": "how many", "anyOf": [{"minimum": 1}]},
                "maybe": {"type": "string", "nullable": True},
                "any": {
                    "type": "object",
                    "x-kubernetes-preserve-unknown-fields": True,
                    "properties": {"a": {}},
                },
                "pod": {"type": "object", "x-kubernetes-embedded-resource": True},
            },
        },
    },
}
CUSTOMS = [openapi.CustomSchema(GIZMO, "v1", SCHEMA), openapi.CustomSchema(GIZMO, "v2", None)]


@pytest.fixture(scope="module")
def swagger() -> dict[str, Any]:
    return openapi.v2.build_openapi_v2([*KINDS, GIZMO], CUSTOMS, version=VERSION)


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"].rpartition("/")[2]
        for inner in value.values():
            yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


def test_every_reference_has_its_definition(swagger: dict[str, Any]) -> None:
    assert set(references(swagger)) <= set(swagger["definitions"])
    for group, version in openapi.v3.group_versions(KINDS, CUSTOMS, version=VERSION):
        document = openapi.v3.build_openapi_v3(
            group, version, [*KINDS, GIZMO], CUSTOMS, version=VERSION
        )
        assert set(references(document)) <= set(document["components"]["schemas"]), (group, version)


def test_every_served_kind_is_defined_with_paths(swagger: dict[str, Any]) -> None:
    marked = {
        (g["group"], g["version"], g["kind"])
        for d in swagger["definitions"].values()
        for g in d.get("x-kubernetes-group-version-kind", ())
    }
    for kind in KINDS:
        for version in kind.versions:
            assert (kind.group, version, kind.kind) in marked
    assert ("events.k8s.io", "v1", "Event") in marked
    item = swagger["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]
    assert item["patch"]["operationId"] == "patchAppsV1NamespacedDeployment"
    assert item["patch"]["x-kubernetes-group-version-kind"] == {
        "group": "apps",
        "version": "v1",
        "kind": "Deployment",
    }
    assert {"dryRun", "fieldManager", "force"} <= {p["name"] for p in item["patch"]["parameters"]}
    collection = swagger["paths"]["/api/v1/namespaces/{namespace}/pods"]
    assert collection["delete"]["operationId"] == "deleteCoreV1CollectionNamespacedPod"
    assert "/apis/storage.k8s.io/v1beta1/volumeattachments/{name}/status" not in swagger["paths"]


def test_definitions_carry_the_merge_rules_and_descriptions(swagger: dict[str, Any]) -> None:
    containers = swagger["definitions"]["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"]
    assert containers["x-kubernetes-patch-merge-key"] == "name"
    assert containers["x-kubernetes-patch-strategy"] == "merge"
    assert containers["items"] == {"$ref": "#/definitions/io.k8s.api.core.v1.Container"}
    # A version that is no longer published anywhere borrows the words of its successor.
    assert swagger["definitions"]["io.k8s.api.rbac.v1beta1.Role"]["description"]
    quantity = swagger["definitions"]["io.k8s.apimachinery.pkg.api.resource.Quantity"]
    assert quantity["type"] == "string"


def test_custom_kind_in_v2_and_v3(swagger: dict[str, Any]) -> None:
    gizmo = swagger["definitions"]["example.shop.v1.Gizmo"]
    spec = gizmo["properties"]["spec"]
    assert spec["required"] == ["n"]
    assert "anyOf" not in spec["properties"]["n"] and "type" not in spec["properties"]["maybe"]
    assert spec["properties"]["any"] == {"x-kubernetes-preserve-unknown-fields": True}
    assert set(spec["properties"]["pod"]["required"]) == {"kind", "apiVersion"}
    assert gizmo["properties"]["metadata"]["$ref"].endswith("ObjectMeta")
    assert swagger["definitions"]["example.shop.v2.Gizmo"] == {
        "type": "object",
        "x-kubernetes-group-version-kind": [
            {"group": "shop.example", "kind": "Gizmo", "version": "v2"}
        ],
    }
    assert "/apis/shop.example/v1/namespaces/{namespace}/gizmos/{name}/status" in swagger["paths"]
    assert (
        "/apis/shop.example/v2/namespaces/{namespace}/gizmos/{name}/status" not in swagger["paths"]
    )
    third = openapi.v3.build_openapi_v3(
        "shop.example", "v1", [*KINDS, GIZMO], CUSTOMS, version=VERSION
    )
    spec = third["components"]["schemas"]["example.shop.v1.Gizmo"]["properties"]["spec"]
    assert spec["properties"]["n"]["anyOf"] == [{"minimum": 1}]


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Reads protobuf's wire format: numbers and contents."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        tag = varint()
        if tag & 7 == 0:
            yield tag >> 3, varint()
        elif tag & 7 == 1:
            yield tag >> 3, message[at : at + 8]
            at += 8
        else:
            assert tag & 7 == 2
            size = varint()
            yield tag >> 3, message[at : at + size]
            at += size


def only(message: bytes, number: int) -> bytes:
    (found,) = [content for n, content in fields(message) if n == number]
    assert isinstance(found, bytes)
    return found


def named(message: bytes, number: int) -> dict[str, bytes]:
    return {
        only(c, 1).decode(): only(c, 2)
        for n, c in fields(message)
        if n == number and isinstance(c, bytes)
    }


def test_protobuf_says_what_the_json_says(swagger: dict[str, Any]) -> None:
    document = openapi.protobuf.encode_openapi_document(swagger)
    assert only(document, 1) == b"2.0"
    definitions = named(only(document, 9), 1)
    assert list(definitions) == list(swagger["definitions"])
    pod = definitions["io.k8s.api.core.v1.Pod"]
    assert only(pod, 4).decode() == swagger["definitions"]["io.k8s.api.core.v1.Pod"]["description"]
    extension = named(pod, 31)["x-kubernetes-group-version-kind"]
    assert json.loads(only(extension, 2)) == [{"group": "", "kind": "Pod", "version": "v1"}]
    properties = named(only(definitions["io.k8s.api.core.v1.PodSpec"], 25), 1)
    containers = properties["containers"]
    assert only(only(containers, 22), 1) == b"array"
    assert only(only(only(containers, 23), 1), 1) == b"#/definitions/io.k8s.api.core.v1.Container"
    paths = named(only(document, 8), 2)
    assert list(paths) == list(swagger["paths"])
    patch = only(paths["/api/v1/namespaces/{namespace}/pods/{name}"], 8)
    # The body comes first; a query parameter is three choices deep.
    second = [c for n, c in fields(patch) if n == 8 and isinstance(c, bytes)][1]
    assert only(only(only(only(second, 1), 2), 3), 4) == b"dryRun"


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        ("", "application/json"),
        ("*/*", "application/json"),
        ("application/*", "application/json"),
        ("text/html", None),
        (openapi.V2_PROTOBUF, openapi.V2_PROTOBUF),
        (f"application/json;q=0.5, {openapi.V2_PROTOBUF}", openapi.V2_PROTOBUF),
        ("text/html, */*;q=0.1", "application/json"),
    ],
)
def test_accept(accept: str, chosen: str | None) -> None:
    assert openapi.accepted(accept, openapi.V2_OFFERS) == chosen


def test_index_changes_with_a_schema_only_where_it_must() -> None:
    before = openapi.v3.group_versions(KINDS, CUSTOMS, version=VERSION)
    changed = [CUSTOMS[0]._replace(schema={"type": "object"}), CUSTOMS[1]]
    after = openapi.v3.group_versions(KINDS, changed, version=VERSION)
    assert {gv for gv in before if before[gv] != after[gv]} == {("shop.example", "v1")}
    paths = openapi.v3.openapi_v3_index(before)["paths"]
    assert paths["api/v1"]["serverRelativeURL"] == f"/openapi/v3/api/v1?hash={before['', 'v1']}"


ROOT = Path(__file__).parents[3]
KUBECTLS = [
    k for k in (shutil.which("kubectl"), *map(str, ROOT.glob(".tools/*/usr/bin/kubectl"))) if k
]


class Handler(BaseHTTPRequestHandler):
    """Just enough of a server for kubectl to read documents."""

    protocol_version = "HTTP/1.1"
    kinds = (*KINDS, GIZMO)
    served = discovery.served_versions(kinds)

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        parts = path.strip("/").split("/")
        body: Any = None
        if path == "/openapi/v2":
            proto = (
                openapi.accepted(self.headers["Accept"], openapi.V2_OFFERS) == openapi.V2_PROTOBUF
            )
            body = (openapi.v2_protobuf if proto else openapi.v2_json)(
                self.kinds, CUSTOMS, version=VERSION
            )
        elif path == "/openapi/v3":
            body = openapi.v3_index(self.kinds, CUSTOMS, version=VERSION)
        elif path.startswith("/openapi/v3/"):
            group, version = ("", parts[3]) if parts[2] == "api" else (parts[3], parts[4])
            body = openapi.v3_json(group, version, self.kinds, CUSTOMS, version=VERSION)
        elif path == "/api":
            body = discovery.api_versions("localhost:1")
        elif path == "/apis":
            body = discovery.api_group_list(self.served)
        elif path == "/version":
            body = discovery.version_info()
        elif parts[0] == "api" and len(parts) == 2:
            body = discovery.api_resource_list(self.served, "", parts[1])
        elif parts[0] == "apis" and len(parts) == 3:
            body = discovery.api_resource_list(self.served, parts[1], parts[2])
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(200 if body is not None else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Tests are quiet."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()


@pytest.mark.parametrize("binary", KUBECTLS, ids=lambda k: Path(k).parent.parent.name)
@pytest.mark.parametrize(
    ("what", "text"),
    [
        (("pod.spec.containers.ports",), "containerPort\t<integer> -required-"),
        (("gizmo.spec", "--api-version=shop.example/v1"), "how many"),
        (("role", "--api-version=rbac.authorization.k8s.io/v1beta1"), "rules"),
    ],
)
def test_kubectl_explains(
    binary: str, address: str, tmp_path: Path, what: tuple[str, ...], text: str
) -> None:
    done = subprocess.run(
        [binary, "--server", address, "--cache-dir", str(tmp_path), "explain", *what],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"HOME": str(tmp_path), "KUBECONFIG": ""},
    )
    assert done.returncode == 0, done.stderr
    assert text in done.stdout


@pytest.mark.parametrize("release", ["1.21", "1.25", "1.32", "1.36", "1.37"])
def test_the_document_of_a_release_has_its_kinds_and_fields(release: str) -> None:
    registry = ResourceRegistry(release=parse_release(release))
    kinds = list(registry.served_kinds())
    document = openapi.v2.build_openapi_v2(kinds, version=VERSION, types=registry.types)
    definitions = document["definitions"]
    assert {one.rpartition("/")[2] for one in references(document)} <= definitions.keys()
    described = {
        (gvk["group"], gvk["version"], gvk["kind"])
        for definition in definitions.values()
        for gvk in definition.get("x-kubernetes-group-version-kind", ())
    }
    served = {(kind.group, version, kind.kind) for kind in kinds for version in kind.versions}
    assert served <= described
    pod = definitions["io.k8s.api.core.v1.PodSpec"]["properties"]
    assert ("resourceClaims" in pod) is (parse_release(release) >= Release(1, 26))
    assert ("hostnameOverride" in pod) is (parse_release(release) >= Release(1, 34))
    policies = ["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"]
    enum = policies if parse_release(release) >= Release(1, 24) else None
    assert pod["dnsPolicy"].get("enum") == enum


def test_elements_of_lists_have_enumerations() -> None:
    types = schema_table(Release(1, 36))
    document = openapi.v3.build_openapi_v3("", "v1", KINDS, version=VERSION, types=types)
    schemas = document["components"]["schemas"]
    modes = schemas["io.k8s.api.core.v1.PersistentVolumeClaimSpec"]["properties"]["accessModes"]
    assert "ReadWriteOncePod" in modes["items"]["enum"] and "enum" not in modes


def schemas_of(release: str) -> dict[str, Any]:
    """The schemas of the core group in v3."""
    registry = ResourceRegistry(release=parse_release(release))
    kinds = list(registry.served_kinds())
    made = openapi.v3.build_openapi_v3("", "v1", kinds, version=VERSION, types=registry.types)
    schemas: dict[str, Any] = made["components"]["schemas"]
    return schemas


def properties(schemas: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = schemas[f"io.k8s.api.core.v1.{name}"]["properties"]
    return found


def test_v3_shows_defaults() -> None:
    schemas = schemas_of("1.36")
    pod, container = properties(schemas, "Pod"), properties(schemas, "Container")
    meta = {"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}
    assert pod["metadata"]["default"] == {} and pod["metadata"]["allOf"] == [meta]
    assert container["name"]["default"] == "" and "default" not in container["image"]
    assert container["ports"]["items"]["default"] == {} and "default" not in container["ports"]
    assert container["command"]["items"]["default"] == ""
    assert "default" not in container["livenessProbe"]
    assert properties(schemas, "ContainerPort")["protocol"]["default"] == "TCP"
    assert properties(schemas, "ContainerPort")["containerPort"]["default"] == 0
    assert properties(schemas, "ContainerStatus")["ready"]["default"] is False
    assert properties(schemas, "ConfigMap")["data"]["additionalProperties"]["default"] == ""


@pytest.mark.parametrize(("release", "named"), [("1.24", {}), ("1.28", {}), ("1.29", None)])
def test_times_and_quantities_have_defaults_before_1_29(
    release: str, named: dict[str, Any] | None
) -> None:
    schemas = schemas_of(release)
    limits = properties(schemas, "ResourceRequirements")["limits"]
    assert limits["additionalProperties"].get("default") == named
    assert properties(schemas, "PodCondition")["lastProbeTime"].get("default") == named
    assert "default" not in properties(schemas, "PodStatus")["startTime"]  # a pointer


@pytest.mark.parametrize(("release", "default"), [("1.30", None), ("1.31", "")])
def test_types_declare_defaults_in_some_releases(release: str, default: str | None) -> None:
    name = properties(schemas_of(release), "LocalObjectReference")["name"]
    assert name.get("default") == default


def test_neither_v2_nor_1_20_shows_defaults(swagger: dict[str, Any]) -> None:
    registry = ResourceRegistry(release=Release(1, 36))
    kinds = list(registry.served_kinds())
    newer = openapi.v2.build_openapi_v2(kinds, version=VERSION, types=registry.types)
    for definitions in (swagger["definitions"], newer["definitions"], schemas_of("1.20")):
        fields = definitions["io.k8s.api.core.v1.Container"]["properties"]
        assert "default" not in fields["name"] and "default" not in fields["ports"]["items"]


def test_atomic_structs_say_so_themselves() -> None:
    reference = "io.k8s.api.core.v1.ObjectReference"
    schemas = schemas_of("1.36")
    assert schemas[reference]["x-kubernetes-map-type"] == "atomic"
    assert "x-kubernetes-map-type" not in properties(schemas, "Binding")["target"]
    claim = properties(schemas, "PersistentVolumeSpec")["claimRef"]
    assert claim["x-kubernetes-map-type"] == "granular"
    assert properties(schemas, "PodSpec")["nodeSelector"]["x-kubernetes-map-type"] == "atomic"
    assert "x-kubernetes-map-type" not in schemas_of("1.20")[reference]


def test_fields_are_marked_as_required_and_types_described_by_release() -> None:
    rule = schemas_of("1.36")["io.k8s.api.core.v1.ContainerRestartRule"]
    assert rule["required"] == ["action"] and rule["description"]
    assert rule["properties"]["action"]["description"]


def test_values_of_enumerations_may_have_spaces() -> None:
    types = schema_table(Release(1, 36))
    made = openapi.v3.build_openapi_v3(
        "certificates.k8s.io", "v1", KINDS, version=VERSION, types=types
    )
    spec = made["components"]["schemas"]["io.k8s.api.certificates.v1.CertificateSigningRequestSpec"]
    values = spec["properties"]["usages"]["items"]["enum"]
    assert len(values) == 23 and {"client auth", "ipsec end system", "s/mime"} <= set(values)
