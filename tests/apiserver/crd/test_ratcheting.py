"""Values that break a newer schema may stay while they do not change; selectable fields."""

from __future__ import annotations

from typing import Any

import pytest
from tests.apiserver.crd.definitions import (
    CRDS,
    GROUP,
    MERGE,
    WIDGETS,
    define,
    definition,
    run,
    spec_schema,
    version,
    widget,
)
from tests.apiserver.harness import Api


async def tighten(api: Api, **properties: Any) -> None:
    body = {"spec": {"versions": [version(schema=spec_schema(**properties))]}}
    await api.ok("PATCH", f"{CRDS}/widgets.{GROUP}", body, media=MERGE)


RULE = {"x-kubernetes-validations": [{"rule": "self != 50", "message": "not fifty"}]}
KEYED = {
    "type": "array",
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["k"],
}


@pytest.mark.parametrize(
    ("release", "change", "expected"),
    [
        ("1.36", {"b": "x"}, ""),
        ("1.29", {"b": "x"}, "spec.a: Too long"),
        ("1.36", {"a": "longer"}, "spec.a: Too long: may not be more than 3 bytes"),
        ("1.36", {"list": [{"k": "1", "v": "BAD"}, {"k": "2", "v": "good"}]}, ""),
        (
            "1.36",
            {"list": [{"k": "2", "v": "BAD"}]},
            'spec.list[0].v: Unsupported value: "BAD": supported values: "good"',
        ),
    ],
)
async def test_unchanged_values_may_stay_invalid(
    release: str, change: dict[str, Any], expected: str
) -> None:
    items = {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}}}
    text = {"type": "string"}
    plain = {**items, "properties": {**items["properties"], "v": text}}  # type: ignore[dict-item]
    strict = {**items, "properties": {**items["properties"], "v": {**text, "enum": ["good"]}}}  # type: ignore[dict-item]
    async with run(release=release) as api:
        first = {"a": text, "b": text, "list": {**KEYED, "items": plain}}
        await define(api, version(schema=spec_schema(**first)))
        spec = {"a": "long", "list": [{"k": "1", "v": "BAD"}]}
        await api.ok("POST", WIDGETS, widget("w", spec=spec))
        await tighten(api, a={**text, "maxLength": 3}, b=text, list={**KEYED, "items": strict})
        status, answer = await api.call("PATCH", f"{WIDGETS}/w", {"spec": change}, media=MERGE)
        if expected:
            assert status == 422
            assert expected in answer["message"]
        else:
            assert status == 200, answer


@pytest.mark.parametrize(("release", "status"), [("1.36", 200), ("1.29", 422)])
async def test_rules_that_unchanged_values_break_warn(release: str, status: int) -> None:
    number, text = {"type": "integer"}, {"type": "string"}
    async with run(release=release) as api:
        await define(api, version(schema=spec_schema(n=number, b=text)))
        await api.ok("POST", WIDGETS, widget("w", spec={"n": 50}))
        await tighten(api, n={**number, **RULE}, b=text)
        found, answer = await api.call("PATCH", f"{WIDGETS}/w", {"spec": {"b": "x"}}, media=MERGE)
        assert found == status, answer


FIELDS = [{"jsonPath": ".spec.color"}, {"jsonPath": ".spec.n"}, {"jsonPath": ".spec.ready"}]


async def test_field_selectors_may_use_selectable_fields() -> None:
    kinds = {"color": "string", "n": "integer", "ready": "boolean"}
    schema = spec_schema(**{name: {"type": kind} for name, kind in kinds.items()})
    async with run(release="1.36") as api:
        await define(api, version(schema=schema, selectableFields=FIELDS))
        await api.ok("POST", WIDGETS, widget("a", spec={"color": "blue", "n": 1, "ready": True}))
        await api.ok("POST", WIDGETS, widget("b", spec={"color": "red", "n": 1}))
        await api.ok("POST", WIDGETS, widget("c", spec={}))

        async def names(selector: str) -> list[str]:
            found = await api.ok("GET", f"{WIDGETS}?fieldSelector={selector}")
            return [item["metadata"]["name"] for item in found["items"]]

        assert await names("spec.color=blue") == ["a"]
        assert await names("spec.n=1,spec.color!=blue") == ["b"]
        assert await names("spec.ready=true") == ["a"]
        assert await names("spec.color=") == ["c"]
        status, answer = await api.call("GET", f"{WIDGETS}?fieldSelector=spec.size=1")
        assert (status, answer["message"]) == (400, "field label not supported: spec.size")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("", "Required value"),
        ("spec.a", 'Invalid value: "spec.a": is an invalid path: expected [ or . but got: spec'),
        (
            ".spec.x",
            'Invalid value: ".spec.x": is an invalid path: does not refer to a valid field',
        ),
        (".spec.l[0]", "array notation is not allowed"),
        (".spec.l", "must point to a field of type string, boolean or integer."),
        (".spec.a", ""),
    ],
)
async def test_selectable_fields_are_checked(path: str, expected: str) -> None:
    schema = spec_schema(a={"type": "string"}, l={"type": "array", "items": {"type": "string"}})
    body = definition(version(schema=schema, selectableFields=[{"jsonPath": path}]))
    async with run(release="1.36") as api:
        status, answer = await api.call("POST", CRDS, body)
        if expected:
            assert status == 422
            assert answer["details"]["causes"][0]["field"] == "spec.selectableFields[0].jsonPath"
            assert expected in answer["message"]
        else:
            assert status == 201
