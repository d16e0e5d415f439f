"""The policies of a Job: which pod failures count (podFailurePolicy), and which completed indexes
are enough (successPolicy).
"""

from __future__ import annotations

from collections.abc import Iterable

from transom.controllers.job.intervals import IndexIntervals
from transom.kit.named_tuple import NamedTuple
from transom.machinery.objects import Object


class FailureDecision(NamedTuple):
    """What a failure policy says about a failed pod."""

    counts: bool = True  # towards the failure limits
    action: str = ""
    message: str = ""  # why the Job fails, if it does


def match_pod_failure_policy(
    policy: Object | None, pod: Object, *, fail_index: bool
) -> FailureDecision:
    """The first rule that matches decides. `fail_index`: whether indexes can fail on their own."""
    for number, rule in enumerate((policy or {}).get("rules") or ()):
        cause = _matching_cause(rule, pod)
        if not cause:
            continue
        action = rule["action"]
        if action == "FailIndex" and not fail_index:
            continue
        if action == "FailJob":
            message = f"{cause} matching FailJob rule at index {number}"
            return FailureDecision(action=action, message=message)
        return FailureDecision(action != "Ignore", action)
    return FailureDecision()


def _matching_cause(rule: Object, pod: Object) -> str:
    meta, status = pod["metadata"], pod.get("status") or {}
    where = f"{meta['namespace']}/{meta['name']}"
    codes = rule.get("onExitCodes")
    if codes is not None:
        for field in ("containerStatuses", "initContainerStatuses"):
            for container in status.get(field) or ():
                code = _exit_code(container)
                if code and _matches_exit_code(codes, container["name"], code):
                    return f"Container {container['name']} for pod {where} failed with exit code {code}"
        return ""
    patterns = rule.get("onPodConditions")
    if patterns is None:
        return ""
    for condition in status.get("conditions") or ():
        for pattern in patterns:
            if (condition["type"], condition.get("status")) == (
                pattern["type"],
                pattern.get("status"),
            ):
                return f"Pod {where} has condition {condition['type']}"
    return ""


def _exit_code(container: Object) -> int:
    terminated = (container.get("state") or {}).get("terminated") or {}
    code: int = terminated.get("exitCode", 0)
    return code


def _matches_exit_code(requirement: Object, container: str, code: int) -> bool:
    name = requirement.get("containerName")
    if name is not None and name != container:
        return False
    listed = code in requirement.get("values", ())
    return listed if requirement.get("operator") == "In" else not listed


def match_success_policy(
    policy: Object | None, completions: int, succeeded: IndexIntervals
) -> str | None:
    """Why the Job has succeeded, or None."""
    if policy is None or not succeeded.total:
        return None
    for number, rule in enumerate(policy.get("rules") or ()):
        if _rule_is_met(rule, completions, succeeded):
            return f"Matched rules at index {number}"
    return None


def _rule_is_met(rule: Object, completions: int, succeeded: IndexIntervals) -> bool:
    count, indexes = rule.get("succeededCount"), rule.get("succeededIndexes")
    if indexes is None:
        return count is not None and succeeded.total >= count
    required = IndexIntervals.parse(indexes, completions)
    if not required.total:
        return False
    found = required.overlap(succeeded)
    return found == required.total or (count is not None and found >= count)


def failure_message(policy: Object | None, failed: Iterable[Object], *, fail_index: bool) -> str:
    """Why the policy fails the Job, or ""."""
    if policy is None:
        return ""
    for pod in failed:
        message = match_pod_failure_policy(policy, pod, fail_index=fail_index).message
        if message:
            return message
    return ""
