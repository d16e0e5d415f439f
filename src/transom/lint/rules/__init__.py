"""The rules in addition to the fields of the registry, in evaluation order. One small file each."""

from __future__ import annotations

from typing import Final

from transom.lint.rules import (
    base_tags,
    beta_labels,
    claimed_volumes,
    daemonset_os,
    dotted_names,
    environment,
    file_mounts,
    flannel,
    host_process,
    identity,
    image_build,
    images,
    linux_pods,
    network_policy,
    no_node,
    one_word,
    os_selector,
    pod_os,
    policies,
    resources,
    runtime_handler,
    selector_case,
    services,
    sidecars,
    token_owner,
    tolerate_everything,
)
from transom.lint.rules.base import LintRule
from transom.windows.limits import LIMITS
from transom.windows.records import WindowsLimit

RULES: Final[tuple[LintRule, ...]] = (
    # where pods are scheduled
    os_selector.RULE,
    daemonset_os.RULE,
    tolerate_everything.RULE,
    no_node.RULE,
    selector_case.RULE,
    beta_labels.RULE,
    pod_os.RULE,
    # what they run
    images.MIXED,
    images.LINUX_ON_WINDOWS,
    images.WINDOWS_ON_LINUX,
    image_build.RULE,
    image_build.BUILD_SELECTOR,
    base_tags.RULE,
    runtime_handler.RULE,
    host_process.RULE,
    linux_pods.RULE,
    identity.RULE,
    identity.HOST_PROCESS,
    identity.SYSCTLS,
    token_owner.RULE,
    one_word.RULE,
    sidecars.RULE,
    environment.RULE,
    dotted_names.RULE,
    file_mounts.SINGLE_FILE,
    file_mounts.SECRET,
    file_mounts.SYSTEM_DRIVE,
    resources.MISSING,
    resources.DIFFER,
    # other objects that affect them
    services.BACKENDS,
    services.TARGET_PORTS,
    claimed_volumes.RULE,
    network_policy.RULE,
    flannel.RULE,
    policies.RESTRICTED,
    policies.EVERYWHERE,
)


def rule_limits(rule: LintRule) -> tuple[WindowsLimit, ...]:
    """The limitations that a rule reports: those of the registry, or its own."""
    found = tuple(
        limit for limit in LIMITS.values() if limit.check == rule.check or limit.id in rule.ids
    )
    return found or ((rule.limit,) if rule.limit is not None else ())


# Best practices, which are not Windows limitations and therefore not in the registry.
OWN: Final = {rule.limit.id: rule.limit for rule in RULES if rule.limit is not None}
