"""Validation rules and patterns of custom resources through the API: answers, cost limits, a free
event loop.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from tests.apiserver.crd.definitions import (
    CRDS,
    GROUP,
    WIDGETS,
    define,
    definition,
    run,
    spec_schema,
    version,
    widget,
)

from transom.kit.workers import WorkerThread

TEXT = {"type": "string", "maxLength": 10}
ADVICE = (
    "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, "
    "maps, and strings are declared)"
)


def rules(*texts: str) -> dict[str, Any]:
    return {"x-kubernetes-validations": [{"rule": text} for text in texts]}


def items(count: int, *texts: str) -> dict[str, Any]:
    return spec_schema(l={"type": "array", "maxItems": count, "items": TEXT, **rules(*texts)})


async def test_a_rule_that_may_cost_too_much_is_rejected_with_its_definition() -> None:
    async with run(workers=WorkerThread()) as api:
        schema = spec_schema(
            l={
                "type": "array",
                "maxItems": 10,
                "items": {"type": "string"},
                **rules("self.all(x, self.all(y, x == y))"),
            }
        )
        status, answer = await api.call("POST", CRDS, definition(version(schema=schema)))
        assert (status, answer["reason"]) == (422, "Invalid")
        where = "spec.validation.openAPIV3Schema.properties[spec].properties[l].x-kubernetes-validations[0].rule"
        assert answer["message"] == (
            f'CustomResourceDefinition.apiextensions.k8s.io "widgets.{GROUP}" is invalid: '
            f"{where}: Forbidden: estimated "
            f"rule cost exceeds budget by factor of 3.1x {ADVICE}"
        )


async def test_the_rules_of_a_schema_have_a_limit_together() -> None:
    async with run(workers=WorkerThread()) as api:
        many = {
            f"f{i}": {
                "type": "array",
                "maxItems": 900,
                "items": TEXT,
                **rules("self.all(x, self.exists(y, x == y))"),
            }
            for i in range(16)
        }
        status, answer = await api.call(
            "POST", CRDS, definition(version(schema=spec_schema(**many)))
        )
        assert status == 422
        texts = [cause["message"] for cause in answer["details"]["causes"]]
        assert (
            texts[:4]
            == [
                "Forbidden: contributed to estimated rule cost total exceeding cost limit "
                "for entire "
                "OpenAPIv3 schema"
            ]
            * 4
        )
        assert len(texts) == 5 and texts[4].startswith(
            "Forbidden: x-kubernetes-validations estimated rule cost total for "
            "entire OpenAPIv3 schema exceeds budget by factor of 1."
        )


async def test_updates_are_held_to_the_cost_limit() -> None:
    async with run(workers=WorkerThread()) as api:
        await define(api, version(schema=items(10, "self.all(x, x != '')")))
        path = f"{CRDS}/widgets.{GROUP}"
        crd = await api.ok("GET", path)
        crd["metadata"]["labels"] = {"a": "b"}
        crd = await api.ok("PUT", path, crd)
        assert crd["metadata"]["labels"] == {"a": "b"}
        properties = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"][
            "properties"
        ]
        del properties["l"]["maxItems"], properties["l"]["items"]["maxLength"]
        properties["l"]["x-kubernetes-validations"][0]["rule"] = "self.all(x, self.all(y, x != y))"
        status, answer = await api.call("PUT", path, crd)
        assert status == 422 and "estimated rule cost exceeds budget" in answer["message"]


async def test_an_object_whose_rule_costs_too_much_is_invalid() -> None:
    async with run(workers=WorkerThread()) as api:
        rule = "self.all(x, self.exists_one(y, y == x))"
        await define(api, version(schema=items(1000, rule)))
        assert (await api.call("POST", WIDGETS, widget("few", spec={"l": ["a", "b"]})))[0] == 201
        status, answer = await api.call(
            "POST", WIDGETS, widget("many", spec={"l": [f"i{i}" for i in range(1000)]})
        )
        assert status == 422 and answer["details"]["causes"] == [
            {
                "reason": "FieldValueInvalid",
                "field": "spec.l",
                "message": 'Invalid value: "array": \'operation cancelled: actual cost limit '
                "exceeded': no further validation "
                f"rules will be run due to call cost exceeds limit for rule: {rule}",
            }
        ]


async def test_an_object_whose_rules_cost_too_much_together_is_invalid() -> None:
    async with run(workers=WorkerThread()) as api:
        long = "b?" * 490  # the cost of a match grows with the length of its pattern
        many = [f"self.all(x, x.matches('^a[{i}]*{long}$'))" for i in range(25)]
        await define(api, version(schema=items(1000, *many)))
        status, answer = await api.call(
            "POST", WIDGETS, widget("w", spec={"l": ["abbbbbbbbb"] * 1000})
        )
        assert status == 422
        assert answer["details"]["causes"][-1]["message"] == (
            'Invalid value: "array": validation failed due to running out of cost budget, no '
            "further validation rules will "
            "be run"
        )


async def test_expensive_rules_do_not_hold_the_event_loop() -> None:
    """The watchdog of the test suite fails this test if any callback uses more than 100 ms."""

    async with run(workers=WorkerThread()) as api:
        await define(
            api,
            version(
                schema=items(420, "self.all(x, self.exists_one(y, y == x))", "self.size() > 0")
            ),
        )
        await api.ok("POST", WIDGETS, widget("first", spec={"l": ["a"]}))
        values = [f"i{i}" for i in range(420)]
        waits: list[float] = []

        async def read() -> None:
            while not done.is_set():
                started = time.perf_counter()
                await api.ok("GET", f"{WIDGETS}/first")
                waits.append(time.perf_counter() - started)
                await asyncio.sleep(0.002)

        done = asyncio.Event()
        reader = asyncio.create_task(read())
        answers = await asyncio.gather(
            *(api.call("POST", WIDGETS, widget(f"w{i}", spec={"l": values})) for i in range(3))
        )
        done.set()
        await reader
        assert [status for status, _ in answers] == [201] * 3
        assert len(waits) > 10


async def test_a_pattern_that_backtracks_does_not_hold_the_event_loop() -> None:
    async with run(workers=WorkerThread()) as api:
        hostile = {
            "type": "string",
            "pattern": "^(a+)+$",
            **rules("!self.matches('^(a|aa)+$') || self.find('(a+)+b') == ''"),
        }
        await define(api, version(schema=spec_schema(s={**hostile, "maxLength": 100})))
        started = time.thread_time()
        status, answer = await api.call("POST", WIDGETS, widget("w", spec={"s": "a" * 60 + "!"}))
        assert status == 422 and "should match '^(a+)+$'" in answer["message"]
        assert (await api.call("POST", WIDGETS, widget("w", spec={"s": "a" * 60})))[0] == 201
        assert time.thread_time() - started < 1


async def test_an_invalid_pattern_is_rejected_with_the_text_of_go() -> None:
    async with run(workers=WorkerThread()) as api:
        status, answer = await api.call(
            "POST",
            CRDS,
            definition(version(schema=spec_schema(s={"type": "string", "pattern": "("}))),
        )
        assert status == 422
        assert answer["details"]["causes"][0]["message"] == (
            'Invalid value: "(": must be a valid regular expression, but isn\'t: error '
            "parsing regexp: missing closing ): `(`"
        )


async def test_a_definition_with_many_rules_does_not_hold_the_event_loop() -> None:
    async with run(workers=WorkerThread()) as api:
        many = {
            f"f{i}": {
                **TEXT,
                **rules(f"self != 'a{i}' && self.size() < 10 && self.startsWith('x')"),
            }
            for i in range(300)
        }
        await define(api, version(schema=spec_schema(**many)))
        status, answer = await api.call("POST", WIDGETS, widget("w", spec={"f1": "a1", "f2": "x"}))
        assert status == 422 and "failed rule: self != 'a1'" in answer["message"]
        assert (await api.call("POST", WIDGETS, widget("w", spec={"f2": "x"})))[0] == 201


@pytest.mark.parametrize(("release", "structural"), [("1.24", 1), ("1.25", 0)])
async def test_errors_of_the_structure_come_first_since_1_25(release: str, structural: int) -> None:
    schema = spec_schema(a={"type": "object", "anyOf": [{"properties": {"b": {"type": "odd"}}}]})
    async with run(release=release) as api:
        status, problem = await api.call("POST", CRDS, definition(version(schema=schema)))
        messages = [cause["message"] for cause in problem["details"]["causes"]]
        assert status == 422
        assert messages.index("Forbidden: must be empty to be structural") == structural
        assert 'Unsupported value: "odd"' in messages[1 - structural]
