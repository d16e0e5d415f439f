"""Which nodes a DaemonSet is for: name, node selector, required node affinity and taints. Nothing else counts, neither
room on the node nor whether it is ready, cordoned or of another operating system than the image."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from transom.controllers.daemonset.template import with_default_tolerations
from transom.machinery.objects import Object
from transom.machinery.selectors import DOES_NOT_EXIST, EXISTS, GREATER, IN, LESS, NOT_IN, Requirement

_OPERATORS = {
    "In": IN, "NotIn": NOT_IN, "Exists": EXISTS, "DoesNotExist": DOES_NOT_EXIST, "Gt": GREATER, "Lt": LESS
}
_KEEPS_OUT = ("NoSchedule", "NoExecute")
_DRIVES_OUT = ("NoExecute",)

_Term = tuple[tuple[Requirement, ...], tuple[Requirement, ...]]


class Placement:
    """The verdict of one DaemonSet, ready to be asked for many nodes."""

    def __init__(self, daemon_set: Object) -> None:
        spec = (daemon_set["spec"].get("template") or {}).get("spec") or {}
        self._node_name: str = spec.get("nodeName") or ""
        self._selector = (spec.get("nodeSelector") or {}).items()
        affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {})
        required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
        self._terms: list[_Term] | None = None
        if required is not None:
            terms = (_term(term) for term in required.get("nodeSelectorTerms") or ())
            self._terms = [term for term in terms if term is not None]
        self._tolerations: Sequence[Object] = with_default_tolerations(spec)["tolerations"]

    def judge(self, node: Object) -> tuple[bool, bool]:
        """Whether a pod should run there, and whether one that does may stay."""
        meta = node["metadata"]
        name, labels = meta["name"], meta.get("labels") or {}
        if self._node_name not in ("", name) or not self._selector <= labels.items():
            return False, False
        if self._terms is not None and not any(_matches(term, name, labels) for term in self._terms):
            return False, False
        taints = (node.get("spec") or {}).get("taints") or ()
        if not taints or tolerates(self._tolerations, taints, _KEEPS_OUT):
            return True, True
        return False, tolerates(self._tolerations, taints, _DRIVES_OUT)


def _term(term: Object) -> _Term | None:
    """A term with its requirements; None for one that matches no node, as it is empty or cannot be understood."""
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        return None
    try:
        return tuple(map(_requirement, expressions)), tuple(map(_requirement, fields))
    except KeyError:
        return None


def _requirement(expression: Object) -> Requirement:
    return Requirement(expression["key"], _OPERATORS[expression["operator"]], tuple(expression.get("values") or ()))


def _matches(term: _Term, name: str, labels: Mapping[str, str]) -> bool:
    expressions, fields = term
    own = {"metadata.name": name}
    return all(r.matches(labels) for r in expressions) and all(r.matches(own) for r in fields)


def tolerates(tolerations: Sequence[Object], taints: Iterable[Object], effects: Sequence[str]) -> bool:
    """Whether every taint with one of these effects is tolerated."""
    return all(
        any(_tolerates(toleration, taint) for toleration in tolerations)
        for taint in taints if taint.get("effect") in effects
    )


def _tolerates(toleration: Object, taint: Object) -> bool:
    effect, key = toleration.get("effect"), toleration.get("key")
    if (effect and effect != taint.get("effect")) or (key and key != taint.get("key")):
        return False
    judge = _TOLERATION_OPERATORS.get(toleration.get("operator") or "Equal")
    return judge is not None and judge(toleration, taint)


_TOLERATION_OPERATORS: dict[str, Callable[[Object, Object], bool]] = {
    "Equal": lambda toleration, taint: (toleration.get("value") or "") == (taint.get("value") or ""),
    "Exists": lambda toleration, taint: True,
}
