"""Environment variables whose names differ in case only."""

from __future__ import annotations

from transom.lint.rules.base import Rule, of_pods
from transom.windows.podchecks import env_case

RULE = Rule("env-case", of_pods(env_case))
