"""Recorded refusals of custom objects: the definition of the case gives the schema, the causes must
be the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from tests.recorded_cases import GOLDEN

from transom.machinery.kinds import Kind
from transom.machinery.validation import customobject
from transom.machinery.validation.structural import prune_default

# Nulls are dropped, and types of metadata refused, before validation looks.
EARLIER = frozenset(("null", "null-nullable", "null-not-allowed", "embedded-bad", "metadata-bad"))

pytestmark = pytest.mark.skipif(not GOLDEN.is_dir(), reason="no recorded answers here")


def _cases() -> Iterator[Any]:
    for file in ("api-validation", "ext-crd"):
        if not GOLDEN.is_dir():
            return
        text = (
            (GOLDEN / "cases" / f"{file}.yaml")
            .read_text()
            .replace("${RND}", "rnd")
            .replace("${NS}", "golden-rnd")
        )
        answers = (GOLDEN / "expected" / "1.20" / f"{file}.json").read_text().replace("RND", "rnd")
        expected = json.loads(answers)
        for case in yaml.load(text, yaml.CSafeLoader):
            definitions: dict[tuple[str, str], dict[str, Any]] = {}
            for step in case["steps"]:
                answer = (expected.get(case["name"]) or {}).get(step.get("id"))
                body, parts = step.get("body"), step.get("path", "").strip("/").split("/")
                if (
                    step.get("method") != "POST"
                    or not isinstance(body, dict)
                    or step["id"] in EARLIER
                ):
                    continue
                if (
                    parts[-1] == "customresourcedefinitions"
                    and (answer or {"status": 201})["status"] == 201
                ):
                    definitions[body["spec"]["group"], body["spec"]["names"]["plural"]] = body[
                        "spec"
                    ]
                spec = definitions.get((parts[1], parts[-1])) if len(parts) > 3 else None
                if (
                    spec is not None
                    and answer
                    and answer["status"] in (201, 422)
                    and "query" not in step
                ):
                    yield pytest.param(
                        spec, parts[2], body, answer, id=f"{file}/{case['name']}/{step['id']}"
                    )


@pytest.mark.parametrize(("spec", "version", "body", "answer"), list(_cases()))
def test_same_causes(
    spec: dict[str, Any], version: str, body: dict[str, Any], answer: dict[str, Any]
) -> None:
    names = spec["names"]
    kind = Kind(
        spec["group"],
        names["kind"],
        names["plural"],
        namespaced=spec["scope"] == "Namespaced",
        custom=True,
    )
    found = next(entry for entry in spec["versions"] if entry["name"] == version)
    schema = (found.get("schema") or {}).get("openAPIV3Schema")
    meta = body.setdefault("metadata", {})
    if kind.namespaced:
        meta.setdefault("namespace", "ns")
    meta.setdefault("name", meta.get("generateName", "") + "x")
    prune_default(body, schema, resource=True)
    scale = (found.get("subresources") or {}).get("scale")
    errors = customobject.validate_custom_create(kind, version, body, schema, scale)
    got = [{"field": e.field, "message": e.body(), "reason": e.reason} for e in errors]
    if answer["status"] == 201:
        assert got == []
    elif "details" in answer["body"]:
        assert got == answer["body"]["details"]["causes"]
    else:
        assert got
