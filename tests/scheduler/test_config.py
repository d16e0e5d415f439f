"""The configuration file: what it changes, and what it says about mistakes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from transom.scheduler.config import decode_scheduler_config, load_scheduler_config
from transom.scheduler.default_plugins import DEFAULT_PLUGINS
from transom.scheduler.errors import SchedulerConfigError
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
