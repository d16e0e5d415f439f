"""Create, update, patch, delete: what is the same for all kinds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.apiserver.harness import Api, start

MERGE = "application/merge-patch+json"
CM = "/api/v1/namespaces/default/configmaps"


@asynccontextmanager
async def run() -> AsyncIterator[Api]:
    api = await start()
    yield api
    await api.server.stop()


def configmap(name: str, **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **more}, "data": {"a": "1"}}


async def test_create_fills_in_metadata_and_answers_with_the_stored_object() -> None:
    async with run() as api:
        made = await api.ok("POST", CM, configmap("a"))
        assert made["kind"] == "ConfigMap" and made["apiVersion"] == "v1"
        assert {
            "uid",
            "creationTimestamp",
            "resourceVersion",
            "namespace",
            "managedFields",
        } <= made["metadata"].keys()
        assert await api.ok("GET", CM + "/a") == made


async def test_stale_update_conflicts_and_changes_nothing() -> None:
    async with run() as api:
        first = await api.ok("POST", CM, configmap("a"))
        second = await api.ok("PUT", CM + "/a", {**first, "data": {"a": "2"}})
        status, problem = await api.call("PUT", CM + "/a", {**first, "data": {"a": "3"}})
        assert (status, problem["reason"]) == (409, "Conflict")
        assert "the object has been modified" in problem["message"]
        assert await api.ok("GET", CM + "/a") == second


async def test_an_update_without_a_change_keeps_the_version() -> None:
    async with run() as api:
        first = await api.ok("POST", CM, configmap("a"))
        again = await api.ok("PUT", CM + "/a", first)
        assert again == first
        patched = await api.ok("PATCH", CM + "/a", {"data": {"a": "1"}}, media=MERGE)
        assert patched["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


async def test_concurrent_patches_all_arrive() -> None:
    async with run() as api:
        await api.ok("POST", CM, configmap("a"))
        await asyncio.gather(
            *(
                api.ok("PATCH", CM + "/a", {"data": {f"k{i}": str(i)}}, media=MERGE)
                for i in range(20)
            )
        )
        data = (await api.ok("GET", CM + "/a"))["data"]
        assert data == {"a": "1", **{f"k{i}": str(i) for i in range(20)}}


async def test_concurrent_creates_of_one_name_give_one_object() -> None:
    async with run() as api:
        answers = await asyncio.gather(
            *(api.call("POST", CM, configmap("same")) for _ in range(10))
        )
        assert sorted(status for status, _ in answers) == [201] + [409] * 9


async def test_generate_name_tries_again_until_it_is_unique() -> None:
    async with run() as api:
        made = {
            (await api.ok("POST", CM, {"metadata": {"generateName": "g-"}}))["metadata"]["name"]
            for _ in range(50)
        }
        assert len(made) == 50 and all(name.startswith("g-") and len(name) == 7 for name in made)


@pytest.mark.parametrize(
    ("release", "code", "message"),
    [
        (
            "1.22",
            500,
            "The POST operation against ConfigMap could not be completed at this time, please try "
            "again.",
        ),
        (
            "1.23",
            409,
            'configmaps "taken" already exists, the server was not able to generate a unique name '
            "for the object",
        ),
    ],
)
async def test_a_taken_name_beside_a_prefix(release: str, code: int, message: str) -> None:
    api = await start(release=release)
    both = {"metadata": {"name": "taken", "generateName": "g-"}}
    await api.ok("POST", CM, both)
    status, answer = await api.call("POST", CM, both)
    assert (status, answer["message"]) == (code, message)
    await api.server.stop()


async def test_finalizers_hold_an_object_until_the_last_one_goes() -> None:
    async with run() as api:
        await api.ok("POST", CM, configmap("held", finalizers=["example.com/x"]))
        marked = await api.ok("DELETE", CM + "/held")
        assert marked["metadata"]["deletionTimestamp"]
        await api.ok("PATCH", CM + "/held", {"metadata": {"finalizers": None}}, media=MERGE)
        assert (await api.call("GET", CM + "/held"))[0] == 404


@pytest.mark.parametrize(
    ("node", "grace", "left"), [("", None, False), ("n1", None, True), ("n1", 0, False)]
)
async def test_pods_on_a_node_are_deleted_gracefully(
    node: str, grace: int | None, left: bool
) -> None:
    async with run() as api:
        pods = "/api/v1/namespaces/default/pods"
        spec = {
            "containers": [{"name": "c", "image": "i"}],
            "automountServiceAccountToken": False,
            **({"nodeName": node} if node else {}),
        }
        await api.ok(
            "POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}}
        )
        await api.ok("POST", pods, {"metadata": {"name": "p"}, "spec": spec})
        await api.ok(
            "DELETE", pods + "/p", None if grace is None else {"gracePeriodSeconds": grace}
        )
        status, pod = await api.call("GET", pods + "/p")
        assert (status == 200) is left
        if left:
            assert pod["metadata"]["deletionGracePeriodSeconds"] == 30


async def test_dry_run_answers_like_the_real_thing_and_keeps_nothing() -> None:
    async with run() as api:
        made = await api.ok("POST", CM + "?dryRun=All", configmap("dry"))
        assert made["metadata"]["uid"] and "resourceVersion" not in made["metadata"]
        assert (await api.call("GET", CM + "/dry"))[0] == 404


APPLY = "application/apply-patch+yaml"


def applied(version: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", **configmap("x", resourceVersion=version)}


async def test_apply_may_name_any_version_of_what_does_not_exist_and_only_the_newest_of_what_does() -> (
    None
):
    async with run() as api:
        path = CM + "/x?fieldManager=m"
        assert (await api.call("PATCH", path, applied("what"), media=APPLY))[0] == 500
        rehearsed = await api.ok("PATCH", path + "&dryRun=All", applied("1"), media=APPLY)
        assert rehearsed["metadata"]["resourceVersion"] == "1"
        made = await api.ok("PATCH", path, applied("1"), media=APPLY)
        version = made["metadata"]["resourceVersion"]
        assert version != "1"
        status, problem = await api.call("PATCH", path, applied("1"), media=APPLY)
        assert (status, problem["reason"]) == (409, "Conflict")
        assert "the object has been modified" in problem["message"]
        for known in (version, "0", ""):
            assert (await api.ok("PATCH", path, applied(known), media=APPLY))["metadata"][
                "resourceVersion"
            ] == version


@pytest.mark.parametrize(("version", "status"), [("1", 500), ("0", 201), ("what", 201), ("", 201)])
async def test_a_new_object_has_no_version(version: str, status: int) -> None:
    async with run() as api:
        assert (await api.call("POST", CM, configmap("x", resourceVersion=version)))[0] == status


async def test_an_update_that_creates_forgets_the_version() -> None:
    async with run() as api:
        path = "/api/v1/namespaces/default/endpoints/x"
        made = await api.ok("PUT", path, {"metadata": {"name": "x", "resourceVersion": "99999"}})
        assert int(made["metadata"]["resourceVersion"]) < 99999


async def test_status_and_spec_are_written_apart() -> None:
    async with run() as api:
        path = "/apis/apps/v1/namespaces/default/deployments"
        template = {
            "metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        }
        made = await api.ok(
            "POST",
            path,
            {
                "metadata": {"name": "d"},
                "status": {"replicas": 9},
                "spec": {
                    "replicas": 1,
                    "selector": {"matchLabels": {"a": "b"}},
                    "template": template,
                },
            },
        )
        assert made["status"] == {} and made["metadata"]["generation"] == 1
        status = await api.ok(
            "PATCH",
            path + "/d/status",
            {"spec": {"replicas": 5}, "status": {"replicas": 3}},
            media=MERGE,
        )
        assert (status["spec"]["replicas"], status["status"], status["metadata"]["generation"]) == (
            1,
            {"replicas": 3},
            1,
        )
        spec = await api.ok(
            "PATCH", path + "/d", {"spec": {"replicas": 5}, "status": {"replicas": 8}}, media=MERGE
        )
        assert (spec["spec"]["replicas"], spec["status"], spec["metadata"]["generation"]) == (
            5,
            {"replicas": 3},
            2,
        )


@pytest.mark.parametrize(
    ("level", "status", "warned"),
    [("Ignore", 201, False), ("Warn", 201, True), ("Strict", 400, False)],
)
async def test_unknown_fields(level: str, status: int, warned: bool) -> None:
    async with run() as api:
        answer = await api.send(
            "POST", f"{CM}?fieldValidation={level}", {"metadata": {"name": "u"}, "dta": {}}
        )
        assert answer.status == status
        assert (
            any(
                name == b"Warning" and b'unknown field \\"dta\\"' in value
                for name, value in answer.headers
            )
            is warned
        )


async def test_service_addresses_come_from_the_range_and_go_back() -> None:
    async with run() as api:
        path = "/api/v1/namespaces/default/services"
        made = await api.ok(
            "POST",
            path,
            {"metadata": {"name": "s"}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}},
        )
        address, port = made["spec"]["clusterIP"], made["spec"]["ports"][0]["nodePort"]
        assert address.startswith("10.96.") and 30000 <= port <= 32767
        same = {"metadata": {"name": "t"}, "spec": {"clusterIP": address, "ports": [{"port": 80}]}}
        status, problem = await api.call("POST", path, same)
        assert status == 422 and "provided IP is already allocated" in problem["message"]
        await api.ok("DELETE", path + "/s")
        assert (await api.ok("POST", path, same))["spec"]["clusterIP"] == address


async def test_a_failed_service_gives_its_address_back() -> None:
    async with run() as api:
        path = "/api/v1/namespaces/default/services"
        taken = {
            "metadata": {"name": "s"},
            "spec": {
                "type": "NodePort",
                "clusterIP": "10.96.7.7",
                "ports": [{"port": 80, "nodePort": 31000}],
            },
        }
        await api.ok("POST", path, taken)
        clash = {
            "metadata": {"name": "t"},
            "spec": {
                "type": "NodePort",
                "clusterIP": "10.96.7.8",
                "ports": [{"port": 80, "nodePort": 31000}],
            },
        }
        assert (await api.call("POST", path, clash))[0] == 422
        clash["spec"]["ports"] = [{"port": 80}]  # type: ignore[index]
        assert (await api.ok("POST", path, clash))["spec"]["clusterIP"] == "10.96.7.8"


@pytest.mark.parametrize(
    ("broken", "text"),
    [
        ({"kind": {}}, "no corresponding type for policy/v1beta1, Kind="),
        (
            {"metadata": {"name": "a", "creationTimestamp": []}},
            "json: cannot unmarshal array into Go value of type string",
        ),
    ],
)
async def test_an_applied_configuration_of_wrong_types_gets_the_reason(
    broken: dict[str, Any], text: str
) -> None:
    budgets = "/apis/policy/v1beta1/namespaces/default/poddisruptionbudgets"
    config = {
        "apiVersion": "policy/v1beta1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "a"},
    }

    async with run() as api:
        await api.ok("POST", budgets.replace("v1beta1", "v1"), {"metadata": {"name": "a"}})
        status, problem = await api.call(
            "PATCH",
            budgets + "/a?fieldManager=m",
            {**config, **broken},
            media="application/apply-patch+yaml",
        )
        assert status == 500 and problem["message"].endswith(text)


@pytest.mark.parametrize(
    ("media", "change", "status", "why"),
    [
        (
            MERGE,
            {"kind": "Namespace"},
            422,
            "converting (v1.Namespace) to (core.ConfigMap): unknown conversion",
        ),
        (
            MERGE,
            {"kind": "Nope"},
            422,
            'no kind "Nope" is registered for version "v1" in scheme '
            '"k8s.io/kubernetes/pkg/api/legacyscheme/scheme.go:30"',
        ),
        (MERGE, {"kind": None}, 200, ""),
        ("application/strategic-merge-patch+json", {"kind": "Secret", "apiVersion": "v2"}, 200, ""),
    ],
)
async def test_patching_the_kind(media: str, change: dict[str, Any], status: int, why: str) -> None:
    async with run() as api:
        await api.ok("POST", CM, configmap("a"))
        got, answer = await api.call("PATCH", CM + "/a", change, media=media)
        assert got == status
        if status == 200:
            assert (answer["kind"], answer["apiVersion"]) == ("ConfigMap", "v1")
        else:
            assert answer["message"].endswith(f": {why}")


async def test_nothing_is_deleted_across_namespaces() -> None:
    async with run() as api:
        await api.ok("POST", CM, configmap("a"))
        assert (await api.call("DELETE", "/api/v1/configmaps"))[0] == 405
        await api.ok("GET", CM + "/a")
