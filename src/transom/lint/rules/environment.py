"""Environment variables whose names differ only in case."""

from __future__ import annotations

from transom.lint.rules.base import LintRule, pod_rule
from transom.windows.podchecks import env_case

RULE = LintRule("env-case", pod_rule(env_case))
