"""Windows base images without a build tag: they have no `latest` tag."""

from __future__ import annotations

from collections.abc import Iterator

from transom.lint.context import LintContext
from transom.lint.findings import RuleMatch
from transom.lint.rules.base import LintRule
from transom.windows.images import split_image_name
from transom.windows.records import WindowsLimit

_BASES = frozenset(
    (
        "mcr.microsoft.com/windows",
        "mcr.microsoft.com/windows/servercore",
        "mcr.microsoft.com/windows/nanoserver",
        "mcr.microsoft.com/windows/server",
    )
)


def find_base_tags(context: LintContext) -> Iterator[RuleMatch]:
    for workload in context.windows:
        for steps, container in workload.containers():
            image = container.get("image")
            if not isinstance(image, str) or "@" in image:
                continue
            repository, tag = split_image_name(image)
            if repository in _BASES and tag in ("", "latest"):
                yield RuleMatch(workload.obj, (*steps, "image"), f"{repository} has no tag latest")


RULE = LintRule(
    "base-tags",
    find_base_tags,
    WindowsLimit(
        id="WIN-LINT-005",
        title="Base images of Windows have no tag latest",
        statement="Each tag of a base image is for one build, and the registry has none named latest.",
        effect="fails",
        remedy="Name the build of your nodes: ltsc2019, ltsc2022.",
        checklist=("OS-25",),
        severity="error",
        reason="ErrImagePull",
        message="manifest unknown",
    ),
)
