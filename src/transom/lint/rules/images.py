"""Images for the wrong operating system: in a Windows pod, in a Linux pod, or for both in one
pod.
"""

from __future__ import annotations

from collections.abc import Iterator

from transom.lint.context import LintContext
from transom.lint.findings import RuleMatch
from transom.lint.rules.base import LintRule, pod_rule
from transom.windows.podchecks import images, linux_images, mixed_images
from transom.windows.records import WindowsLimit


def find_windows_on_linux(context: LintContext) -> Iterator[RuleMatch]:
    for workload in context.workloads:
        if (
            workload.verdict.os == "linux"
            and workload.verdict.pinned
            and not images(workload.spec, "linux")
        ):
            for steps, image in images(workload.spec, "windows"):
                yield RuleMatch(
                    workload.obj,
                    workload.steps + steps,
                    f"{image} is for Windows, but its pod goes to Linux nodes",
                )


MIXED = LintRule("mixed-images", pod_rule(mixed_images, windows=False))
LINUX_ON_WINDOWS = LintRule("image-os", pod_rule(linux_images))
WINDOWS_ON_LINUX = LintRule(
    "windows-image-on-linux",
    find_windows_on_linux,
    WindowsLimit(
        id="WIN-LINT-003",
        title="Windows containers do not run on Linux nodes",
        statement=(
            "A Linux node has no use for a Windows image: it finds no matching platform and "
            "cannot pull it."
        ),
        effect="fails",
        remedy="Select `kubernetes.io/os: windows`.",
        checklist=("OS-11",),
        severity="error",
        reason="ErrImagePull",
        message="no matching manifest for linux/amd64 in the manifest list entries",
    ),
)
