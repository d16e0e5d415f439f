"""RuntimeClasses that Docker does not know."""

from __future__ import annotations

from transom.lint.rules.base import Rule, of_pods
from transom.windows.podchecks import runtime_handler

RULE = Rule("runtime-handler", of_pods(runtime_handler))
