"""Which nodes a DaemonSet runs on: node name, node selector, required node affinity and taints.
Nothing else counts, neither free resources nor whether the node is ready, cordoned or of a
different operating system than the image.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from transom.controllers.daemonset.template import with_default_tolerations
from transom.machinery.objects import Object
from transom.machinery.selectors import NODE_SELECTOR_OPERATORS, Requirement
from transom.machinery.tolerations import untolerated_taints

_DRIVES_OUT = ("NoExecute",)

_Term = tuple[tuple[Requirement, ...], tuple[Requirement, ...]]


class Placement:
    """The placement rules of one DaemonSet, prepared for evaluating many nodes."""

    def __init__(self, daemon_set: Object) -> None:
        spec = (daemon_set["spec"].get("template") or {}).get("spec") or {}
        self._node_name: str = spec.get("nodeName") or ""
        self._selector = (spec.get("nodeSelector") or {}).items()
        affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
        required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
        self._terms: list[_Term] | None = None
        if required is not None:
            terms = (_term(term) for term in required.get("nodeSelectorTerms") or ())
            self._terms = [term for term in terms if term is not None]
        self._tolerations: Sequence[Object] = with_default_tolerations(spec)["tolerations"]

    def node_should_run(self, node: Object) -> tuple[bool, bool]:
        """Whether a pod should run on the node, and whether a running one may stay."""
        meta = node["metadata"]
        name, labels = meta["name"], meta.get("labels") or {}
        if self._node_name not in ("", name) or not self._selector <= labels.items():
            return False, False
        if self._terms is not None and not any(
            _matches(term, name, labels) for term in self._terms
        ):
            return False, False
        taints = (node.get("spec") or {}).get("taints") or ()
        if not untolerated_taints(self._tolerations, taints):
            return True, True
        return False, not untolerated_taints(self._tolerations, taints, _DRIVES_OUT)


def _term(term: Object) -> _Term | None:
    """The requirements of a term; None if it matches no node because it is empty or invalid."""
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        return None
    try:
        return tuple(map(_requirement, expressions)), tuple(map(_requirement, fields))
    except KeyError:
        return None


def _requirement(expression: Object) -> Requirement:
    return Requirement(
        expression["key"],
        NODE_SELECTOR_OPERATORS[expression["operator"]],
        tuple(expression.get("values") or ()),
    )


def _matches(term: _Term, name: str, labels: Mapping[str, str]) -> bool:
    expressions, fields = term
    own = {"metadata.name": name}
    return all(r.matches(labels) for r in expressions) and all(r.matches(own) for r in fields)
