"""The order of the authenticators."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from transom.apiserver.core.context import ANONYMOUS, UserInfo
from transom.http.messages import HttpRequest
from transom.machinery import errors
from transom.machinery.errors import ApiError

# Returns a user, or None if the request has no credential of this kind. An invalid credential
# raises 401; the next authenticator is still tried.
Authenticator = Callable[[HttpRequest], UserInfo | None]
AUTHENTICATED = "system:authenticated"


class Authentication:
    """`anonymous` says whether requests without credentials for a path are anonymous; it may be
    replaced while the server runs.
    """

    def __init__(
        self, authenticators: Sequence[Authenticator], anonymous: Callable[[str], bool]
    ) -> None:
        self._authenticators = tuple(authenticators)
        self.anonymous = anonymous

    def __call__(self, request: HttpRequest) -> UserInfo:
        refused: ApiError | None = None
        for authenticate in self._authenticators:
            try:
                user = authenticate(request)
            except ApiError as problem:  # another credential of the request may be valid
                refused = problem
                continue
            if user is not None:
                return user
        if refused is not None:
            raise refused
        if self.anonymous(request.path):
            return ANONYMOUS
        raise errors.unauthorized()


def with_authenticated(groups: Sequence[str]) -> tuple[str, ...]:
    return tuple(groups) if AUTHENTICATED in groups else (*groups, AUTHENTICATED)
