"""Plugins of the user: loaded from a file, enabled by a configuration, called by the scheduler."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import ContextFactory

from transom.scheduler.config import decode_scheduler_config
from transom.scheduler.errors import SchedulerConfigError
from transom.scheduler.out_of_tree import load_plugins

from .conftest import Cluster
from .objects import node, pod

EXAMPLE = Path(__file__).parents[2] / "docs/seams/examples/pod_group.py"
CONFIG = {
    "apiVersion": "kubescheduler.config.k8s.io/v1beta1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [
        {
            "plugins": {
                "filter": {"enabled": [{"name": "PodGroup"}]},
                "permit": {"enabled": [{"name": "PodGroup"}]},
            },
            "pluginConfig": [{"name": "PodGroup", "args": {"minMembers": 3, "timeoutSeconds": 20}}],
        }
    ],
}
GROUP = {"example.org/pod-group": "train"}


def start(cluster: Cluster) -> None:
    plugins = load_plugins([f"{EXAMPLE}:PodGroup"])
    cluster.start(config=decode_scheduler_config(CONFIG), out_of_tree_registry=plugins)


async def test_the_example_binds_a_group_when_it_is_complete(
    running_cluster: ContextFactory,
) -> None:
    async with running_cluster(started=False) as cluster:
        start(cluster)
        await cluster.add_node(node("a"))
        await cluster.add_node(node("b", cpu="100", labels={"example.org/no-groups": ""}))
        for name in ("m1", "m2"):
            await cluster.add_pod(pod(name, cpu="1", labels=GROUP))
        await cluster.add_pod(pod("alone", cpu="1"))
        await cluster.settle(3)
        assert await cluster.node_of("alone") == "b"
        assert [await cluster.node_of(name) for name in ("m1", "m2")] == ["", ""]
        await cluster.add_pod(pod("m3", cpu="1", labels=GROUP))
        await cluster.settle()
        assert [await cluster.node_of(name) for name in ("m1", "m2", "m3")] == ["a"] * 3


async def test_the_example_gives_up_after_its_timeout(running_cluster: ContextFactory) -> None:
    async with running_cluster(started=False) as cluster:
        start(cluster)
        await cluster.add_node(node("a"))
        await cluster.add_pod(pod("m1", labels=GROUP))
        await cluster.settle(21)
        (condition,) = (await cluster.pod("m1"))["status"]["conditions"]
        assert condition["message"] == (
            'pod "m1" rejected while waiting on permit: '
            "rejected due to timeout after waiting 20s at plugin PodGroup"
        )


async def test_the_example_explains_why_a_node_is_rejected(running_cluster: ContextFactory) -> None:
    async with running_cluster(started=False) as cluster:
        start(cluster)
        await cluster.add_node(node("b", labels={"example.org/no-groups": ""}))
        await cluster.add_pod(pod("m1", labels=GROUP))
        await cluster.settle()
        (condition,) = (await cluster.pod("m1"))["status"]["conditions"]
        assert condition["message"] == (
            "0/1 nodes are available: 1 node(s) did not accept pod groups."
        )


@pytest.mark.parametrize(
    ("content", "reference", "text"),
    [
        ("", "plugin.py", "must be FILE.py:CLASS or MODULE:CLASS"),
        ("", "missing.py:Plugin", "cannot load plugin"),
        ("", "no_such_module:Plugin", "cannot load plugin"),
        ("1 +", "plugin.py:Plugin", "SyntaxError"),
        ("Plugin = 1", "plugin.py:Plugin", "has no scheduler plugin 'Plugin'"),
        ("class Plugin: name = 'X'", "plugin.py:Plugin", "has no scheduler plugin 'Plugin'"),
        (
            "from transom.scheduler.framework import FilterPlugin\n"
            "class Plugin(FilterPlugin): pass",
            "plugin.py:Plugin",
            "has no name",
        ),
    ],
)
def test_what_cannot_be_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, reference: str, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plugin.py").write_text(content)
    with pytest.raises(SchedulerConfigError) as error:
        load_plugins([reference])
    assert text in str(error.value)


def test_two_plugins_with_the_same_name() -> None:
    reference = f"{EXAMPLE}:PodGroup"
    with pytest.raises(SchedulerConfigError, match="a plugin named PodGroup already exists"):
        load_plugins([reference, reference])
