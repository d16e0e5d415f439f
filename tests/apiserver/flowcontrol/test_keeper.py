"""Stored objects and the configuration in use are kept consistent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.apiserver.harness import Api, start

from transom.apiserver.core.context import UserInfo
from transom.apiserver.core.requestinfo import parse_request_info
from transom.kit.clock import VirtualClock
from transom.store.memory import MemoryStore

GROUP = "/apis/flowcontrol.apiserver.k8s.io/v1beta1"
SCHEMAS, LEVELS = GROUP + "/flowschemas", GROUP + "/prioritylevelconfigurations"
JANE = UserInfo("jane", ("system:authenticated",))
PODS = parse_request_info("GET", "/api/v1/pods")


@asynccontextmanager
async def run() -> AsyncIterator[Api]:
    api = await start()
    yield api
    await api.server.stop()


async def settle() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


def schema(level: str) -> dict[str, Any]:
    everything = {
        "verbs": ["*"],
        "apiGroups": ["*"],
        "resources": ["*"],
        "clusterScope": True,
        "namespaces": ["*"],
    }
    rule = {"subjects": [{"kind": "User", "user": {"name": "jane"}}], "resourceRules": [everything]}
    return {
        "metadata": {"name": "for-jane"},
        "spec": {
            "priorityLevelConfiguration": {"name": level},
            "matchingPrecedence": 50,
            "rules": [rule],
        },
    }


def level(name: str, shares: int) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {
            "type": "Limited",
            "limited": {"assuredConcurrencyShares": shares, "limitResponse": {"type": "Reject"}},
        },
    }


def dangling(obj: dict[str, Any]) -> tuple[str, str, str]:
    (condition,) = [c for c in obj["status"]["conditions"] if c["type"] == "Dangling"]
    return condition["status"], condition["reason"], condition["message"]


async def test_a_new_cluster_has_the_objects_of_1_20() -> None:
    async with run() as api:
        schemas = {o["metadata"]["name"]: o for o in (await api.ok("GET", SCHEMAS))["items"]}
        assert {
            n: (
                o["spec"]["priorityLevelConfiguration"]["name"],
                o["spec"]["matchingPrecedence"],
                (o["spec"].get("distinguisherMethod") or {}).get("type", ""),
            )
            for n, o in schemas.items()
        } == {
            "exempt": ("exempt", 1, ""),
            "probes": ("exempt", 2, ""),
            "system-leader-election": ("leader-election", 100, "ByUser"),
            "workload-leader-election": ("leader-election", 200, "ByUser"),
            "system-nodes": ("system", 500, "ByUser"),
            "kube-controller-manager": ("workload-high", 800, "ByNamespace"),
            "kube-scheduler": ("workload-high", 800, "ByNamespace"),
            "kube-system-service-accounts": ("workload-high", 900, "ByNamespace"),
            "service-accounts": ("workload-low", 9000, "ByUser"),
            "global-default": ("global-default", 9900, "ByUser"),
            "catch-all": ("catch-all", 10000, "ByUser"),
        }
        for obj in schemas.values():
            name = obj["spec"]["priorityLevelConfiguration"]["name"]
            text = (
                "This FlowSchema references the PriorityLevelConfiguration object named "
                f'"{name}" and it exists'
            )
            assert dangling(obj) == ("False", "Found", text)
        levels = {o["metadata"]["name"]: o["spec"] for o in (await api.ok("GET", LEVELS))["items"]}
        assert {
            n: s.get("limited", {}).get("assuredConcurrencyShares") for n, s in levels.items()
        } == {
            "exempt": None,
            "catch-all": 5,
            "system": 30,
            "leader-election": 10,
            "workload-high": 40,
            "workload-low": 100,
            "global-default": 20,
        }


async def test_a_schema_comes_into_force_and_says_when_its_level_is_missing() -> None:
    async with run() as api:
        flows = api.server.flows
        await api.ok("POST", SCHEMAS, schema("mine"))
        await settle()
        obj = await api.ok("GET", SCHEMAS + "/for-jane")
        text = (
            'This FlowSchema references the PriorityLevelConfiguration object named "mine" but '
            "there is no such object"
        )
        assert dangling(obj) == ("True", "NotFound", text)
        assert flows.find(JANE, PODS).schema.name == "global-default"
        await api.ok("POST", LEVELS, level("mine", 100))
        await settle()
        assert dangling(await api.ok("GET", SCHEMAS + "/for-jane"))[0] == "False"
        assert flows.find(JANE, PODS).level.name == "mine" and flows.levels["mine"].limit == 197
        stored = await api.ok("GET", LEVELS + "/mine")
        stored["spec"]["limited"]["assuredConcurrencyShares"] = 1
        await api.ok("PUT", LEVELS + "/mine", stored)
        await settle()
        assert flows.levels["mine"].limit == 3
        await api.ok("DELETE", LEVELS + "/mine")
        await settle()
        assert flows.find(JANE, PODS).schema.name == "global-default"
        assert dangling(await api.ok("GET", SCHEMAS + "/for-jane"))[0] == "True"


async def test_mandatory_objects_stay_in_force_and_come_back_suggested_ones_do_not() -> None:
    async with run() as api:
        for target in (
            SCHEMAS + "/exempt",
            LEVELS + "/exempt",
            LEVELS + "/catch-all",
            SCHEMAS + "/probes",
        ):
            await api.ok("DELETE", target)
        await settle()
        admin = UserInfo("a", ("system:masters",))
        assert api.server.flows.find(admin, PODS).level.limit == 0
        await api.clock.run_for(61)
        await settle()
        for target in (SCHEMAS + "/exempt", LEVELS + "/exempt", LEVELS + "/catch-all"):
            await api.ok("GET", target)
        assert (await api.call("GET", SCHEMAS + "/probes"))[0] == 404


async def test_a_restart_leaves_the_administrators_choice_alone() -> None:
    clock = VirtualClock()
    store = MemoryStore(clock)
    api = await start(store, clock)
    await api.ok("DELETE", SCHEMAS + "/global-default")
    second = await start(_Started(store), clock)
    assert (await second.call("GET", SCHEMAS + "/global-default"))[0] == 404
    await api.server.stop()


class _Started:
    """A store that runs already, so that a second server can take it over."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def start(self) -> None:
        return


FLOWCONTROL = "/apis/flowcontrol.apiserver.k8s.io"
ALWAYS = {
    "exempt",
    "probes",
    "system-leader-election",
    "system-nodes",
    "kube-controller-manager",
    "kube-scheduler",
    "kube-system-service-accounts",
    "service-accounts",
    "global-default",
    "catch-all",
}


@pytest.mark.parametrize(
    ("release", "version", "more"),
    [
        ("1.21", "v1beta1", {"workload-leader-election"}),
        ("1.22", "v1beta1", {"workload-leader-election", "system-node-high"}),
        ("1.23", "v1beta2", {"workload-leader-election", "system-node-high"}),
        (
            "1.24",
            "v1beta2",
            {"workload-leader-election", "system-node-high", "endpoint-controller"},
        ),
        (
            "1.28",
            "v1beta3",
            {"workload-leader-election", "system-node-high", "endpoint-controller"},
        ),
        ("1.32", "v1", {"workload-leader-election", "system-node-high", "endpoint-controller"}),
        ("1.36", "v1", {"system-node-high"}),
    ],
)
async def test_a_new_cluster_has_the_objects_of_its_release(
    release: str, version: str, more: set[str]
) -> None:
    api = await start(release=release)
    await settle()
    found = (await api.ok("GET", f"{FLOWCONTROL}/{version}/flowschemas"))["items"]
    schemas = {obj["metadata"]["name"]: obj for obj in found}
    assert set(schemas) == ALWAYS | more
    for obj in schemas.values():
        fields = obj["metadata"]["managedFields"]
        assert {one["apiVersion"] for one in fields} == {f"flowcontrol.apiserver.k8s.io/{version}"}
        applied = release not in ("1.21", "1.22", "1.23", "1.24")
        consumer = "api-priority-and-fairness-config-consumer-v1"
        (one,) = [one for one in fields if one["manager"] == consumer]
        assert one["operation"] == ("Apply" if applied else "Update")
        assert dangling(obj)[0] == "False"
    (rule,) = schemas["system-leader-election"]["spec"]["rules"]
    resources = [name for one in rule["resourceRules"] for name in one["resources"]]
    by_lease = release not in ("1.21", "1.22", "1.23")
    assert resources == (["leases"] if by_lease else ["endpoints", "configmaps", "leases"])
    await api.server.stop()


@pytest.mark.parametrize(
    ("release", "version", "shares", "exempt"),
    [
        ("1.25", "v1beta2", {"assuredConcurrencyShares": 100}, None),
        ("1.27", "v1beta3", {"nominalConcurrencyShares": 100, "lendablePercent": 90}, None),
        (
            "1.28",
            "v1beta3",
            {"nominalConcurrencyShares": 100, "lendablePercent": 90},
            {"nominalConcurrencyShares": 0, "lendablePercent": 0},
        ),
    ],
)
async def test_levels_lend_seats_since_1_26(
    release: str, version: str, shares: dict[str, int], exempt: dict[str, int] | None
) -> None:
    api = await start(release=release)
    levels = f"{FLOWCONTROL}/{version}/prioritylevelconfigurations"
    limited = (await api.ok("GET", f"{levels}/workload-low"))["spec"]["limited"]
    limited.pop("limitResponse")
    assert limited == shares
    assert (await api.ok("GET", f"{levels}/exempt"))["spec"].get("exempt") == exempt
    await api.server.stop()


async def test_since_1_22_suggested_objects_are_kept_up_to_date() -> None:
    api = await start(release="1.36")
    schemas = f"{FLOWCONTROL}/v1/flowschemas"
    merge = "application/merge-patch+json"
    own = {"metadata": {"annotations": {"apf.kubernetes.io/autoupdate-spec": "false"}}}
    change = {"spec": {"matchingPrecedence": 7}}
    await api.ok("PATCH", f"{schemas}/service-accounts", change, media=merge)
    await api.ok("PATCH", f"{schemas}/kube-scheduler", {**own, **change}, media=merge)
    await api.ok("PATCH", f"{schemas}/catch-all", own, media=merge)
    await api.ok("DELETE", f"{schemas}/probes")
    unwanted = schema("exempt")
    unwanted["metadata"]["annotations"] = {"apf.kubernetes.io/autoupdate-spec": "true"}
    await api.ok("POST", schemas, unwanted)
    await settle()
    await api.clock.run_for(61)
    await settle()
    found = {obj["metadata"]["name"]: obj for obj in (await api.ok("GET", schemas))["items"]}
    assert "probes" in found and "for-jane" not in found
    precedence = {name: obj["spec"]["matchingPrecedence"] for name, obj in found.items()}
    assert (precedence["service-accounts"], precedence["kube-scheduler"]) == (9000, 7)
    notes = {name: obj["metadata"]["annotations"] for name, obj in found.items()}
    assert notes["catch-all"] == {"apf.kubernetes.io/autoupdate-spec": "true"}
    assert notes["kube-scheduler"] == {"apf.kubernetes.io/autoupdate-spec": "false"}
    await api.server.stop()


async def test_a_restart_changes_nothing_and_an_upgrade_replaces_the_objects() -> None:
    clock = VirtualClock()
    store = MemoryStore(clock)
    first = await start(store, clock, release="1.33")
    await settle()
    schemas = f"{FLOWCONTROL}/v1/flowschemas"
    before = (await first.ok("GET", schemas))["items"]
    again = await start(_Started(store), clock, release="1.33")
    await clock.run_for(61)
    await settle()
    assert (await again.ok("GET", schemas))["items"] == before
    newer = await start(_Started(store), clock, release="1.34")
    names = {obj["metadata"]["name"] for obj in (await newer.ok("GET", schemas))["items"]}
    assert {obj["metadata"]["name"] for obj in before} - names == {
        "endpoint-controller",
        "workload-leader-election",
    }
    await first.server.stop()


async def test_v1beta2_has_assured_shares_as_v1beta1() -> None:
    api = await start(release="1.24")
    levels = FLOWCONTROL + "/{}/prioritylevelconfigurations"
    await api.ok("POST", levels.format("v1beta2"), level("mine", 7))
    unset = level("other", 0)
    del unset["spec"]["limited"]["assuredConcurrencyShares"]
    await api.ok("POST", levels.format("v1beta2"), unset)
    for version in ("v1beta1", "v1beta2"):
        for name, shares in (("mine", 7), ("other", 30)):
            found = await api.ok("GET", f"{levels.format(version)}/{name}")
            assert found["spec"]["limited"]["assuredConcurrencyShares"] == shares
            assert "nominalConcurrencyShares" not in found["spec"]["limited"]
    status, found = await api.call("POST", levels.format("v1beta2"), level("negative", -1))
    assert status == 422
    assert (
        "spec.limited.assuredConcurrencyShares: Invalid value: -1: must be positive"
        in (found["message"])
    )
    await api.server.stop()
