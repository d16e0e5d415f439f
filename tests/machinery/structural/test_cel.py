"""CEL rules: their variables, messages and errors."""

from __future__ import annotations

from typing import Any

import pytest

from transom.machinery.structural.cel import check_rules, compile_rules


def rule(text: str, **more: Any) -> dict[str, Any]:
    return {"x-kubernetes-validations": [{"rule": text, **more}]}


INTEGER, TEXT = {"type": "integer"}, {"type": "string"}
PAIR = {"type": "object", "properties": {"min": INTEGER, "max": INTEGER, "name": TEXT}}


def spec(inner: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {"spec": inner}}


def printed(schema: dict[str, Any], obj: Any, old: Any = None) -> list[str]:
    rules = compile_rules(schema)
    assert rules is not None
    return [str(e) for e in rules.validate(obj, old)]


@pytest.mark.parametrize(
    ("schema", "value", "text"),
    [
        (
            {**PAIR, **rule("self.min <= self.max")},
            {"min": 2, "max": 1},
            'spec: Invalid value: "object": failed rule: self.min <= self.max',
        ),
        (
            {**PAIR, **rule("self.min <= self.max", message=" too small ")},
            {"min": 2, "max": 1},
            'spec: Invalid value: "object": too small',
        ),
        (
            {
                **PAIR,
                **rule("self.min <= self.max", messageExpression="'min is ' + string(self.min)"),
            },
            {"min": 2, "max": 1},
            'spec: Invalid value: "object": min is 2',
        ),
        (
            {
                **PAIR,
                **rule(
                    "has(self.name)",
                    reason="FieldValueRequired",
                    fieldPath=".name",
                    message="name it",
                ),
            },
            {},
            "spec.name: Required value: name it",
        ),
        (
            {**PAIR, **rule("self.min < 1")},
            {},
            'spec: Invalid value: "object": no such key: min evaluating rule: self.min < 1',
        ),
        (
            {"type": "array", "items": {**INTEGER, **rule("self > 0")}},
            [1, 0],
            'spec[1]: Invalid value: "integer": failed rule: self > 0',
        ),
        (
            {"type": "object", "additionalProperties": {**TEXT, **rule("self.startsWith('a')")}},
            {"k": "b"},
            "spec[k]: Invalid value: \"string\": failed rule: self.startsWith('a')",
        ),
        (
            {"x-kubernetes-int-or-string": True, **rule("type(self) == int || self.endsWith('%')")},
            "80",
            "spec: Invalid value: \"\": failed rule: type(self) == int || self.endsWith('%')",
        ),
        (
            {
                "type": "object",
                "properties": {"a-b": INTEGER, "namespace": TEXT},
                **rule("self.a__dash__b > 1 && self.__namespace__ == 'x'"),
            },
            {"a-b": 1, "namespace": "x"},
            (
                'spec: Invalid value: "object": failed rule: self.a__dash__b > 1 && '
                "self.__namespace__ == 'x'"
            ),
        ),
        (
            {"type": "number", **rule("self > 1.0")},
            1,
            'spec: Invalid value: "number": failed rule: self > 1.0',
        ),
        (
            {
                "type": "string",
                "format": "date-time",
                **rule("self > timestamp('2021-01-01T00:00:00Z')"),
            },
            "2020-01-01T00:00:00Z",
            (
                'spec: Invalid value: "string": failed rule: self > '
                "timestamp('2021-01-01T00:00:00Z')"
            ),
        ),
        (
            {**TEXT, **rule("quantity(self).isLessThan(quantity('1Gi'))")},
            "2Gi",
            (
                'spec: Invalid value: "string": failed rule: '
                "quantity(self).isLessThan(quantity('1Gi'))"
            ),
        ),
        (
            {"type": "array", "items": INTEGER, **rule("self.isSorted() && self.sum() < 10")},
            [3, 1],
            'spec: Invalid value: "array": failed rule: self.isSorted() && self.sum() < 10',
        ),
    ],
)
def test_a_broken_rule_is_reported_at_its_path(
    schema: dict[str, Any], value: Any, text: str
) -> None:
    assert printed(spec(schema), {"spec": value}) == [text]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({**PAIR, **rule("self.min <= self.max")}, {"min": 1, "max": 1}),
        ({**PAIR, **rule("!has(self.name)")}, {"min": 1}),
        (
            {
                **TEXT,
                **rule(
                    "self.find('[0-9]+') == '12' && url('https://h:1/p?a=b').getHostname() == 'h'"
                ),
            },
            "a12",
        ),
        ({**TEXT, "nullable": True, **rule("self == 'never'")}, None),
    ],
)
def test_a_kept_rule_says_nothing(schema: dict[str, Any], value: Any) -> None:
    assert printed(spec(schema), {"spec": value}) == []


def test_the_root_has_its_kind_and_name() -> None:
    schema = {**spec(PAIR), **rule("self.metadata.name.startsWith('a') && self.kind == 'W'")}
    assert printed(schema, {"kind": "W", "metadata": {"name": "abc", "labels": {}}}) == []
    assert printed(schema, {"kind": "W", "metadata": {"name": "b"}})[0].startswith(
        '<nil>: Invalid value: "object": failed'
    )


def test_rules_about_a_change_run_on_changes_only() -> None:
    schema = spec({**PAIR, **rule("self.min >= oldSelf.min", message="only up")})
    assert printed(schema, {"spec": {"min": 1}}) == []
    assert printed(schema, {"spec": {"min": 1}}, {"spec": {"min": 2}}) == [
        'spec: Invalid value: "object": only up'
    ]
    assert printed(schema, {"spec": {"min": 1}}, {}) == []
    optional = spec(
        {
            **PAIR,
            **rule("!oldSelf.hasValue() || self.min >= oldSelf.value().min", optionalOldSelf=True),
        }
    )
    assert printed(optional, {"spec": {"min": 1}}) == []
    assert len(printed(optional, {"spec": {"min": 1}}, {"spec": {"min": 2}})) == 1


def test_elements_are_followed_by_their_keys() -> None:
    item = {
        "type": "object",
        "properties": {"name": TEXT, "n": INTEGER},
        **rule("self.n >= oldSelf.n"),
    }
    schema = spec(
        {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": item,
        }
    )
    old = {"spec": [{"name": "a", "n": 1}, {"name": "b", "n": 5}]}
    assert printed(schema, {"spec": [{"name": "b", "n": 5}, {"name": "c", "n": 0}]}, old) == []
    assert printed(schema, {"spec": [{"name": "b", "n": 4}]}, old) == [
        'spec[0]: Invalid value: "object": failed rule: self.n >= oldSelf.n'
    ]


def test_what_was_wrong_and_did_not_change_may_stay() -> None:
    schema = spec(
        {"type": "object", "properties": {"n": {**INTEGER, **rule("self > 5")}, "m": INTEGER}}
    )
    old = {"spec": {"n": 1, "m": 1}}
    assert printed(schema, {"spec": {"n": 1, "m": 2}}, old) == []
    assert len(printed(schema, {"spec": {"n": 2, "m": 1}}, old)) == 1


@pytest.mark.parametrize(
    ("schema", "field", "text"),
    [
        (rule(" "), "s.x-kubernetes-validations[0].rule", "Required value: rule is not specified"),
        (
            {**TEXT, **rule("self + 1 == 2")},
            "s.x-kubernetes-validations[0].rule",
            (
                "compilation failed: ERROR: <input>:1:6: found no matching overload for '_+_' "
                "applied to '(string, int)'"
            ),
        ),
        (
            {**TEXT, **rule("self + 'a'")},
            "s.x-kubernetes-validations[0].rule",
            "cel expression must evaluate to a bool",
        ),
        (
            {**TEXT, **rule("true", messageExpression="1")},
            "s.x-kubernetes-validations[0].messageExpression",
            "messageExpression must evaluate to a string",
        ),
        (
            {**TEXT, **rule("true", reason="Nonsense")},
            "s.x-kubernetes-validations[0].reason",
            "Unsupported value",
        ),
        (
            {**PAIR, **rule("true", fieldPath=".nope")},
            "s.x-kubernetes-validations[0].fieldPath",
            "fieldPath must be a valid path",
        ),
        (
            {**TEXT, **rule("true", optionalOldSelf=True)},
            "s.x-kubernetes-validations[0].optionalOldSelf",
            "may not be set if oldSelf is not used in rule",
        ),
        (
            {
                "type": "array",
                "maxItems": 9,
                "items": {**TEXT, "maxLength": 9, **rule("self == oldSelf")},
            },
            "s.items.x-kubernetes-validations[0].rule",
            "oldSelf cannot be used on the uncorrelatable portion of the schema within s",
        ),
        (
            {**TEXT, **rule("self\n== 'a'")},
            "s.x-kubernetes-validations[0].message",
            "Required value: message must be specified if rule contains line breaks",
        ),
    ],
)
def test_a_bad_rule_is_refused_with_its_definition(
    schema: dict[str, Any], field: str, text: str
) -> None:
    (problem,) = check_rules(schema, "s")
    assert problem.field == field and text in problem.body()
