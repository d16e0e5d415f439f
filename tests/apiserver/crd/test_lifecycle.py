"""From a definition to a served resource and back: names, conditions, changes, deletion,
restart.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.apiserver.crd.definitions import (
    CRDS,
    GROUP,
    MERGE,
    WIDGETS,
    condition,
    define,
    definition,
    established,
    run,
    spec_schema,
    until,
    version,
    widget,
)
from tests.apiserver.harness import Api, start

from transom.kit.clock import VirtualClock
from transom.store.sqlite import SqliteStore

NAME = f"{CRDS}/widgets.{GROUP}"


async def conditions(api: Api, name: str) -> dict[str, tuple[str, str, str]]:
    crd = await api.ok("GET", f"{CRDS}/{name}")
    return {
        c["type"]: (c["status"], c["reason"], c["message"])
        for c in crd["status"].get("conditions") or ()
    }


async def test_an_accepted_definition_is_served_and_discovered_at_once() -> None:
    async with run() as api:
        crd = await define(
            api,
            version("v1"),
            version("v1alpha1"),
            names={"shortNames": ["wi"], "categories": ["all"]},
        )
        assert [c["type"] for c in crd["status"]["conditions"]] == ["NamesAccepted", "Established"]
        assert crd["status"]["acceptedNames"] == crd["spec"]["names"]
        group = await api.ok("GET", f"/apis/{GROUP}")
        assert [v["version"] for v in group["versions"]] == ["v1", "v1alpha1"]
        assert (await api.ok("GET", f"/apis/{GROUP}/v1"))["resources"][0]["shortNames"] == ["wi"]
        document = await api.ok("GET", f"/openapi/v3/apis/{GROUP}/v1")
        assert "com.example.v1.Widget" in document["components"]["schemas"]
        assert (await api.ok("GET", WIDGETS))["kind"] == "WidgetList"


async def test_a_name_is_given_once_and_again_when_it_is_free() -> None:
    async with run() as api:
        await define(api, names={"shortNames": ["wi"]})
        await api.ok(
            "POST",
            CRDS,
            definition(plural="gizmos", kind="Widget", names={"shortNames": ["wi", "gi"]}),
        )

        async def refused() -> Any:
            return (await conditions(api, f"gizmos.{GROUP}")).get("NamesAccepted")

        # The last conflict found is the one that is reported.
        assert await until(refused) == (
            "False",
            "ListKindConflict",
            '"WidgetList" is already in use',
        )
        assert (await conditions(api, f"gizmos.{GROUP}"))["Established"] == (
            "False",
            "NotAccepted",
            "not all names are accepted",
        )
        status, _ = await api.call("GET", f"/apis/{GROUP}/v1/gizmos")
        assert status == 404
        await api.ok("DELETE", NAME)
        await established(api, f"gizmos.{GROUP}")
        assert (await api.ok("GET", f"/apis/{GROUP}/v1/gizmos"))["kind"] == "WidgetList"


async def test_an_established_definition_stays_when_a_new_name_is_refused() -> None:
    async with run() as api:
        await define(api, names={"shortNames": ["wi"]})
        await define(api, plural="gizmos", kind="Gizmo")
        await api.ok(
            "PATCH",
            f"{CRDS}/gizmos.{GROUP}",
            {"spec": {"names": {"shortNames": ["wi"]}}},
            media=MERGE,
        )

        async def refused() -> Any:
            found = await conditions(api, f"gizmos.{GROUP}")
            return found if found["NamesAccepted"][0] == "False" else None

        found = await until(refused)
        assert found["NamesAccepted"] == ("False", "ShortNamesConflict", '"wi" is already in use')
        assert found["Established"][0] == "True"
        assert "shortNames" not in (await api.ok("GET", f"/apis/{GROUP}/v1"))["resources"][1]


async def test_groups_of_the_community_report_whether_they_are_approved() -> None:
    async with run() as api:
        crd = definition()
        crd["spec"]["group"] = "test.k8s.io"
        crd["metadata"] = {
            "name": "widgets.test.k8s.io",
            "annotations": {"api-approved.kubernetes.io": "unapproved, a trial"},
        }
        await api.ok("POST", CRDS, crd)
        await established(api, "widgets.test.k8s.io")
        found = await conditions(api, "widgets.test.k8s.io")
        assert found["KubernetesAPIApprovalPolicyConformant"] == (
            "False",
            "UnapprovedAnnotation",
            'not approved: "unapproved, a trial"',
        )


async def test_a_version_that_is_no_longer_served_is_a_plain_404_and_its_watches_end() -> None:
    async with run() as api:
        await define(api, version("v1"), version("v2"))
        stream = await api.watch(f"/apis/{GROUP}/v2/widgets?watch=true")
        await api.ok(
            "PATCH",
            NAME,
            {"spec": {"versions": [version("v1"), version("v2", served=False)]}},
            media=MERGE,
        )
        assert not stream.alive
        assert await api.call("GET", f"/apis/{GROUP}/v2/widgets") == (404, "404 page not found\n")
        assert [v["version"] for v in (await api.ok("GET", f"/apis/{GROUP}"))["versions"]] == ["v1"]


async def test_deletion_takes_the_instances_first_and_a_finalizer_holds_it() -> None:
    async with run() as api:
        await define(api)
        await api.ok("POST", WIDGETS, widget("a"))
        held = widget("b")
        held["metadata"]["finalizers"] = ["example.com/hold"]
        await api.ok("POST", WIDGETS, held)
        answer = await api.ok("DELETE", NAME)
        assert answer["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
        pending = condition(answer, "Terminating")
        assert pending is not None and pending["reason"] == "InstanceDeletionPending"

        async def in_progress() -> bool:
            return (await conditions(api, f"widgets.{GROUP}"))["Terminating"][
                1
            ] == "InstanceDeletionInProgress"

        async def a_gone() -> bool:
            return (await api.call("GET", f"{WIDGETS}/a"))[0] == 404

        await until(in_progress)
        await until(a_gone)
        assert (await api.ok("GET", f"/apis/{GROUP}/v1"))["resources"][0]["verbs"] == [
            "delete",
            "deletecollection",
            "get",
            "list",
            "watch",
        ]
        status, answer = await api.call("POST", WIDGETS, widget("c"))
        assert (status, answer["message"]) == (
            405,
            "create not allowed while custom resource definition is terminating",
        )
        await api.clock.run_for(61)
        await until(lambda: _reason(api, "InstanceDeletionCheck"))
        await api.ok("PATCH", f"{WIDGETS}/b", {"metadata": {"finalizers": None}}, media=MERGE)

        async def gone() -> bool:
            return (await api.call("GET", NAME))[0] == 404

        await until(gone)
        assert await api.call("GET", WIDGETS) == (404, "404 page not found\n")
        assert (await api.call("GET", f"/apis/{GROUP}"))[0] == 404


async def _reason(api: Api, wanted: str) -> bool:
    return (await conditions(api, f"widgets.{GROUP}"))["Terminating"][1] == wanted


async def test_a_definition_that_never_was_established_goes_at_once() -> None:
    async with run() as api:
        await define(api)
        await api.ok("POST", CRDS, definition(plural="gizmos", kind="Widget"))
        await api.ok("DELETE", f"{CRDS}/gizmos.{GROUP}")

        async def gone() -> bool:
            return (await api.call("GET", f"{CRDS}/gizmos.{GROUP}"))[0] == 404

        await until(gone)
        assert (await api.ok("GET", WIDGETS))["items"] == []


async def test_everything_is_there_again_after_a_restart(tmp_path: Path) -> None:
    clock = VirtualClock()
    api = await start(store=SqliteStore(tmp_path / "store", clock), clock=clock)
    await api.ok("POST", CRDS, definition(version("v1", spec_schema(a={"type": "string"}))))
    changed = asyncio.Event()
    store = api.server.storage.store
    following = store.watch(
        "customresourcedefinitions.", store.revision, lambda _events: changed.set()
    )
    while condition(await api.ok("GET", NAME), "Established") is None:
        await changed.wait()
        changed.clear()
    following.cancel()
    made = await api.ok("POST", WIDGETS, widget("a", spec={"a": "x"}))
    await api.server.stop()
    api = await start(store=SqliteStore(tmp_path / "store", clock), clock=clock)
    assert api.server.ready
    assert await api.ok("GET", f"{WIDGETS}/a") == made
    await api.server.stop()


async def test_rules_of_the_schema_judge_objects_of_the_right_shape() -> None:
    rule = {"rule": "self.min <= self.max", "message": "min above max"}
    limits = {
        "type": "object",
        "required": ["min"],
        "x-kubernetes-validations": [rule],
        "properties": {"min": {"type": "integer"}, "max": {"type": "integer"}},
    }

    async with run() as api:
        await define(api, version("v1", {"type": "object", "properties": {"spec": limits}}))
        await api.ok("POST", WIDGETS, widget("a", spec={"min": 1, "max": 2}))
        status, answer = await api.call("PATCH", f"{WIDGETS}/a", {"spec": {"min": 3}}, media=MERGE)
        assert status == 422
        assert (
            answer["message"]
            == 'Widget.example.com "a" is invalid: spec: Invalid value: "object": min above max'
        )
        _, answer = await api.call("POST", WIDGETS, widget("b", spec={"max": 0}))
        assert [c["message"][:60] for c in answer["details"]["causes"]] == [
            "Required value",
            'Invalid value: "null": some validation rules were not checke',
        ]
        bad = definition(
            version("v1", {"type": "object", "x-kubernetes-validations": [{"rule": "self +"}]}),
            plural="gizmos",
            kind="Gizmo",
        )
        _, answer = await api.call("POST", CRDS, bad)
        assert (
            "x-kubernetes-validations[0].rule" in answer["message"]
            and "Syntax error" in answer["message"]
        )


async def test_a_definition_can_go_while_its_last_write_is_on_its_way_to_disk(
    tmp_path: Path,
) -> None:
    clock = VirtualClock()
    api = await start(store=SqliteStore(tmp_path / "store", clock), clock=clock)
    gone = asyncio.Event()
    store = api.server.storage.store

    def see(events: Any) -> None:
        if any(event.record is None for event in events):
            gone.set()

    following = store.watch("customresourcedefinitions.", store.revision, see)
    await api.ok("POST", CRDS, definition())
    touches = [
        api.call("PATCH", NAME, {"metadata": {"annotations": {"n": str(i)}}}, media=MERGE)
        for i in range(20)
    ]
    await asyncio.gather(*touches, api.call("DELETE", NAME))
    await asyncio.wait_for(gone.wait(), 20)
    following.cancel()
    await api.server.stop()
