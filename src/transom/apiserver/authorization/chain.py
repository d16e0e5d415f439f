"""The order of authorizers, and the exact text of a refusal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from transom.apiserver.context import User
from transom.apiserver.requestinfo import RequestInfo
from transom.machinery import errors
from transom.machinery.errors import ApiError, GroupResource
from transom.machinery.field import go_quote


class Decision(NamedTuple):
    """`allowed` None: no opinion. `reason` goes into the text of a refusal."""

    allowed: bool | None
    reason: str = ""


NO_OPINION = Decision(None)
ALLOWED = Decision(True)
Authorizer = Callable[[User, RequestInfo], Decision]


def masters(user: User, _info: RequestInfo) -> Decision:
    """The group of the cluster's administrators may do everything; nothing can take that away."""
    return ALLOWED if "system:masters" in user.groups else NO_OPINION


class Authorization:
    def __init__(self, authorizers: Sequence[Authorizer]) -> None:
        self._authorizers = tuple(authorizers)

    def decide(self, user: User, info: RequestInfo) -> Decision:
        reasons = []
        for authorizer in self._authorizers:
            decision = authorizer(user, info)
            if decision.allowed is not None:
                return decision
            if decision.reason:
                reasons.append(decision.reason)
        return Decision(None, "\n".join(reasons))

    def __call__(self, user: User, info: RequestInfo) -> None:
        """Return when allowed, raise 403 otherwise."""
        decision = self.decide(user, info)
        if not decision.allowed:
            raise refusal(user, info, decision.reason)


def refusal(user: User, info: RequestInfo, reason: str) -> ApiError:
    if not info.is_resource:
        text = f"User {go_quote(user.name)} cannot {info.verb} path {go_quote(info.path)}"
    else:
        resource = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
        text = f"User {go_quote(user.name)} cannot {info.verb} resource {go_quote(resource)}"
        text += f" in API group {go_quote(info.group)}"
        text += f" in the namespace {go_quote(info.namespace)}" if info.namespace else " at the cluster scope"
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    if reason:
        text += f": {reason}"
    return errors.forbidden(GroupResource(info.group, info.resource), info.name or info.selected_name, text)
