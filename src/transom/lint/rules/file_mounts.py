"""Mounts of single files, which Docker on Windows does not support, and mounts that hide C:."""

from __future__ import annotations

from transom.lint.rules.base import LintRule, pod_rule
from transom.windows.podchecks import secret_files, single_files, system_drive_mounts

SINGLE_FILE = LintRule("single-file-mount", pod_rule(single_files))
SECRET = LintRule("secret-subpath", pod_rule(secret_files))
SYSTEM_DRIVE = LintRule("system-drive-mount", pod_rule(system_drive_mounts))
