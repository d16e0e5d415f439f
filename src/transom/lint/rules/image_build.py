"""Images of a different Windows build than the node's, or than that of some nodes a pod selects."""

from __future__ import annotations

from transom.lint.rules.base import LintRule, pod_rule
from transom.windows.podchecks import build_selector, image_build

RULE = LintRule("image-build", pod_rule(image_build))
BUILD_SELECTOR = LintRule("build-selector", pod_rule(build_selector))
