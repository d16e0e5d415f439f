"""Linux sidecars that a service mesh injects into Windows pods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from transom.lint.context import LintContext, LintWorkload
from transom.lint.findings import RuleMatch
from transom.lint.rules.base import LintRule
from transom.lint.rules.placement import pin_anchor
from transom.lint.tree import Steps
from transom.windows.podchecks import inner_pod
from transom.windows.records import WindowsLimit

# Labels and annotations that request a Linux-only sidecar, on a pod or its namespace; and those
# that opt a pod out.
_ON_POD: Final = (
    ("sidecar.istio.io/inject", "true"),
    ("linkerd.io/inject", "enabled"),
    ("consul.hashicorp.com/connect-inject", "true"),
    ("vault.hashicorp.com/agent-inject", "true"),
    ("kuma.io/sidecar-injection", "enabled"),
)
_ON_NAMESPACE: Final = (
    ("istio-injection", "enabled", "sidecar.istio.io/inject"),
    ("linkerd.io/inject", "enabled", "linkerd.io/inject"),
    ("kuma.io/sidecar-injection", "enabled", "kuma.io/sidecar-injection"),
)


def find_sidecars(context: LintContext) -> Iterator[RuleMatch]:
    namespaces = {namespace.name: namespace for namespace in context.of("Namespace")}
    for workload in context.windows:
        own = _requested_on_pod(workload)
        if own is not None:
            steps, text = own
            yield RuleMatch(
                workload.obj, steps, f"{text} puts a container for Linux into this pod for Windows"
            )
            continue
        namespace = namespaces.get(workload.obj.namespace)
        if namespace is None:
            continue
        marks: Mapping[str, Any] = {**namespace.annotations, **namespace.labels}
        for key, value, decline in _ON_NAMESPACE:
            if marks.get(key) == value and _mark(workload, decline)[1] is None:
                message = (
                    f"its namespace has {key}={value}, which puts a container for Linux into "
                    "this pod for Windows"
                )
                remedy = f'Decline it: set {decline} to "false" or disabled.'
                yield RuleMatch(workload.obj, pin_anchor(workload), message, remedy=remedy)


def _requested_on_pod(workload: LintWorkload) -> tuple[Steps, str] | None:
    for key, value in _ON_POD:
        steps, found = _mark(workload, key)
        if str(found).lower() == value:
            return steps, f"{key}: {found}"
    return None


def _mark(workload: LintWorkload, key: str) -> tuple[Steps, Any]:
    for kind in ("annotations", "labels"):
        found = inner_pod(workload.template, "metadata", kind, key)
        if found is not None:
            return (*workload.steps, "metadata", kind, key), found
    return (), None


RULE = LintRule(
    "sidecars",
    find_sidecars,
    WindowsLimit(
        id="WIN-LINT-011",
        title="Injected sidecars are for Linux",
        statement="The mesh adds a container whose image exists for Linux alone; the pod then never "
        "gets all of its containers "
        "running.",
        effect="fails",
        remedy="Decline the injection for Windows pods.",
        checklist=("POD-04",),
        severity="error",
        reason="ErrImagePull",
        message='image operating system "linux" cannot be used on this platform',
    ),
)
