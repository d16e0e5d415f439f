"""Discovery documents, compared with those recorded from a real 1.20 server, if the recordings are
available.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from transom.apiserver.core import discovery
from transom.apiserver.core.discovery import (
    DocumentCache,
    ServedVersion,
    served_versions,
    version_key,
)
from transom.machinery.kinds import KINDS, SCALE, STATUS, Kind

RECORDED = Path(__file__).parents[4] / "shared/golden/expected/1.20/api-discovery.json"
# What we serve beyond 1.20; docs/differences.md says why.
ADDED = {"batch/v1": {"cronjobs", "cronjobs/status"}, "storage.k8s.io/v1": {"csistoragecapacities"}}
ADDED_VERSIONS = {
    ("autoscaling", "v2"),
    ("discovery.k8s.io", "v1"),
    ("flowcontrol.apiserver.k8s.io", "v1"),
    ("policy", "v1"),
}

ALL = served_versions(KINDS)
GIZMO = Kind(
    "a.example",
    "Gizmo",
    "gizmos",
    versions=("v1", "v1alpha1"),
    namespaced=False,
    short=("gz",),
    categories=("all",),
    singular="gizmo",
    custom=True,
    version_subresources=(("v1", (STATUS, SCALE)),),
)


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    if not RECORDED.exists():
        pytest.skip("no recorded answers here")
    answers: dict[str, Any] = json.loads(RECORDED.read_bytes())
    return answers


def test_resource_lists_are_those_of_1_20(recorded: dict[str, Any]) -> None:
    compared = 0
    for answer in recorded["roots"].values():
        body = answer.get("body")
        if not isinstance(body, dict) or body.get("kind") != "APIResourceList":
            continue
        name, _, version = body["groupVersion"].rpartition("/")
        ours = discovery.api_resource_list(ALL, name, version)
        assert ours is not None
        added = ADDED.get(body["groupVersion"], set())
        ours["resources"] = [r for r in ours["resources"] if r["name"] not in added]
        assert ours == body
        compared += 1
    assert compared > 15


def test_groups_are_those_of_1_20_in_its_order(recorded: dict[str, Any]) -> None:
    picked = recorded["roots"]["apis"]["body"]
    theirs = [
        (g["name"], v["version"])
        for i in range(20)
        for g in [picked[f"groups.{i}"]]
        for v in g["versions"]
    ]
    ours = [
        (g["name"], v["version"])
        for g in discovery.api_group_list(ALL)["groups"]
        for v in g["versions"]
    ]
    assert [gv for gv in ours if gv not in ADDED_VERSIONS] == theirs
    preferred = {
        g["name"]: g["preferredVersion"]["version"] for g in discovery.api_group_list(ALL)["groups"]
    }
    for i in range(20):
        group = picked[f"groups.{i}"]
        assert preferred[group["name"]] == group["preferredVersion"]["version"]


def test_group_document(recorded: dict[str, Any]) -> None:
    assert discovery.api_group(ALL, "apps") == recorded["roots"]["group-apps"]["body"]
    assert discovery.api_group(ALL, "nope") is None
    assert discovery.api_group(ALL, "") is None


def test_custom_kind(recorded: dict[str, Any]) -> None:
    everything = served_versions([*KINDS, GIZMO])
    for version, step in (("v1", "ready"), ("v1alpha1", "old-version")):
        theirs = json.loads(
            json.dumps(recorded["custom-kind"][step]["body"]).replace("RND.example", "a.example")
        )
        ours = discovery.api_resource_list(everything, "a.example", version)
        assert ours is not None
        main = dict(ours["resources"][0])  # the versions of a kind share it
        assert main.pop("storageVersionHash")
        assert {**ours, "resources": [main, *ours["resources"][1:]]} == theirs


def test_equal_priority_orders_by_registration_name() -> None:
    other = [
        ServedVersion("z.example", "v1", 1000, 100),
        ServedVersion("b.example", "v2", 2000, 100),
    ]
    late = Kind("c.example", "C", "cs", versions=("v1alpha1", "v1beta1"), custom=True)
    names = [
        g["name"] for g in discovery.api_group_list(served_versions([GIZMO, late], other))["groups"]
    ]
    assert names == ["b.example", "a.example", "z.example", "c.example"]
    versions = discovery.api_group(served_versions([late]), "c.example")
    assert versions is not None and versions["preferredVersion"]["version"] == "v1beta1"


def test_version_order() -> None:
    mixed = ["v1alpha1", "foo1", "v10", "v2beta1", "v1", "v1beta2", "v11alpha2", "v2"]
    assert sorted(mixed, key=version_key) == [
        "v10",
        "v2",
        "v1",
        "v2beta1",
        "v1beta2",
        "v11alpha2",
        "v1alpha1",
        "foo1",
    ]


def test_aggregated_documents() -> None:
    core = discovery.aggregated_list(ALL, core=True, version="v2beta1")
    assert core["apiVersion"] == "apidiscovery.k8s.io/v2beta1"
    (group,) = core["items"]
    pods = next(r for r in group["versions"][0]["resources"] if r["resource"] == "pods")
    assert pods["responseKind"] == {"group": "", "version": "", "kind": "Pod"}
    assert (pods["scope"], pods["singularResource"], pods["shortNames"]) == (
        "Namespaced",
        "pod",
        ["po"],
    )
    subs = {s["subresource"]: s for s in pods["subresources"]}
    assert subs["eviction"]["responseKind"]["group"] == "policy"
    assert "ephemeralcontainers" in subs
    stale = served_versions([], [ServedVersion("x.example", "v1", 1, 1, fresh=False)])
    assert (
        discovery.aggregated_list(stale, core=False)["items"][0]["versions"][0]["freshness"]
        == "Stale"
    )


def test_version_info_and_roots() -> None:
    assert discovery.version_info()["gitVersion"] == "v1.20.15"
    assert discovery.version_info("1.17")["minor"] == "17"
    assert "emulationMinor" not in discovery.version_info("1.32")
    newer = discovery.version_info("1.33")
    assert (newer["emulationMinor"], newer["minCompatibilityMinor"]) == ("33", "32")
    paths = discovery.root_paths(ALL, {"readyz": ["ping"]})["paths"]
    assert {"/api/v1", "/apis/apps", "/apis/apps/v1", "/readyz/ping"} <= set(
        paths
    ) and paths == sorted(paths)


def test_cache_forgets_with_the_generation() -> None:
    cache, built = DocumentCache(), []

    def build() -> dict[str, int]:
        built.append(1)
        return {"n": len(built)}

    first = cache.get(1, "k", build)
    assert first == cache.get(1, "k", build) and len(built) == 1
    second = cache.get(2, "k", build)
    assert first is not None and second is not None and first.etag != second.etag
    assert cache.get(2, "none", lambda: None) is None
