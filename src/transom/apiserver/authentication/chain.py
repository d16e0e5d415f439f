"""The order in which a request's credentials are looked at."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from transom.apiserver.context import ANONYMOUS, User
from transom.http.messages import Request
from transom.machinery import errors
from transom.machinery.errors import ApiError

# A user, or None when the request carries no credential of this kind. A bad credential raises 401; the
# next one is looked at all the same.
Authenticator = Callable[[Request], User | None]
AUTHENTICATED = "system:authenticated"


class Authentication:
    def __init__(self, authenticators: Sequence[Authenticator], anonymous: bool) -> None:
        self._authenticators = tuple(authenticators)
        self._anonymous = anonymous

    def __call__(self, request: Request) -> User:
        refused: ApiError | None = None
        for authenticate in self._authenticators:
            try:
                user = authenticate(request)
            except ApiError as problem:  # another credential of the request may still be good
                refused = problem
                continue
            if user is not None:
                return user
        if refused is not None:
            raise refused
        if self._anonymous:
            return ANONYMOUS
        raise errors.unauthorized()


def with_authenticated(groups: Sequence[str]) -> tuple[str, ...]:
    return tuple(groups) if AUTHENTICATED in groups else (*groups, AUTHENTICATED)
