"""Services that Windows nodes cannot load-balance: too many pods, or ports that differ from pod to
pod.
"""

from __future__ import annotations

from collections.abc import Iterator

from transom.lint.context import LintContext, LintWorkload
from transom.lint.findings import RuleMatch
from transom.lint.rules.base import LintRule
from transom.windows.podchecks import inner_pod, list_or_empty

_Key = tuple[str, str, str]  # kind, namespace, name

_MOST = 64


def find_mixed_backends(context: LintContext) -> Iterator[RuleMatch]:
    largest = _largest(context)
    for service in context.of("Service"):
        workloads = context.selected(service)
        if service.spec.get("clusterIP") == "None" or not (
            context.mixed or any(w.windows for w in workloads)
        ):
            continue
        pods: dict[_Key, int] = {}
        for workload in workloads:  # a folder may contain variants of one object
            key = (workload.obj.kind, workload.obj.namespace, workload.obj.name)
            pods[key] = max(_pods(workload), pods.get(key, 0))
        now = sum(pods.values())
        later = sum(max(count, largest.get(key, 0)) for key, count in pods.items())
        if now > _MOST:
            yield RuleMatch(
                service,
                ("spec", "selector"),
                f"it has {now} pods behind it: Windows nodes take {_MOST} at most",
            )
        elif later > _MOST:
            message = f"it may get {later} pods behind it: Windows nodes take {_MOST} at most"
            yield RuleMatch(service, ("spec", "selector"), message, severity="warning")


def _pods(workload: LintWorkload) -> int:
    if workload.obj.kind == "DaemonSet":
        wanted = inner_pod(workload.obj.value, "status", "desiredNumberScheduled")
        return wanted if isinstance(wanted, int) else 1
    return workload.replicas()


def _largest(context: LintContext) -> dict[_Key, int]:
    """The number of replicas that autoscalers may set."""
    found = {}
    for scaler in context.of("HorizontalPodAutoscaler", "autoscaling"):
        most, wanted = scaler.spec.get("maxReplicas"), scaler.spec.get("scaleTargetRef")
        if isinstance(most, int) and isinstance(wanted, dict):
            found[(str(wanted.get("kind")), scaler.namespace, str(wanted.get("name")))] = most
    return found


def find_target_ports(context: LintContext) -> Iterator[RuleMatch]:
    for service in context.of("Service"):
        workloads = context.selected(service)
        if len(workloads) < 2 or not any(workload.windows for workload in workloads):
            continue
        for i, port in enumerate(list_or_empty(service.spec.get("ports"))):
            name = port.get("targetPort") if isinstance(port, dict) else None
            if isinstance(name, str) and not name.isdigit():
                numbers = {number for workload in workloads for number in _numbers(workload, name)}
                if len(numbers) > 1:
                    message = (
                        f"{name} is {' and '.join(map(str, sorted(numbers)))} in the pods behind it"
                    )
                    yield RuleMatch(service, ("spec", "ports", i, "targetPort"), message)


def _numbers(workload: LintWorkload, name: str) -> Iterator[int]:
    for _, container in workload.containers():
        for port in list_or_empty(container.get("ports")):
            if (
                isinstance(port, dict)
                and port.get("name") == name
                and isinstance(port.get("containerPort"), int)
            ):
                yield port["containerPort"]


BACKENDS = LintRule("service-backends", find_mixed_backends)
TARGET_PORTS = LintRule("named-target-port", find_target_ports)
