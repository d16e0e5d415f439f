"""Impersonation: acting as somebody else, if one may."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import unquote

from transom.apiserver.authentication.chain import AUTHENTICATED
from transom.apiserver.context import ANONYMOUS, User
from transom.apiserver.requestinfo import RequestInfo
from transom.http.messages import Request
from transom.machinery import serviceaccounts
from transom.machinery.field import go_quote

Authorize = Callable[[User, RequestInfo], None]
_PREFIX = b"impersonate-"
_USER, _GROUP, _UID, _EXTRA = b"impersonate-user", b"impersonate-group", b"impersonate-uid", b"impersonate-extra-"
_UNAUTHENTICATED = "system:unauthenticated"
_AUTHENTICATION = "authentication.k8s.io"


class Malformed(Exception):
    """Headers that say nothing sensible; the text is the whole answer (500, plain)."""


class _Wish(NamedTuple):
    """One thing that the caller wants to be or have."""

    kind: str
    name: str
    namespace: str = ""
    key: str = ""  # of an extra

    @property
    def group(self) -> str:
        return _AUTHENTICATION if self.kind in ("UserExtra", "UID") else ""

    def printed(self) -> str:
        """As Go prints an object reference: kind, namespace, name, uid, version, resource version, field path."""
        version = f"{_AUTHENTICATION}/v1" if self.group else ""
        return f"{{{self.kind} {self.namespace} {self.name}  {version}  {self.key}}}"


_RESOURCES = {"User": "users", "ServiceAccount": "serviceaccounts", "Group": "groups", "UserExtra": "userextras",
              "UID": "uids"}  # fmt: skip


def wanted(request: Request) -> bool:
    """Whether there is anything to do; every request asks."""
    return any(name.startswith(_PREFIX) for name in request.headers)


def impersonate(request: Request, user: User, authorize: Authorize) -> User:
    """The user that the rest of the chain sees; raises 403 when `user` may not be him, or Malformed."""
    wishes = _wishes(request)
    if not wishes:
        return user
    for wish in wishes:
        authorize(user, RequestInfo(
            True, request.path, "impersonate", wish.group, "v1", wish.namespace, _RESOURCES[wish.kind], wish.name,
            wish.key,
        ))
    first = wishes[0]
    name, uid = first.name, ""
    groups = [wish.name for wish in wishes if wish.kind == "Group"]
    if first.kind == "ServiceAccount":
        name = serviceaccounts.user_name(first.namespace, first.name)
        groups = groups or list(serviceaccounts.group_names(first.namespace))
    extra: dict[str, list[str]] = {}
    for wish in wishes:
        if wish.kind == "UserExtra":
            extra.setdefault(wish.key, []).append(wish.name)
        elif wish.kind == "UID":
            uid = wish.name
    if name == ANONYMOUS.name:
        if _UNAUTHENTICATED not in groups:
            groups.append(_UNAUTHENTICATED)
    elif AUTHENTICATED not in groups and _UNAUTHENTICATED not in groups:
        groups.append(AUTHENTICATED)
    return User(name, tuple(groups), uid, extra)


def _wishes(request: Request) -> list[_Wish]:
    out: list[_Wish] = []
    names = _values(request, _USER)
    if names and names[0]:
        account = serviceaccounts.split_user_name(names[0])
        out.append(_Wish("User", names[0]) if account is None else _Wish("ServiceAccount", account[1], account[0]))
    out += [_Wish("Group", name) for name in _values(request, _GROUP)]
    for header in request.headers:
        if header.startswith(_EXTRA):
            key = unquote(header[len(_EXTRA) :].decode("latin-1"))
            out += [_Wish("UserExtra", value, "", key) for value in _values(request, header)]
    uids = _values(request, _UID)
    if uids and uids[0]:
        out.append(_Wish("UID", uids[0]))
    if out and out[0].kind not in ("User", "ServiceAccount"):
        asked = " ".join(wish.printed() for wish in out)
        uri = request.target.decode("latin-1")
        raise Malformed(
            f"Internal Server Error: {go_quote(uri)}: requested [{asked}] without impersonating a user\n"
            .replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        )
    return out


def _values(request: Request, header: bytes) -> list[str]:
    """Each of a repeated header: they come joined with newlines, because names may hold commas."""
    value = request.headers.get(header)
    return [] if value is None else value.decode("utf-8", "replace").split("\n")
