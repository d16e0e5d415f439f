"""Patterns, validation rules and quantities that take long to evaluate."""

from __future__ import annotations

import time
from typing import Any

import pytest
from tests.hostile.client import Client
from tests.hostile.conftest import Attack, Victim

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
TEXT = {"type": "string", "maxLength": 200}
SCHEMAS: dict[str, dict[str, Any]] = {
    "pattern": {"type": "string", "pattern": "^(a+)+$"},
    "alternatives": {"type": "string", "pattern": r"^(\w|\w\w|a)+$"},
    "duration": {"type": "string", "format": "duration"},
    "matches": {**TEXT, "x-kubernetes-validations": [{"rule": "self.matches('^(a|aa)+$')"}]},
    "find": {
        **TEXT,
        "x-kubernetes-validations": [
            {"rule": "self.find('(a+)+b') != '' && self.findAll('(a*)*b').size() > 0"}
        ],
    },
}
VALUES = {
    "duration": "1" * 300_000,
    "pattern": "a" * 300_000 + "!",
    "alternatives": "a" * 300_000 + "!",
}


def define(client: Client, plural: str, schema: dict[str, Any], **version: object) -> str:
    """The path of a custom resource with this schema at `spec`."""
    answer = client(
        "POST",
        CRDS,
        {
            "metadata": {"name": f"{plural}.hostile.example.com"},
            "spec": {
                "group": "hostile.example.com",
                "scope": "Namespaced",
                "names": {"plural": plural, "kind": plural.title()},
                "versions": [
                    {
                        "name": "v1",
                        "served": True,
                        "storage": True,
                        "schema": {
                            "openAPIV3Schema": {"type": "object", "properties": {"spec": schema}}
                        },
                        **version,
                    }
                ],
            },
        },
    )
    assert answer.status in (201, 409), answer
    path = f"/apis/hostile.example.com/v1/namespaces/default/{plural}"
    deadline = time.monotonic() + 10
    while client("GET", path).status != 200 and time.monotonic() < deadline:
        time.sleep(0.02)
    return path


def custom(plural: str, value: Any) -> dict[str, Any]:
    return {
        "apiVersion": "hostile.example.com/v1",
        "kind": plural.title(),
        "metadata": {"generateName": "x"},
        "spec": value,
    }


@pytest.mark.parametrize("name", SCHEMAS)
def test_patterns_that_backtrack(victim: Victim, attack: Attack, rounds: int, name: str) -> None:
    client = victim.client()
    path = define(client, name, SCHEMAS[name])
    with attack():
        for _ in range(rounds):
            answer = client("POST", path, custom(name, VALUES.get(name, "a" * 100 + "!")))
            assert answer.status == 422, answer
    client.close()


def test_rules_up_to_the_cost_limit(victim: Victim, attack: Attack, rounds: int) -> None:
    client = victim.client()
    schema = {
        "type": "array",
        "maxItems": 1000,
        "items": {"type": "string", "maxLength": 8},
        "x-kubernetes-validations": [{"rule": "self.all(x, self.exists_one(y, y == x))"}],
    }
    path = define(client, "nested", schema)
    with attack():
        for _ in range(rounds):
            answer = client("POST", path, custom("nested", [f"i{n}" for n in range(1000)]))
            assert (
                answer.status == 422 and "actual cost limit exceeded" in answer.json["message"]
            ), answer
    client.close()


def test_an_expression_that_is_large_or_deep(victim: Victim, attack: Attack, rounds: int) -> None:
    client = victim.client()
    expressions = (
        "(" * 40_000 + "true" + ")" * 40_000,
        "true" + " && true" * 11_000,
        "1" + "+1" * 40_000 + " > 0",
        "[" * 200 + "]" * 200 + " == []",
        "self" + ".all(x, x" * 3_000,
        "'" * 90_000,
        "self == " + "-" * 90_000,
    )
    with attack():
        for _ in range(rounds):
            for expression in expressions:
                answer = client(
                    "POST",
                    CRDS + "?dryRun=All",
                    {
                        "metadata": {"name": "deep.hostile.example.com"},
                        "spec": {
                            "group": "hostile.example.com",
                            "scope": "Namespaced",
                            "names": {"plural": "deep", "kind": "Deep"},
                            "versions": [
                                {
                                    "name": "v1",
                                    "served": True,
                                    "storage": True,
                                    "schema": {
                                        "openAPIV3Schema": {
                                            "type": "object",
                                            "x-kubernetes-validations": [{"rule": expression}],
                                        }
                                    },
                                }
                            ],
                        },
                    },
                )
                assert answer.status in (201, 422), (expression[:30], answer)
    client.close()


def test_a_quantity_of_many_digits(victim: Victim, attack: Attack, rounds: int) -> None:
    client = victim.client()
    with attack():
        for _ in range(rounds):
            for text in (
                "-00." + "0" * 300_000 + "!",
                "1" * 300_000 + "x",
                "." + "9" * 300_000 + "Kii",
            ):
                answer = client(
                    "POST",
                    "/api/v1/namespaces/default/pods",
                    {
                        "metadata": {"name": "q"},
                        "spec": {
                            "containers": [
                                {"name": "c", "image": "i", "resources": {"limits": {"cpu": text}}}
                            ]
                        },
                    },
                )
                assert answer.status in (400, 422), answer
    client.close()


def repeated(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


# Schemas that make much of a few kilobytes: what each value is compared with, and the answer.
COSTLY: dict[str, tuple[dict[str, Any], Any, int]] = {
    "anyof": (
        repeated({"type": "integer", "anyOf": [{"minimum": n + 10} for n in range(200)]}),
        [1] * 2000,
        422,
    ),
    "patterns": (
        repeated({"type": "string", "allOf": [{"pattern": f"^a.*{n}"} for n in range(150)]}),
        ["ab"] * 300,
        422,
    ),
    "enums": (repeated({"type": "integer", "enum": [*range(10, 4000), 1]}), [1] * 2000, 201),
    "longpattern": ({"type": "string", "pattern": "(a|b|ab|ba){1,900}c"}, "ab" * 20_000, 422),
    "compiled": (
        {"type": "string", "anyOf": [{"pattern": f"(?:.{{0,300}}){{3}}{n}"} for n in range(20)]},
        "a",
        422,
    ),
    "requireds": (
        {
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "properties": {f"p{n}": {"type": "string"} for n in range(200)},
                "required": [f"p{n}" for n in range(200)],
            },
        },
        {f"k{n}": {} for n in range(300)},
        422,
    ),
    "manydefaults": (
        repeated(
            {
                "type": "object",
                "properties": {
                    f"p{n}": {"type": "string", "default": "x" * 100} for n in range(1000)
                },
            }
        ),
        [{}] * 14_000,
        500,
    ),
    "largedefaults": (
        repeated(
            {
                "type": "object",
                "properties": {
                    "q": {**repeated({"type": "integer"}), "default": list(range(20_000))}
                },
            }
        ),
        [{}] * 14_000,
        500,
    ),
}


@pytest.mark.parametrize("name", COSTLY)
def test_short_objects_of_costly_schemas(
    victim: Victim, attack: Attack, rounds: int, name: str
) -> None:
    client = victim.client()
    schema, value, expected = COSTLY[name]
    with attack():
        path = define(client, name, schema)
        for _ in range(rounds):
            body = {
                "apiVersion": "hostile.example.com/v1",
                "kind": name.title(),
                "metadata": {"generateName": "x-"},
                "spec": value,
            }
            answer = client("POST", path, body)
            assert answer.status == expected, answer
    if expected == 500:
        assert answer.json["message"] == "etcdserver: request is too large"
    client.ok("DELETE", f"{CRDS}/{name}.hostile.example.com")
    client.close()


def test_printer_columns_that_multiply_values(victim: Victim, attack: Attack) -> None:
    client = victim.client()
    deep: Any = 1
    for _ in range(150):
        deep = {"a": deep}
    columns = [
        {"name": "deep", "type": "string", "jsonPath": ".spec" + "..a" * 6},
        {"name": "spread", "type": "string", "jsonPath": ".spec" + "['a','a','a','a']" * 20},
    ]
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    path = define(client, "columned", schema, additionalPrinterColumns=columns)
    for n in range(40):
        body = {
            "apiVersion": "hostile.example.com/v1",
            "kind": "Columned",
            "metadata": {"name": f"x{n}"},
            "spec": deep,
        }
        client.ok("POST", path, body)
    with attack():
        table = client.ok(
            "GET", path, headers={"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
        )
        assert table["rows"][0]["cells"] == ["x0", None, None]
    client.ok("DELETE", f"{CRDS}/columned.hostile.example.com")
    client.close()
