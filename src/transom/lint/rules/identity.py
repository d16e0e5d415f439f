"""Users that a pod forbids itself."""

from __future__ import annotations

from transom.lint.rules.base import Rule, of_pods
from transom.windows.podchecks import run_as_non_root

RULE = Rule("run-as-non-root", of_pods(run_as_non_root))
