"""What `tools.openapi_facts` takes of the published OpenAPI."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import orjson
from tools.openapi_facts import LIST_TYPES, list_types

from transom.apiserver.openapi import definitions, v2
from transom.machinery.kinds import KINDS


def test_takes_names_and_no_sentences() -> None:
    listed = {"type": "array", "x-kubernetes-list-type": "set", "description": "A sentence."}
    document = {
        "definitions": {
            "b.Two": {"properties": {"z": listed, "a": listed, "other": {"type": "string"}}},
            "a.One": {"properties": {"plain": {"type": "array"}}},
        }
    }
    assert list_types(document) == "b.Two a z\n"


def test_the_file_is_what_the_published_schema_says() -> None:
    spec = find_spec("kubernetes_validate")
    assert spec is not None and spec.submodule_search_locations
    root = Path(spec.submodule_search_locations[0]) / "kubernetes-json-schema"
    document = orjson.loads((root / "v1.32.0-local/_definitions.json").read_bytes())
    assert list_types(document) == LIST_TYPES.read_text()


def test_without_descriptions_nothing_else_is_missing(monkeypatch: Any) -> None:
    complete = v2.build_openapi_v2(KINDS, [], version="v1.20.15")["definitions"]
    monkeypatch.setattr(definitions, "find_spec", lambda name: None)
    bare = v2.build_openapi_v2(KINDS, [], version="v1.20.15")["definitions"]
    assert _without_descriptions(complete) == _without_descriptions(bare)
    assert "description" in complete["io.k8s.api.core.v1.Pod"]
    assert "description" not in bare["io.k8s.api.core.v1.Pod"]


def _without_descriptions(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _without_descriptions(item)
            for key, item in value.items()
            if key != "description" or not isinstance(item, str)
        }
    return [_without_descriptions(item) for item in value] if isinstance(value, list) else value
