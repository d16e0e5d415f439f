"""Versions of custom objects, with and without a webhook between them."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from itertools import product
from typing import Any, TypeVar

import pytest
from tests.apiserver.crd.definitions import (
    CRDS,
    GROUP,
    MERGE,
    WIDGETS,
    define,
    run,
    spec_schema,
    until,
    version,
    widget,
)
from tests.apiserver.harness import Api

from transom.apiserver.crd.conversion import WebhookConverter
from transom.apiserver.webhooks.client import CallFailed

T = TypeVar("T")
OLD = f"/apis/{GROUP}/v1beta1/namespaces/default/widgets"
TEXT = {"type": "string"}
V1 = version("v1", spec_schema(host=TEXT, port={"type": "integer"}))
BETA = version("v1beta1", spec_schema(hostPort=TEXT))
HOOK = {
    "strategy": "Webhook",
    "webhook": {
        "clientConfig": {"url": "https://hook.example.com/convert"},
        "conversionReviewVersions": ["v1"],
    },
}


class Hook:
    """v1beta1 has `hostPort`, v1 has `host` and `port`."""

    def __init__(self) -> None:
        self.calls = 0
        self.change: Any = lambda answer: answer

    async def __call__(
        self,
        config: Mapping[str, Any],
        review: dict[str, Any],
        within: float,
        work: Callable[[dict[str, Any]], T],
    ) -> T:
        self.calls += 1
        assert config["url"] == "https://hook.example.com/convert"
        request = review["request"]
        objs = [self._convert(dict(o), request["desiredAPIVersion"]) for o in request["objects"]]
        response = {
            "uid": request["uid"],
            "result": {"status": "Success"},
            "convertedObjects": objs,
        }
        answer = {
            "apiVersion": review["apiVersion"],
            "kind": "ConversionReview",
            "response": response,
        }
        return work(self.change(answer))

    def close(self) -> None:
        """Nothing is open."""

    def _convert(self, obj: dict[str, Any], wanted: str) -> dict[str, Any]:
        spec = obj.get("spec") or {}
        if wanted.endswith("/v1"):
            host, _, port = spec.get("hostPort", ":0").partition(":")
            spec = {"host": host, "port": int(port)}
        else:
            spec = {"hostPort": f"{spec.get('host', '')}:{spec.get('port', 0)}"}
        return {**obj, "apiVersion": wanted, "spec": spec}


async def with_hook(api: Api) -> Hook:
    hook = Hook()
    api.server.definitions._webhooks = hook  # type: ignore[assignment]
    await define(api, V1, BETA, conversion=HOOK)
    return hook


async def test_each_version_is_pruned_by_its_own_schema_and_defaulted_by_the_stored_one() -> None:
    async with run() as api:
        await define(
            api,
            version("v1", spec_schema(a=TEXT, b={**TEXT, "default": "filled"})),
            version("v1alpha1", spec_schema(a=TEXT, old=TEXT)),
        )
        alpha = f"/apis/{GROUP}/v1alpha1/namespaces/default/widgets"
        made = await api.ok(
            "POST", alpha, widget("a", f"{GROUP}/v1alpha1", spec={"a": "x", "old": "y", "b": "z"})
        )
        assert made["spec"] == {"a": "x"} and made["apiVersion"] == f"{GROUP}/v1alpha1"
        assert (await api.ok("GET", f"{WIDGETS}/a"))["spec"] == {"a": "x", "b": "filled"}
        listed = await api.ok("GET", alpha)
        assert [(i["apiVersion"], i["spec"]) for i in listed["items"]] == [
            (f"{GROUP}/v1alpha1", {"a": "x"})
        ]


async def test_defaults_that_no_request_saw_follow_the_definition() -> None:
    async with run() as api:
        await define(api, version("v1", spec_schema(a=TEXT)))
        await api.ok("POST", WIDGETS, widget("a", spec={"a": "x"}))
        patch = {
            "spec": {
                "versions": [
                    version("v1", spec_schema(a=TEXT, n={"type": "integer", "default": 7}))
                ]
            }
        }
        await api.ok("PATCH", f"{CRDS}/widgets.{GROUP}", patch, media=MERGE)
        assert (await api.ok("GET", f"{WIDGETS}/a"))["spec"] == {"a": "x", "n": 7}
        assert (await api.ok("GET", WIDGETS))["items"][0]["spec"] == {"a": "x", "n": 7}


async def test_writing_brings_an_object_into_a_new_storage_version() -> None:
    async with run() as api:
        await define(api, version("v1"), version("v2"))
        made = await api.ok("POST", WIDGETS, widget("a"))
        versions = [version("v1", storage=False), version("v2", storage=True)]
        crd = await api.ok(
            "PATCH", f"{CRDS}/widgets.{GROUP}", {"spec": {"versions": versions}}, media=MERGE
        )
        assert crd["status"]["storedVersions"] == ["v1", "v2"]
        before = api.server.storage.store.get(f"widgets.{GROUP}/default/a")
        assert before is not None and b"example.com/v1" in before.value
        again = await api.ok("PUT", f"{WIDGETS}/a", made)
        assert again["metadata"]["resourceVersion"] != made["metadata"]["resourceVersion"]
        after = api.server.storage.store.get(f"widgets.{GROUP}/default/a")
        assert after is not None and b'"apiVersion":"example.com/v2"' in after.value
        assert again["apiVersion"] == f"{GROUP}/v1"


async def test_a_webhook_converts_what_is_read_and_written() -> None:
    async with run() as api:
        await with_hook(api)
        made = await api.ok("POST", OLD, widget("a", f"{GROUP}/v1beta1", spec={"hostPort": "h:80"}))
        assert made["spec"] == {"hostPort": "h:80"} and made["apiVersion"] == f"{GROUP}/v1beta1"
        stored = await api.ok("GET", f"{WIDGETS}/a")
        assert stored["spec"] == {"host": "h", "port": 80}
        await api.ok("PATCH", f"{OLD}/a", {"spec": {"hostPort": "g:81"}}, media=MERGE)
        assert (await api.ok("GET", f"{WIDGETS}/a"))["spec"] == {"host": "g", "port": 81}
        await api.ok("POST", WIDGETS, widget("b", spec={"host": "b", "port": 1}))
        listed = await api.ok("GET", OLD)
        assert [i["spec"]["hostPort"] for i in listed["items"]] == ["g:81", "b:1"]
        assert (await api.ok("DELETE", f"{OLD}/a"))["status"] == "Success"


async def test_a_list_is_converted_in_one_call_and_the_stored_version_in_none() -> None:
    async with run() as api:
        hook = await with_hook(api)
        for i in range(5):
            await api.ok("POST", WIDGETS, widget(f"w{i}", spec={"host": "h", "port": i}))
        assert hook.calls == 0
        await api.ok("GET", WIDGETS)
        assert hook.calls == 0
        await api.ok("GET", OLD)
        assert hook.calls == 1


async def test_watchers_see_converted_events_in_order() -> None:
    async with run() as api:
        await with_hook(api)
        await api.ok("POST", WIDGETS, widget("a", spec={"host": "h", "port": 1}))
        stream = await api.watch(f"{OLD}?watch=true")
        await api.ok("PATCH", f"{WIDGETS}/a", {"spec": {"port": 2}}, media=MERGE)
        await api.ok("DELETE", f"{WIDGETS}/a")
        seen: list[Any] = []

        async def three() -> bool:
            seen.extend((e["type"], e["object"]["spec"]["hostPort"]) for e in stream.events())
            return len(seen) == 3

        await until(three)
        assert seen == [("ADDED", "h:1"), ("MODIFIED", "h:2"), ("DELETED", "h:2")]


async def test_field_managers_of_both_versions_live_together() -> None:
    async with run() as api:
        await with_hook(api)
        apply = "application/apply-patch+yaml"
        await api.ok(
            "PATCH",
            f"{OLD}/a?fieldManager=old",
            widget("a", f"{GROUP}/v1beta1", spec={"hostPort": "h:1"}),
            media=apply,
        )
        status, answer = await api.call(
            "PATCH", f"{WIDGETS}/a?fieldManager=new", widget("a", spec={"port": 2}), media=apply
        )
        assert status == 409 and 'conflict with "old"' in answer["message"], answer
        await api.ok(
            "PUT",
            f"{WIDGETS}/a",
            {**await api.ok("GET", f"{WIDGETS}/a"), "spec": {"host": "x", "port": 1}},
        )
        assert (await api.ok("GET", f"{OLD}/a"))["spec"] == {"hostPort": "x:1"}


async def test_appliers_of_several_versions_remove_only_what_they_no_longer_apply() -> None:
    """Whatever the order of the versions: the types of both have no field in common."""
    apply = "application/apply-patch+yaml"
    specs = {WIDGETS: {"host": "h", "port": 1}, OLD: {"hostPort": "h:1"}}
    versions = {WIDGETS: f"{GROUP}/v1", OLD: f"{GROUP}/v1beta1"}
    async with run() as api:
        await with_hook(api)
        for number, paths in enumerate(product(specs, repeat=3)):
            for path, manager in zip(paths, "aba", strict=True):
                body = widget(f"w{number}", versions[path], spec=specs[path])
                url = f"{path}/w{number}?fieldManager={manager}&force=true"
                made = await api.ok("PATCH", url, body, media=apply)
                assert made["apiVersion"] == versions[path] and made["spec"] == specs[path]
                owned = {e["manager"]: e for e in made["metadata"]["managedFields"]}[manager]
                assert owned["apiVersion"] == versions[path]
                assert owned["fieldsV1"] == {"f:spec": {f"f:{key}": {} for key in specs[path]}}
        last = widget("w0", spec={"host": "h"})
        path = f"{WIDGETS}/w0?fieldManager=a&force=true"
        assert (await api.ok("PATCH", path, last, media=apply))["spec"] == specs[WIDGETS]
        path = f"{WIDGETS}/w0?fieldManager=b&force=true"
        assert (await api.ok("PATCH", path, last, media=apply))["spec"] == {"host": "h"}


def _answer(**changes: Any) -> Any:
    def change(answer: dict[str, Any]) -> dict[str, Any]:
        return {**answer, "response": {**answer["response"], **changes}}

    return change


def _first(**changes: Any) -> Any:
    def change(answer: dict[str, Any]) -> dict[str, Any]:
        obj = {**answer["response"]["convertedObjects"][0], **changes}
        return _answer(convertedObjects=[obj])(answer)  # type: ignore[no-any-return]

    return change


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (_answer(result={"status": "Failed", "message": "no way"}), "failed: no way"),
        (_answer(result={}), "failed: response.result.status was '', not 'Success'"),
        (_answer(uid="other"), 'got "other"'),
        (_answer(convertedObjects=[]), "returned 0 objects, expected 1"),
        (_answer(convertedObjects=7), "returned 0 objects, expected 1"),
        (_answer(convertedObjects={"a": 1}), "returned 0 objects, expected 1"),
        (_answer(result=["x"]), "failed: response.result.status was '', not 'Success'"),
        (_answer(result="Success"), "failed: response.result.status was '', not 'Success'"),
        (
            lambda answer: {**answer, "apiVersion": "apiextensions.k8s.io/v1beta1"},
            "failed: expected webhook response of apiextensions.k8s.io/v1, "
            "Kind=ConversionReview, got "
            "apiextensions.k8s.io/v1beta1, Kind=ConversionReview",
        ),
        (
            _first(apiVersion="example.com/v3"),
            (
                "returned invalid object at index 0: invalid groupVersion (expected "
                "example.com/v1beta1, received example.com/v3)"
            ),
        ),
        (
            _first(kind="Gadget"),
            "returned invalid object at index 0: invalid kind (expected Widget, received Gadget)",
        ),
        (
            _first(metadata={"name": "b"}),
            "returned invalid object: must have the same name: a != b",
        ),
    ],
)
async def test_a_bad_answer_of_the_webhook_is_reported(change: Any, text: str) -> None:
    async with run() as api:
        hook = await with_hook(api)
        await api.ok("POST", WIDGETS, widget("a", spec={"host": "h", "port": 1}))
        hook.change = change
        status, answer = await api.call("GET", f"{OLD}/a")
        assert status == 500 and "reason" not in answer
        assert answer["message"].startswith("conversion webhook for example.com/v1, Kind=Widget ")
        assert text in answer["message"]


async def test_a_large_list_is_converted_in_several_calls() -> None:
    async with run() as api:
        hook = await with_hook(api)
        host = "h" * 300_000
        for name in "abcdefgh":
            await api.ok("POST", WIDGETS, widget(name, spec={"host": host, "port": 1}))
        hook.calls = 0
        found = await api.ok("GET", OLD)
        assert [one["metadata"]["name"] for one in found["items"]] == list("abcdefgh")
        assert {one["spec"]["hostPort"] for one in found["items"]} == {f"{host}:1"}
        assert hook.calls == 3


async def test_conversions_are_forgotten_after_the_request() -> None:
    """A client could otherwise fill the memory with large objects."""
    async with run() as api:
        await with_hook(api)
        apply = "application/apply-patch+yaml"
        for version in ("v1", "v1beta1"):
            spec = {"hostPort": "h:1"} if version == "v1beta1" else {"host": "h", "port": 1}
            body = {**widget("a", spec=spec), "apiVersion": f"{GROUP}/{version}"}
            path = f"{WIDGETS if version == 'v1' else OLD}/a?fieldManager={version}"
            await api.ok("PATCH", path, body, media=apply)
        gc.collect()
        converters = [one for one in gc.get_objects() if isinstance(one, WebhookConverter)]
        assert converters and not any(one._known for one in converters)


async def test_an_unreachable_webhook_ends_watches_with_an_error() -> None:
    async with run() as api:
        hook = await with_hook(api)
        await api.ok("POST", WIDGETS, widget("a", spec={"host": "h", "port": 1}))

        def refuse(_answer: Any) -> Any:
            raise CallFailed("connection refused")

        hook.change = refuse
        stream = await api.watch(f"{OLD}?watch=true")

        async def closed() -> bool:
            return not stream.alive

        await until(closed)
        (event,) = stream.events()
        assert event["type"] == "ERROR" and "connection refused" in event["object"]["message"]


async def test_labels_of_the_answer_are_taken_and_other_metadata_is_not() -> None:
    async with run() as api:
        hook = await with_hook(api)
        await api.ok("POST", WIDGETS, widget("a", spec={"host": "h", "port": 1}))

        def change(answer: dict[str, Any]) -> dict[str, Any]:
            obj = answer["response"]["convertedObjects"][0]
            meta = {**obj["metadata"], "labels": {"new": "yes"}, "generation": 99}
            return _answer(convertedObjects=[{**obj, "metadata": meta}])(answer)  # type: ignore[no-any-return]

        hook.change = change
        meta = (await api.ok("GET", f"{OLD}/a"))["metadata"]
        assert meta["labels"] == {"new": "yes"} and meta["generation"] == 1


HOST = [{"jsonPath": ".spec.host"}]
HOST_PORT = [{"jsonPath": ".spec.hostPort"}]


async def with_selectable_fields(api: Api) -> None:
    api.server.definitions._webhooks = Hook()  # type: ignore[assignment]
    versions = {**V1, "selectableFields": HOST}, {**BETA, "selectableFields": HOST_PORT}
    await define(api, *versions, conversion=HOOK)
    for name, host in (("a", "x"), ("b", "y"), ("c", "x"), ("d", "x")):
        await api.ok("POST", WIDGETS, widget(name, spec={"host": host, "port": 80}))


async def test_fields_are_selected_in_the_version_of_the_request() -> None:
    async with run(release="1.36") as api:
        await with_selectable_fields(api)

        async def names(target: str) -> list[str]:
            listed = await api.ok("GET", target)
            return [item["metadata"]["name"] for item in listed["items"]]

        assert await names(f"{WIDGETS}?fieldSelector=spec.host=x") == ["a", "c", "d"]
        assert await names(f"{OLD}?fieldSelector=spec.hostPort=x:80") == ["a", "c", "d"]
        assert await names(f"{OLD}?fieldSelector=spec.hostPort!=x:80") == ["b"]
        both = "fieldSelector=metadata.name=c,spec.hostPort=x:80"
        assert await names(f"{OLD}?{both}") == ["c"]
        page = await api.ok("GET", f"{OLD}?fieldSelector=spec.hostPort=x:80&limit=2")
        assert [item["metadata"]["name"] for item in page["items"]] == ["a", "c"]
        token = page["metadata"]["continue"]
        rest = f"{OLD}?fieldSelector=spec.hostPort=x:80&limit=2&continue={token}"
        assert await names(rest) == ["d"]
        await api.ok("DELETE", f"{OLD}?fieldSelector=spec.hostPort=x:80")
        assert await names(OLD) == ["b"]


async def test_a_watch_selects_fields_in_its_version() -> None:
    async with run(release="1.36") as api:
        await with_selectable_fields(api)
        stream = await api.watch(f"{OLD}?watch=true&fieldSelector=spec.hostPort=y:80")
        await api.ok("PATCH", f"{WIDGETS}/a", {"spec": {"host": "y"}}, media=MERGE)
        await api.ok("PATCH", f"{WIDGETS}/b", {"spec": {"host": "z"}}, media=MERGE)
        await api.ok("DELETE", f"{WIDGETS}/c")
        await api.ok("DELETE", f"{WIDGETS}/a")

        shown: list[Any] = []

        async def complete() -> bool:
            shown.extend((e["type"], e["object"]["metadata"]["name"]) for e in stream.events())
            return len(shown) == 4

        await until(complete)
        assert shown == [("ADDED", "b"), ("ADDED", "a"), ("DELETED", "b"), ("DELETED", "a")]
