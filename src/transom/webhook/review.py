"""AdmissionReview v1 and v1beta1: decodes requests and builds responses. Pure functions."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from transom.windows.advice import NOTHING, Advisor, AdvisorDecision

Object = dict[str, Any]

_KIND: Final = "AdmissionReview"
_VERSIONS: Final = ("admission.k8s.io/v1", "admission.k8s.io/v1beta1")
_GROUPS: Final = frozenset(("", "apps", "extensions", "batch"))
_FORBIDDEN: Final = 403


class InvalidReview(ValueError):
    """The request is not a valid AdmissionReview."""


class AnsweredReview(NamedTuple):
    review: Object
    operation: str
    decision: AdvisorDecision


def answer_review(review: Any, advisor: Advisor) -> AnsweredReview:
    """Allows deletions, and objects that are neither pods nor have a pod template."""
    if (
        not isinstance(review, dict)
        or review.get("kind") != _KIND
        or review.get("apiVersion") not in _VERSIONS
    ):
        raise InvalidReview(f"not an {_KIND} of {' or '.join(_VERSIONS)}")
    request = review.get("request")
    if not isinstance(request, dict) or not isinstance(request.get("uid"), str):
        raise InvalidReview("the review has no request with a uid")
    decision = _review_object(request, advisor)
    response: Object = {"uid": request["uid"], "allowed": not decision.refusals}
    if decision.warnings:
        response["warnings"] = list(decision.warnings)
    if decision.refusals:
        response["status"] = {
            "code": _FORBIDDEN,
            "reason": "Forbidden",
            "message": "; ".join(decision.refusals),
        }
    answered = {"kind": _KIND, "apiVersion": review["apiVersion"], "response": response}
    return AnsweredReview(answered, str(request.get("operation", "")), decision)


def _review_object(request: Object, advisor: Advisor) -> AdvisorDecision:
    kind, obj, old = request.get("kind"), request.get("object"), request.get("oldObject")
    if request.get("operation") not in ("CREATE", "UPDATE") or request.get("subResource"):
        return NOTHING
    if (
        not isinstance(kind, dict)
        or kind.get("group", "") not in _GROUPS
        or not isinstance(obj, dict)
    ):
        return NOTHING
    return advisor.review(str(kind.get("kind", "")), obj, old if isinstance(old, dict) else None)
