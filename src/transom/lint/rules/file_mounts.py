"""Mounts of single files, which Docker on Windows does not support."""

from __future__ import annotations

from transom.lint.rules.base import LintRule, pod_rule
from transom.windows.podchecks import secret_files, single_files

SINGLE_FILE = LintRule("single-file-mount", pod_rule(single_files))
SECRET = LintRule("secret-subpath", pod_rule(secret_files))
