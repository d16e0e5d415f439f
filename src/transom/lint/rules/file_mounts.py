"""Mounts of single files, which Docker on Windows cannot make."""

from __future__ import annotations

from transom.lint.rules.base import Rule, of_pods
from transom.windows.podchecks import secret_files, single_files

SINGLE_FILE = Rule("single-file-mount", of_pods(single_files))
SECRET = Rule("secret-subpath", of_pods(secret_files))
