"""Node selector and required node affinity of a pod (tolerations.py handles taints).

Kubernetes' rules as pure functions; the kubelet's admission and doctor use them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transom.machinery.selectors import NODE_SELECTOR_OPERATORS, Requirement

Object = Mapping[str, Any]


def matches_node(spec: Object, name: str, labels: Mapping[str, str]) -> bool:
    """Whether nodeSelector and required node affinity select a node."""
    selector = spec.get("nodeSelector")
    if selector and not selector.items() <= labels.items():
        return False
    terms = required_terms(spec)
    return terms is None or any(matches_term(term, name, labels) for term in terms)


def required_terms(spec: Object) -> list[Object] | None:
    """The terms of the required node affinity; None if there is none."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return None if required is None else list(required.get("nodeSelectorTerms") or ())


def matches_term(term: Object, name: str, labels: Mapping[str, str]) -> bool:
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    own = {"metadata.name": name}
    return all(matches_expression(e, labels) for e in expressions) and all(
        matches_expression(f, own) for f in fields
    )


def matches_expression(expression: Object, values: Mapping[str, str]) -> bool:
    operator = NODE_SELECTOR_OPERATORS.get(expression.get("operator", ""))
    if operator is None:
        return False
    return Requirement(expression["key"], operator, tuple(expression.get("values") or ())).matches(
        values
    )
