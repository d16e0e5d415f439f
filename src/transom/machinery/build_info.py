"""kubernetes_build_info, which every component of Kubernetes exports."""

from __future__ import annotations

from typing import Final

from transom.kit.prometheus import Family, Sample
from transom.machinery.releases import BUILDS, DEFAULT, Release
from transom.machinery.releases.metrics import metric_rules

_HELP: Final = (
    "A metric with a constant '1' value labeled by major, minor, git version, git commit, git tree "
    "state, build date, Go version, and compiler from which Kubernetes was built, and platform on "
    "which it is running."
)


def build_info(git_version: str, platform: str = "linux/amd64") -> Family:
    """`git_version` is the component's, such as v1.20.15."""
    major, minor = git_version.removeprefix("v").split(".")[:2]
    built = BUILDS.get(f"{major}.{minor}", BUILDS[str(DEFAULT)])
    labels = (
        ("build_date", built.date),
        ("compiler", "gc"),
        ("git_commit", built.commit),
        ("git_tree_state", "clean"),
        ("git_version", git_version),
        ("go_version", built.go),
        ("major", major),
        ("minor", minor),
        ("platform", platform),
    )
    stability = metric_rules(Release(int(major), int(minor))).build_info_stability
    return Family("kubernetes_build_info", "gauge", f"[{stability}] {_HELP}", [Sample(labels, 1)])
