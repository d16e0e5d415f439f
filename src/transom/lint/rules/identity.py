"""Pods whose user conflicts with their own security context, and sysctls that kubelets reject."""

from __future__ import annotations

from transom.lint.rules.base import LintRule, pod_rule
from transom.windows.podchecks import host_process_non_root, run_as_non_root, unsafe_sysctls

RULE = LintRule("run-as-non-root", pod_rule(run_as_non_root))
SYSCTLS = LintRule("unsafe-sysctls", pod_rule(unsafe_sysctls))
HOST_PROCESS = LintRule("host-process-non-root", pod_rule(host_process_non_root))
