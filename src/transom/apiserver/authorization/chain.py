"""The order of the authorizers, and the exact message of a 403 error.

Only `Decision.authorized` creates an `Authorized` value, and handlers accept nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from transom.apiserver.core.context import UserInfo
from transom.apiserver.core.requestinfo import Authorized, RequestInfo
from transom.kit.escaping import escape_markup
from transom.kit.goquote import go_quote
from transom.kit.named_tuple import NamedTuple
from transom.machinery import errors
from transom.machinery.errors import ApiError, GroupResource
from transom.machinery.field import aggregate_text


class AuthorizerError(ApiError):
    """An authorizer could not decide; over HTTP the response is plain text."""

    def __init__(self, text: str) -> None:
        super().__init__(500, "InternalError", text)


class Decision(NamedTuple):
    """`allowed` None: no opinion. `reason` is part of the error message. `error`: an authorizer
    could not decide.
    """

    allowed: bool | None
    reason: str = ""
    error: str = ""

    def authorized(self, user: UserInfo, info: RequestInfo) -> Authorized:
        """The authorized attributes for the handler; raises 403 unless they are allowed."""
        if self.allowed:
            return Authorized(info)
        if self.error:
            raise AuthorizerError(self.error)
        raise refusal(user, info, self.reason)


MASTERS = "system:masters"
NO_OPINION = Decision(None)
ALLOWED = Decision(True)
Authorizer = Callable[[UserInfo, RequestInfo], Decision]


def masters(user: UserInfo, _info: RequestInfo) -> Decision:
    """The administrators' group system:masters may do everything, unconditionally."""
    return ALLOWED if MASTERS in user.groups else NO_OPINION


def always_allow(_user: UserInfo, _info: RequestInfo) -> Decision:
    return ALLOWED


def always_deny(_user: UserInfo, _info: RequestInfo) -> Decision:
    return Decision(None, "Everything is forbidden.")


class Authorization:
    """`types` are those of the configured authorizers, in order, as --authorization-mode has them.
    The list may be replaced while the server runs.
    """

    def __init__(self, authorizers: Sequence[Authorizer], types: Sequence[str] = ()) -> None:
        self.configure(authorizers, types)

    def configure(self, authorizers: Sequence[Authorizer], types: Sequence[str]) -> None:
        self._authorizers = tuple(authorizers)
        self.types = tuple(types)

    def decide(self, user: UserInfo, info: RequestInfo) -> Decision:
        """Raises AnswerNeeded if a webhook has to be asked first."""
        reasons, problems = [], []
        for authorizer in self._authorizers:
            decision = authorizer(user, info)
            if decision.allowed is not None:
                return decision
            if decision.reason:
                reasons.append(decision.reason)
            if decision.error:
                problems.append(decision.error)
        error = aggregate_text(problems) if problems else ""
        return Decision(None, "\n".join(reasons), error)

    def __call__(self, user: UserInfo, info: RequestInfo) -> None:
        """Return when allowed, raise 403 otherwise."""
        self.decide(user, info).authorized(user, info)

    def require_create(self, user: UserInfo, info: Authorized, *, explained: bool = False) -> None:
        """An update or apply of an object that does not exist creates it, which also requires
        `create` on this name. So does a connection to a pod with GET.

        Raises 403, with only the authorizers' reason unless `explained`.
        """
        asked = info._replace(verb="create")
        decision = self.decide(user, asked)
        if not decision.allowed and explained:
            raise refusal(user, asked, decision.reason)
        if not decision.allowed:
            raise errors.forbidden(
                GroupResource(info.group, info.resource), info.name, decision.reason
            )


def refusal(user: UserInfo, info: RequestInfo, reason: str) -> ApiError:
    if not info.is_resource:
        text = f"User {go_quote(user.name)} cannot {info.verb} path {go_quote(info.path)}"
    else:
        resource = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
        text = f"User {go_quote(user.name)} cannot {info.verb} resource {go_quote(resource)}"
        text += f" in API group {go_quote(info.group)}"
        text += (
            f" in the namespace {go_quote(info.namespace)}"
            if info.namespace
            else " at the cluster scope"
        )
    text = escape_markup(text)
    if reason:
        text += f": {reason}"
    return errors.forbidden(GroupResource(info.group, info.resource), info.name, text)
