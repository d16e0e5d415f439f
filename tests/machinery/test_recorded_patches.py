"""Patches and apply requests against recorded answers, where the recordings lie beside the
checkout.
"""

from __future__ import annotations

import json
import re
from typing import Any

import orjson
import pytest
from tests.recorded_cases import GOLDEN, recorded_cases

from transom.machinery import apply, codec, defaults, managedfields, patch, schema
from transom.machinery.errors import ApiError, GroupResource, not_found
from transom.machinery.kinds import GVK, KINDS
from transom.machinery.releases import DEFAULT
from transom.machinery.typed import TypeNode, type_from_openapi

pytestmark = pytest.mark.skipif(not GOLDEN.exists(), reason="no recordings here")

# Steps that other parts of the server answer: options, names, validation, admission, allocation.
ELSEWHERE = {
    "invalid-result",
    "stale-rv",
    "bad-rv",
    "name-change",
    "namespace-change",
    "env-source-clash",
    "volumes-two-sources",
    "strategy-clash",
    "pod-ip-mismatch",
    "status-through-main",
    "status-condition",
    "no-manager",
    "force-with-merge",
    "name-mismatch",
    "no-name",
    "namespace-mismatch",
    "invalid-object",
    "uid-on-missing",
    "long-manager",
    "manager-unprintable",
    "dry-run",
    "dry-run-left-nothing",
    "after-dry-run",
    "no-change-keeps-rv",
    "missing-list-key",
    "scale",
    "scale-by-patch",
    "scale-by-apply",
    "wrong-kind",
    "deployment/status",
    "crd",
    "ready",
}
SYSTEM = {"resourceVersion", "uid", "creationTimestamp", "generation", "namespace"}


class Server:
    """Just enough of an API server: decode, default, merge, keep."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.custom: dict[str, TypeNode] = {}
        self.clock = 0

    def kind(self, path: str) -> tuple[GVK, schema.SchemaType | TypeNode, str]:
        group, version, plural = re.match(  # type: ignore[union-attr]
            r"/apis?(?:/(?=[^/]+/v1/))?/?(.*?)/?(v1)/(?:namespaces/[^/]+/)?([^/]+)", path
        ).groups()
        if plural in self.custom:
            return GVK(group, version, "Bolt"), self.custom[plural], plural
        kind = next(k for k in KINDS if k.group == group and k.plural == plural)
        found = schema.lookup_schema_type(kind.gvk(version))
        assert found is not None
        return kind.gvk(version), found, plural

    def complete(self, gvk: GVK, media: str, raw: bytes, obj: dict[str, Any]) -> dict[str, Any]:
        if gvk.kind == "Bolt":
            return obj
        try:
            new = codec.normalise_object(gvk, obj)
        except codec.DecodeError as e:
            raise patch.undecodable(
                media, raw, obj, e.base, schema.lookup_schema_type(gvk)
            ) from None
        defaults.apply_defaults(gvk, new)
        return new

    def handle(
        self, method: str, path: str, media: str, query: dict[str, str], agent: str, raw: bytes
    ) -> Any:
        self.clock += 1
        now = f"2021-01-01T00:00:{self.clock:02}Z"
        gvk, kind, plural = self.kind(path)
        manager = query.get("fieldManager") or managedfields.manager_from_user_agent(agent)
        if method == "POST":
            obj = codec.decode_object(raw, media, gvk).obj
            defaults.apply_defaults(gvk, obj)
            path = f"{path}/{obj['metadata']['name']}"
            return self.write(
                path, obj, managedfields.on_update(None, obj, kind, manager, gvk.api_version, now)
            )
        key = path.removesuffix("/status")
        live = self.objects.get(key)
        if media == "application/apply-patch+yaml":
            new = apply.server_side_apply(
                live,
                apply.parse_config(raw),
                kind,
                manager,
                gvk.api_version,
                query.get("force") == "true",
                now,
                normalise=lambda o: self.complete(gvk, media, raw, o),
            )
            return self.write(key, new, new["metadata"].get("managedFields", []))
        if live is None:
            raise not_found(GroupResource(gvk.group, plural), path.rpartition("/")[2])
        if method == "GET":
            return live
        if method == "PUT":
            new = codec.decode_object(raw, media, gvk).obj
            defaults.apply_defaults(gvk, new)
        else:
            new = self.complete(
                gvk, media, raw, patch.apply_patch(media, raw, live, kind, release=DEFAULT)
            )
        return self.write(
            key, new, managedfields.on_update(live, new, kind, manager, gvk.api_version, now)
        )

    def write(self, key: str, obj: dict[str, Any], entries: list[dict[str, Any]]) -> dict[str, Any]:
        meta = {**obj["metadata"], "uid": "UID", "managedFields": entries}
        if not entries:
            del meta["managedFields"]
        self.objects[key] = {**obj, "metadata": meta}
        return self.objects[key]


def pick(body: Any, path: str) -> Any:
    parts = path.split(".")
    for i, part in enumerate(parts):
        rest = ".".join(parts[i:])
        if isinstance(body, dict) and rest in body:
            return body[rest]
        if isinstance(body, list):
            body = body[int(part)] if int(part) < len(body) else None
        else:
            body = body.get(part) if isinstance(body, dict) else None
    return body


def plain(value: Any) -> Any:
    """Without what the system fills in."""
    if isinstance(value, dict):
        out = {k: plain(v) for k, v in value.items() if k not in SYSTEM}
        return {**out, "time": "TIME"} if "fieldsV1" in out else out
    return [plain(v) for v in value] if isinstance(value, list) else value


CASES = [
    ("api-patch", c)
    for c in (
        "json-patch",
        "json-patch-lists",
        "merge-patch",
        "strategic-merge",
        "strategic-merge-metadata",
        "patch-status",
    )
]
CASES += [
    ("api-apply", c)
    for c in ("configmap", "errors", "deployment", "managed-fields", "custom-lists")
]


@pytest.mark.parametrize(("theme", "case"), CASES)
def test_answers_as_recorded(theme: str, case: str) -> None:
    cases = recorded_cases(GOLDEN / "cases" / f"{theme}.yaml")
    expected = json.loads((GOLDEN / "expected" / "1.20" / f"{theme}.json").read_text())[case]
    server = Server()
    compared = 0
    for step in next(c for c in cases if c["name"] == case)["steps"]:
        step = json.loads(re.sub(r"\$\{(\w+)\}", r"\1", json.dumps(step)))
        if step["id"] == "crd":
            spec = step["body"]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
            server.custom["bolts"] = type_from_openapi(spec)
        if step["id"] in ELSEWHERE or f"{case}/{step['id']}" in ELSEWHERE:
            continue
        raw = step["raw"].encode() if "raw" in step else orjson.dumps(step.get("body"))
        agent = step.get("headers", {}).get("User-Agent", "")
        try:
            body = server.handle(
                step["method"],
                step["path"],
                step.get("type", "application/json"),
                step.get("query") or {},
                agent,
                raw,
            )
            status = 200
        except ApiError as e:
            body, status = e.status(), e.code
        if step.get("expect") == "none":
            assert status < 300, body
            continue
        want = expected[step["id"]]
        assert status == (200 if want["status"] == 201 else want["status"]), (step["id"], body)
        if "body" not in want:
            continue
        if "pick" in step:
            got = {p: pick(body, p) for p in step["pick"] if p not in ("metadata.generation",)}
            reference = {p: v for p, v in want["body"].items() if p in got}
        else:
            got, reference = body, want["body"]
        for key in step.get("omit", ()):
            got = {**got, "metadata": {k: v for k, v in got["metadata"].items() if k != key}}
        assert plain(got) == plain(reference), step["id"]
        compared += 1
    assert compared > 3
