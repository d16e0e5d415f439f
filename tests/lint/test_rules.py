"""The tables: every check has a rule, every rule has a limit; and what cases in files cannot show
well.
"""

from __future__ import annotations

import pytest
from tests.lint.helpers import ids, pod, report

from transom.lint.evaluate import evaluate_rules
from transom.lint.rules import OWN, RULES, rule_limits
from transom.windows.limits import LIMITS
from transom.windows.target_nodes import target_nodes_from_options, target_nodes_of_cluster


def test_every_check_of_the_registry_has_a_rule() -> None:
    checks = {limit.check for limit in LIMITS.values() if limit.check}
    assert checks <= {rule.check for rule in RULES}


def test_every_rule_has_limits_and_their_ids_are_their_own() -> None:
    assert all(rule_limits(rule) for rule in RULES)
    assert len({rule.check for rule in RULES}) == len(RULES)
    assert not set(OWN) & set(LIMITS)
    assert len(OWN) == sum(rule.limit is not None for rule in RULES)


@pytest.mark.parametrize(
    ("nodes", "severity"),
    [
        ({"runtime": "docker"}, "error"),
        ({"runtime": "containerd"}, "warning"),
        ({}, "error"),  # each runtime has its limit: the more severe one is reported
    ],
)
def test_what_depends_on_the_runtime(nodes: dict[str, str], severity: str) -> None:
    (finding,) = report(pod("  hostNetwork: true\n"), **nodes).findings
    assert finding.severity == severity


def test_uncertain_findings_are_less_severe() -> None:
    text = pod("    terminationMessagePath: 'C:\\x'\n")
    assert [f.severity for f in report(text, runtime="docker").findings] == ["warning"]
    (finding,) = report(text).findings
    assert (finding.severity, "with docker" in finding.consequence) == ("info", True)
    assert ids(text, runtime="containerd") == []


def test_a_release_without_docker_has_containerd() -> None:
    assert ids(pod("  terminationGracePeriodSeconds: 90\n"), release=(1, 24)) == []


def test_the_build_label_gives_the_build() -> None:
    text = (
        pod("")
        .replace("kubernetes.io/os: windows", "node.kubernetes.io/windows-build: 10.0.20348")
        .replace("example.com/app:1", "example.com/app:ltsc2019")
    )
    assert ids(text) == ["WIN-OS-004"]


def node(
    name: str, os: str, *, kernel: str = "", runtime: str = "", taints: tuple[str, ...] = ()
) -> dict[str, object]:
    return {
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/os": os, "node.kubernetes.io/windows-build": kernel[:10]},
        },
        "spec": {
            "taints": [{"key": key, "value": "windows", "effect": "NoSchedule"} for key in taints]
        },
        "status": {
            "nodeInfo": {
                "operatingSystem": os,
                "kernelVersion": kernel,
                "containerRuntimeVersion": runtime,
                "kubeletVersion": "v1.20.15",
            }
        },
    }


LIVE = target_nodes_of_cluster(
    [
        node("lin", "linux"),
        node(
            "old", "windows", kernel="10.0.17763.1697", runtime="docker://19.3.14", taints=("os",)
        ),
        node(
            "new", "windows", kernel="10.0.20348.587", runtime="containerd://1.6.0", taints=("os",)
        ),
    ]
)
TOLERATION = "  tolerations: [{key: os, value: windows, effect: NoSchedule}]\n"


def test_nodes_of_a_cluster_are_named() -> None:
    found = report(pod("  hostNetwork: true\n" + TOLERATION), target_nodes=LIVE).findings
    assert [(f.id, f.nodes) for f in found] == [
        ("WIN-POD-002", ("old",)),
        ("WIN-POD-003", ("new",)),
    ]


def test_taints_of_a_cluster_keep_linux_pods_off() -> None:
    loose = (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers: [{name: a, image: "
        "x}]\n"
    )
    assert ids(loose, target_nodes=LIVE) == []
    assert ids(loose + "  tolerations: [{operator: Exists}]\n", target_nodes=LIVE) == [
        "WIN-POD-011"
    ]


def test_a_pod_that_no_windows_node_takes() -> None:
    assert ids(pod(""), target_nodes=LIVE) == ["WIN-LINT-008"]  # the taint
    assert ids(
        pod(TOLERATION).replace("kubernetes.io/os: windows", "kubernetes.io/os: windows, pool: x"),
        target_nodes=LIVE,
    ) == ["WIN-LINT-008"]
    assert ids(pod(TOLERATION), target_nodes=target_nodes_of_cluster([node("lin", "linux")])) == [
        "WIN-LINT-008"
    ]
    assert ids(pod(TOLERATION), target_nodes=LIVE) == []


def test_an_image_for_one_of_several_builds_needs_a_build_selector() -> None:
    text = pod(TOLERATION).replace("example.com/app:1", "example.com/app:ltsc2022")
    assert ids(text, target_nodes=LIVE) == ["WIN-OS-013"]
    assert (
        ids(
            text.replace(
                "kubernetes.io/os: windows", "node.kubernetes.io/windows-build: 10.0.20348"
            ),
            target_nodes=LIVE,
        )
        == []
    )
    assert ids(
        text.replace("kubernetes.io/os: windows", "node.kubernetes.io/windows-build: 10.0.17763"),
        target_nodes=LIVE,
    ) == ["WIN-OS-004"]


def test_hyperv_and_docker_handlers() -> None:
    text = (
        "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: hyperv}\nhandler: "
        "runhcs-wcow-hypervisor\n---\n"
    ) + pod("  runtimeClassName: hyperv\n").replace("example.com/app:1", "example.com/app:ltsc2019")
    assert ids(text, build=20348, runtime="containerd") == []
    assert ids(text, build=20348, runtime="docker") == ["WIN-RUN-003"]


def test_a_default_of_the_namespace_is_a_limit() -> None:
    bare = pod("").replace("    resources: {limits: {memory: 1Gi}}\n", "")
    assert ids(bare) == ["WIN-RES-003"]
    limits = (
        "---\napiVersion: v1\nkind: LimitRange\nspec: {limits: [{type: Container, default: "
        "{memory: 1Gi}}]}\n"
    )
    assert ids(bare + limits) == []


def test_findings_need_no_document() -> None:
    """Those of a cluster's objects have paths, but no places."""
    from transom.lint.context import LintContext
    from transom.lint.objects import objects_of_cluster
    from transom.lint.sources import ManifestSource
    from transom.lint.text import SourceText

    value = {
        "metadata": {"name": "a"},
        "spec": {
            "nodeSelector": {"kubernetes.io/os": "windows"},
            "hostPID": True,
            "containers": [{"name": "a", "image": "x", "resources": {"limits": {"memory": "1Gi"}}}],
        },
    }
    obj = objects_of_cluster(ManifestSource("cluster", SourceText(""), "cluster"), "", "Pod", value)
    (finding,) = evaluate_rules(LintContext("cluster", [obj], target_nodes_from_options(), {}.get))
    assert (finding.id, finding.path, finding.place, finding.span) == (
        "WIN-POD-004",
        "spec.hostPID",
        (0, 0),
        None,
    )


def test_the_page_lists_lints_own_ids() -> None:
    import re
    from pathlib import Path

    from transom.lint.engine import NOT_YAML

    page = (Path(__file__).parents[2] / "docs" / "lint.md").read_text()
    assert re.findall(r"^\| (WIN-LINT-\d+) \|", page, re.MULTILINE) == sorted({NOT_YAML.id, *OWN})
