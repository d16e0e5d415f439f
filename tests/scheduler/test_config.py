"""The configuration file: what it changes, and its error messages."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from transom.machinery.releases import Release
from transom.machinery.releases.features import FeatureSet
from transom.scheduler.config import decode_scheduler_config, load_scheduler_config
from transom.scheduler.default_plugins import DEFAULT_PLUGINS
from transom.scheduler.errors import SchedulerConfigError
from transom.scheduler.multi_point import expand_multi_point
from transom.scheduler.plugins.registry import in_tree_registry
from transom.scheduler.runtime import EXTENSION_POINTS

from .conftest import SchedulerHarness
from .objects import node, pod

HEAD = {"apiVersion": "kubescheduler.config.k8s.io/v1beta1", "kind": "KubeSchedulerConfiguration"}


def one(**profile: Any) -> dict[str, Any]:
    return {**HEAD, "profiles": [profile]}


def args(plugin: str, **values: Any) -> dict[str, Any]:
    return one(pluginConfig=[{"name": plugin, "args": values}])


def test_every_default_plugin_exists() -> None:
    assert [*DEFAULT_PLUGINS] == [*EXTENSION_POINTS]
    assert {name for rows in DEFAULT_PLUGINS.values() for name, _ in rows} <= set(
        in_tree_registry({})
    )


def test_defaults() -> None:
    config = decode_scheduler_config(dict(HEAD))
    assert [p.scheduler_name for p in config.profiles] == ["default-scheduler"]
    assert (config.initial_backoff, config.max_backoff, config.percentage_of_nodes_to_score) == (
        1,
        10,
        0,
    )
    assert {k: v for k, v in config.profiles[0].plugins.items() if v} == {
        k: v for k, v in DEFAULT_PLUGINS.items() if v
    }


def test_enabled_comes_after_what_is_left_of_the_defaults() -> None:
    config = decode_scheduler_config(
        one(
            plugins={
                "score": {
                    "disabled": [
                        {"name": "ImageLocality"},
                        {"name": "NodeResourcesLeastAllocated"},
                    ],
                    "enabled": [{"name": "NodeResourcesMostAllocated", "weight": 5}],
                },
                "filter": {"disabled": [{"name": "*"}], "enabled": [{"name": "NodePorts"}]},
            }
        )
    )
    enabled = config.profiles[0].plugins
    assert enabled["filter"] == (("NodePorts", 0),)
    assert enabled["score"][-1] == ("NodeResourcesMostAllocated", 5)
    assert {"ImageLocality", "NodeResourcesLeastAllocated"}.isdisjoint(
        name for name, _ in enabled["score"]
    )


@pytest.mark.parametrize(
    ("document", "text"),
    [
        (
            {**HEAD, "apiVersion": "v1"},
            'no kind "KubeSchedulerConfiguration" is registered for version "v1"',
        ),
        ([], "not an object"),
        (
            {**HEAD, "percentageOfNodesToScore": 101},
            "percentageOfNodesToScore: Invalid value: 101: not in valid range [0-100]",
        ),
        (
            {**HEAD, "podInitialBackoffSeconds": 0},
            "podInitialBackoffSeconds: Invalid value: 0: must be greater than 0",
        ),
        (
            {**HEAD, "podInitialBackoffSeconds": 20},
            "podMaxBackoffSeconds: Invalid value: 10: must be greater than or equal to PodInitialBackoffSeconds",
        ),
        ({**HEAD, "surprise": 1}, 'unknown field "surprise"'),
        (
            {**HEAD, "profiles": [{"schedulerName": "a"}, {}]},
            "profiles[1].schedulerName: Required value",
        ),
        (
            {**HEAD, "profiles": [{"schedulerName": "a"}, {"schedulerName": "a"}]},
            "profiles[1].schedulerName: Duplicate value",
        ),
        (
            one(pluginConfig=[{"name": "NodeAffinity"}, {"name": "NodeAffinity"}]),
            "repeated config for plugin NodeAffinity",
        ),
        (
            args("NodeAffinity", kind="Other"),
            "args for plugin NodeAffinity were not of type NodeAffinityArgs",
        ),
        ({**HEAD, "extenders": [{"urlPrefix": "http://x"}]}, "extenders are not supported"),
    ],
)
def test_mistakes_in_the_file(document: Any, text: str) -> None:
    with pytest.raises(SchedulerConfigError) as problem:
        decode_scheduler_config(document)
    assert text in str(problem.value)


@pytest.mark.parametrize(
    ("document", "text"),
    [
        (
            one(plugins={"filter": {"enabled": [{"name": "Nothing"}]}}),
            'FilterPlugin "Nothing" does not exist',
        ),
        (
            one(plugins={"filter": {"enabled": [{"name": "ImageLocality"}]}}),
            'plugin "ImageLocality" does not extend FilterPlugin',
        ),
        (
            one(plugins={"filter": {"enabled": [{"name": "NodeName"}]}}),
            'plugin "NodeName" already registered as "FilterPlugin"',
        ),
        (
            one(plugins={"bind": {"disabled": [{"name": "*"}]}}),
            "at least one bind plugin is needed",
        ),
        (
            args("InterPodAffinity", hardPodAffinityWeight=101),
            "hardPodAffinityWeight: Invalid value: 101: not in valid range",
        ),
        (
            args("NodeResourcesLeastAllocated", resources=[{"name": "cpu", "weight": 0}]),
            "resource Weight of cpu should be a positive value, got 0",
        ),
        (
            args("DefaultPreemption", minCandidateNodesPercentage=0, minCandidateNodesAbsolute=0),
            "cannot be zero",
        ),
        (args("VolumeBinding", bindTimeoutSeconds=0), "invalid BindTimeoutSeconds: 0"),
        (
            args("PodTopologySpread", defaultConstraints=[{"maxSkew": 0}]),
            "maxSkew: Invalid value: 0: must be greater than zero",
        ),
        (
            args("PodTopologySpread", defaultingType="System", defaultConstraints=[{"maxSkew": 1}]),
            "are not empty",
        ),
        (
            args(
                "NodeAffinity",
                addedAffinity={
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "x", "operator": "Sometimes"}]}
                        ]
                    }
                },
            ),
            '"Sometimes" is not a valid node selector operator',
        ),
        (args("NodeAffinity", nothing=1), 'unknown field "nothing"'),
    ],
)
def test_mistakes_in_plugins(document: Any, text: str) -> None:
    async def main() -> None:
        SchedulerHarness({k: v for k, v in document.items() if k not in HEAD})

    with pytest.raises(SchedulerConfigError) as problem:
        asyncio.run(main())
    assert text in str(problem.value)


async def test_profiles_decide_for_their_own_pods(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.yaml"
    file.write_text("""
apiVersion: kubescheduler.config.k8s.io/v1beta1
kind: KubeSchedulerConfiguration
percentageOfNodesToScore: 50
profiles:
- schedulerName: default-scheduler
- schedulerName: gpu
  pluginConfig:
  - name: NodeAffinity
    args:
      apiVersion: kubescheduler.config.k8s.io/v1beta1
      kind: NodeAffinityArgs
      addedAffinity:
        requiredDuringSchedulingIgnoredDuringExecution:
          nodeSelectorTerms:
          - matchExpressions: [{key: gpu, operator: Exists}]
- schedulerName: anywhere
  plugins: {filter: {disabled: [{name: "*"}]}}
""")
    config = load_scheduler_config(file)
    assert [p.scheduler_name for p in config.profiles] == ["default-scheduler", "gpu", "anywhere"]

    import yaml

    document = yaml.safe_load(file.read_text())
    harness = SchedulerHarness({k: v for k, v in document.items() if k not in HEAD})
    harness.nodes(node("a", cpu="1"))
    assert harness.decide(pod("p")) == "a"
    assert harness.decide(pod("p", schedulerName="gpu")) == (
        "0/1 nodes are available: 1 node(s) didn't match scheduler-enforced node affinity."
    )
    assert harness.decide(pod("p", cpu="64", schedulerName="anywhere")) == "a"


# ---- versions ----


def later(minor: int) -> FeatureSet:
    return FeatureSet(Release(1, minor))


@pytest.mark.parametrize(
    ("version", "minor", "known"),
    [
        ("v1beta1", 22, True),
        ("v1beta1", 23, False),
        ("v1beta2", 21, False),
        ("v1beta2", 27, True),
        ("v1beta3", 28, True),
        ("v1beta3", 29, False),
        ("v1", 24, False),
        ("v1", 37, True),
    ],
)
def test_each_release_reads_its_versions(version: str, minor: int, known: bool) -> None:
    document = {**HEAD, "apiVersion": f"kubescheduler.config.k8s.io/{version}"}
    if known:
        assert decode_scheduler_config(document, later(minor)).profiles
    else:
        with pytest.raises(SchedulerConfigError, match="no kind"):
            decode_scheduler_config(document, later(minor))


V1 = {**HEAD, "apiVersion": "kubescheduler.config.k8s.io/v1"}


def points_of(profile: dict[str, Any]) -> dict[str, dict[str, int]]:
    found = decode_scheduler_config({**V1, "profiles": [profile]}, later(36)).profiles[0]
    expanded = expand_multi_point(found.plugins, found.multi_point, in_tree_registry({}))
    return {point: dict(rows) for point, rows in expanded.items()}


def test_a_plugin_of_multi_point_is_enabled_wherever_it_can_be_used() -> None:
    found = points_of({"plugins": {"multiPoint": {"enabled": [{"name": "NodeOperatingSystem"}]}}})
    assert [point for point, rows in found.items() if "NodeOperatingSystem" in rows] == ["filter"]


def test_multi_point_disables_a_plugin_everywhere_and_a_point_only_there() -> None:
    found = points_of(
        {
            "plugins": {
                "multiPoint": {
                    "disabled": [{"name": "PodTopologySpread"}],
                    "enabled": [{"name": "InterPodAffinity", "weight": 7}],
                },
                "preScore": {"disabled": [{"name": "InterPodAffinity"}]},
            }
        }
    )
    assert not any("PodTopologySpread" in rows for rows in found.values())
    assert found["score"]["InterPodAffinity"] == 7
    assert "InterPodAffinity" in found["filter"]
    assert "InterPodAffinity" not in found["preScore"]


def test_the_scoring_strategy_of_node_resources_fit() -> None:
    strategy = {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 3}]}
    profile = {
        "pluginConfig": [{"name": "NodeResourcesFit", "args": {"scoringStrategy": strategy}}],
        "plugins": {"score": {"enabled": [{"name": "NodeResourcesFit", "weight": 4}]}},
    }
    assert points_of(profile)["score"]["NodeResourcesMostAllocated"] == 4
    found = decode_scheduler_config({**V1, "profiles": [profile]}, later(36)).profiles[0]
    assert found.args["NodeResourcesMostAllocated"] == {"resources": strategy["resources"]}
    assert "NodeResourcesLeastAllocated" not in dict(found.plugins["score"])


def test_addresses_are_fields_of_the_old_versions_only() -> None:
    with pytest.raises(SchedulerConfigError, match='unknown field "healthzBindAddress"'):
        decode_scheduler_config({**V1, "healthzBindAddress": "x"}, later(36))
    with pytest.raises(SchedulerConfigError, match=r'unknown field "profiles\[0\].plugins.multiP'):
        decode_scheduler_config(one(plugins={"multiPoint": {}}))
