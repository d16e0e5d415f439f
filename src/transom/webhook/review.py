"""AdmissionReview, v1 and v1beta1, as a webhook sees it: a question in, an answer out. Pure."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from transom.windows.advice import NOTHING, Advisor, Judgement

Object = dict[str, Any]

_KIND: Final = "AdmissionReview"
_VERSIONS: Final = ("admission.k8s.io/v1", "admission.k8s.io/v1beta1")
_GROUPS: Final = frozenset(("", "apps", "extensions", "batch"))
_FORBIDDEN: Final = 403


class BadReview(ValueError):
    """What was sent is no review that can be answered."""


class Answered(NamedTuple):
    review: Object
    operation: str
    judgement: Judgement


def answer(review: Any, advisor: Advisor) -> Answered:
    """What is not a pod and has no template of pods passes, and so does what is deleted."""
    if not isinstance(review, dict) or review.get("kind") != _KIND or review.get("apiVersion") not in _VERSIONS:
        raise BadReview(f"not an {_KIND} of {' or '.join(_VERSIONS)}")
    request = review.get("request")
    if not isinstance(request, dict) or not isinstance(request.get("uid"), str):
        raise BadReview("the review has no request with a uid")
    judgement = _judge(request, advisor)
    response: Object = {"uid": request["uid"], "allowed": not judgement.refusals}
    if judgement.warnings:
        response["warnings"] = list(judgement.warnings)
    if judgement.refusals:
        response["status"] = {"code": _FORBIDDEN, "reason": "Forbidden", "message": "; ".join(judgement.refusals)}
    answered = {"kind": _KIND, "apiVersion": review["apiVersion"], "response": response}
    return Answered(answered, str(request.get("operation", "")), judgement)


def _judge(request: Object, advisor: Advisor) -> Judgement:
    kind, obj, old = request.get("kind"), request.get("object"), request.get("oldObject")
    if request.get("operation") not in ("CREATE", "UPDATE") or request.get("subResource"):
        return NOTHING
    if not isinstance(kind, dict) or kind.get("group", "") not in _GROUPS or not isinstance(obj, dict):
        return NOTHING
    return advisor.judge(str(kind.get("kind", "")), obj, old if isinstance(old, dict) else None)
