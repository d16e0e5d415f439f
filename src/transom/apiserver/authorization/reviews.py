"""SubjectAccessReview, SelfSubjectAccessReview, LocalSubjectAccessReview and
SelfSubjectRulesReview.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from transom.apiserver.authorization.chain import MASTERS, Authorization
from transom.apiserver.authorization.node import NODES, node_name
from transom.apiserver.authorization.rbac import Rbac, absent
from transom.apiserver.authorization.review_selectors import (
    fields_of_review,
    labels_of_review,
    selector_problems,
)
from transom.apiserver.core.attributes import AdmissionInterface
from transom.apiserver.core.call import ApiCall, ObjectResult
from transom.apiserver.core.context import UserInfo
from transom.apiserver.core.requestinfo import RequestInfo
from transom.apiserver.core.reviews import read_review, review_result
from transom.apiserver.core.storage import Storage
from transom.machinery import errors
from transom.machinery.field import aggregate_text
from transom.machinery.objects import Object
from transom.machinery.rbac import Rule
from transom.machinery.releases.behaviour import has_behaviour

_FEW_GROUPS = 100
_MANY_RULES = 1000
_NO_WEBHOOK_RULES = "webhook authorizer does not support user rule resolution"
_EVERYTHING: list[Rule] = [
    {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
    {"verbs": ["*"], "nonResourceURLs": ["*"]},
]
_NO_NODE_RULES = "node authorizer does not support user rule resolution"


class AccessReviews:
    def __init__(
        self,
        storage: Storage,
        admission: AdmissionInterface,
        authorization: Authorization,
        rbac: Rbac,
    ) -> None:
        self._storage = storage
        self._admission = admission
        self._authorization = authorization
        self._rbac = rbac

    async def subject_access(self, call: ApiCall) -> ObjectResult:
        """SubjectAccessReview and LocalSubjectAccessReview."""
        review = await read_review(self._storage, self._admission, call)
        spec = review["spec"]
        groups = spec.get("groups") or ()
        if len(groups) > _FEW_GROUPS and "Webhook" not in self._authorization.types:
            namespace = (spec.get("resourceAttributes") or {}).get("namespace", "")
            groups = await self._storage.compute(
                call.ctx, lambda: self._deciding_groups(groups, namespace)
            )
        user = UserInfo(spec.get("user", ""), tuple(groups), spec.get("uid", ""), spec.get("extra"))
        return self._reviewed(call, user, review)

    def _deciding_groups(self, groups: Sequence[str], namespace: str) -> tuple[str, ...]:
        """The groups that affect the decision of any authorizer."""
        system = tuple(group for group in (MASTERS, NODES) if group in groups)
        return system + self._rbac.bound_groups(groups, namespace)

    async def self_access(self, call: ApiCall) -> ObjectResult:
        review = await read_review(self._storage, self._admission, call)
        return self._reviewed(call, call.ctx.user, review)

    def _reviewed(self, call: ApiCall, user: UserInfo, review: Object) -> ObjectResult:
        decision = self._authorization.decide(user, _attributes(review["spec"]))
        status: Object = {"allowed": decision.allowed is True}
        if decision.allowed is False:
            status["denied"] = True
        if decision.reason:
            status["reason"] = decision.reason
        attributes = review["spec"].get("resourceAttributes") or {}
        problems = [decision.error] if decision.error else []
        problems += selector_problems(attributes)
        if problems:
            status["evaluationError"] = "; ".join(problems)
        review["status"] = status
        return review_result(call, review)

    async def self_rules(self, call: ApiCall) -> ObjectResult:
        review = await read_review(self._storage, self._admission, call, _check_namespace_given)
        user = call.ctx.user
        types = self._authorization.types
        rules, dangling = self._rbac.rules_for(user, review["spec"]["namespace"])
        if "RBAC" not in types:
            rules, dangling = [], []
        if "AlwaysAllow" in types:
            rules = [*_EVERYTHING, *rules]
        problems = [_NO_NODE_RULES] if node_name(user) is not None and "Node" in types else []
        problems += [_NO_WEBHOOK_RULES] * types.count("Webhook")
        incomplete = bool(problems)
        if dangling:
            problems.append(
                aggregate_text(absent(reference, plural=False) for reference in dangling)
            )
        evaluation_error = aggregate_text(problems) if problems else ""
        work = partial(_rules_review, call, rules, incomplete, evaluation_error)
        if len(rules) <= _MANY_RULES:
            return work()
        call.ctx.large = True
        return await self._storage.compute(call.ctx, work)


def _rules_review(
    call: ApiCall, rules: Sequence[Rule], incomplete: bool, evaluation_error: str
) -> ObjectResult:
    status: Object = {
        "resourceRules": [
            {k: r[k] for k in ("verbs", "apiGroups", "resources", "resourceNames") if r.get(k)}
            for r in rules
            if r.get("resources")
        ],
        "nonResourceRules": [
            {"verbs": r["verbs"], "nonResourceURLs": r["nonResourceURLs"]}
            for r in rules
            if r.get("nonResourceURLs")
        ],
        "incomplete": incomplete,
    }
    if evaluation_error:
        status["evaluationError"] = evaluation_error
    times = {} if has_behaviour(call.res.release, "NoEmptyTimes") else {"creationTimestamp": None}
    review = {"metadata": times, "spec": {}, "status": status}
    return review_result(call, review)


def _attributes(spec: Object) -> RequestInfo:
    resource = spec.get("resourceAttributes")
    if resource is None:
        other = spec["nonResourceAttributes"]
        return RequestInfo(False, other.get("path", ""), other.get("verb", ""))
    return RequestInfo(
        True,
        "",
        resource.get("verb", ""),
        resource.get("group", ""),
        resource.get("version", ""),
        resource.get("namespace", ""),
        resource.get("resource", ""),
        resource.get("name", ""),
        resource.get("subresource", ""),
        fields=str(fields_of_review(resource)),
        labels=str(labels_of_review(resource)),
    )


def _check_namespace_given(review: Object) -> None:
    if not (review.get("spec") or {}).get("namespace"):
        raise errors.bad_request("no namespace on request")
