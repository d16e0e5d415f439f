"""RuntimeClasses that Docker does not support."""

from __future__ import annotations

from transom.lint.rules.base import LintRule, pod_rule
from transom.windows.podchecks import runtime_handler

RULE = LintRule("runtime-handler", pod_rule(runtime_handler))
