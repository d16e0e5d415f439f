"""Impersonation: acting as another user, if RBAC allows it."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import unquote

from transom.apiserver.authentication.chain import AUTHENTICATED
from transom.apiserver.core.context import ANONYMOUS, UserInfo
from transom.apiserver.core.requestinfo import RequestInfo
from transom.http.messages import HttpRequest
from transom.kit.escaping import escape_markup
from transom.kit.goquote import go_quote
from transom.kit.named_tuple import NamedTuple
from transom.machinery import serviceaccounts
from transom.machinery.errors import bad_request
from transom.machinery.releases import Release
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.releases.features import is_enabled

Authorize = Callable[[UserInfo, RequestInfo], None]
_PREFIX = b"impersonate-"
_USER, _GROUP, _UID, _EXTRA = (
    b"impersonate-user",
    b"impersonate-group",
    b"impersonate-uid",
    b"impersonate-extra-",
)
_UNAUTHENTICATED = "system:unauthenticated"
_AUTHENTICATION = "authentication.k8s.io"


class MalformedImpersonation(Exception):
    """Malformed headers; the text is the body of the response (500, plain text)."""


class _Impersonated(NamedTuple):
    """A user, group, UID or extra value to impersonate."""

    kind: str
    name: str
    namespace: str = ""
    key: str = ""  # the key of an extra

    @property
    def group(self) -> str:
        return _AUTHENTICATION if self.kind in ("UserExtra", "UID") else ""

    def printed(self) -> str:
        """Formatted like a Go object reference: kind, namespace, name, uid, version, resource
        version, field path.
        """
        version = f"{_AUTHENTICATION}/v1" if self.group else ""
        return f"{{{self.kind} {self.namespace} {self.name}  {version}  {self.key}}}"


_RESOURCES = {
    "User": "users",
    "ServiceAccount": "serviceaccounts",
    "Group": "groups",
    "UserExtra": "userextras",
    "UID": "uids",
}


def is_impersonation(request: HttpRequest) -> bool:
    """Whether the request may have an impersonation header. Every request comes here."""
    return _PREFIX in b"\n".join(request.headers)


def impersonate(
    request: HttpRequest, user: UserInfo, authorize: Authorize, release: Release
) -> UserInfo:
    """The effective user; raises 403 if `user` may not impersonate it, or 400 or
    MalformedImpersonation if the request does not name it.
    """
    identities = _impersonated(request, release)
    if identities and identities[0].kind not in ("User", "ServiceAccount"):
        raise _without_user(request, identities, release)
    if not identities:
        return user
    for identity in identities:
        authorize(
            user,
            RequestInfo(
                True,
                request.path,
                "impersonate",
                identity.group,
                "v1",
                identity.namespace,
                _RESOURCES[identity.kind],
                identity.name,
                identity.key,
            ),
        )
    first = identities[0]
    name, uid = first.name, ""
    groups = [identity.name for identity in identities if identity.kind == "Group"]
    if first.kind == "ServiceAccount":
        name = serviceaccounts.user_name(first.namespace, first.name)
        groups = groups or list(serviceaccounts.group_names(first.namespace))
    extra: dict[str, list[str]] = {}
    for identity in identities:
        if identity.kind == "UserExtra":
            extra.setdefault(identity.key, []).append(identity.name)
        elif identity.kind == "UID":
            uid = identity.name
    if name == ANONYMOUS.name:
        if _UNAUTHENTICATED not in groups:
            groups.append(_UNAUTHENTICATED)
    elif AUTHENTICATED not in groups and _UNAUTHENTICATED not in groups:
        groups.append(AUTHENTICATED)
    return UserInfo(name, tuple(groups), uid, extra)


def _without_user(
    request: HttpRequest, identities: list[_Impersonated], release: Release
) -> Exception:
    requested = f"[{' '.join(identity.printed() for identity in identities)}]"
    if is_enabled(release, "ConstrainedImpersonation"):
        return bad_request(f"requested {_go_user(identities)} without impersonating a user name")
    text = f"requested {requested} without impersonating a user"
    if has_behaviour(release, "ImpersonationErrors"):
        return bad_request(text)
    uri = request.target.decode("latin-1")
    text = f"Internal Server Error: {go_quote(uri)}: {text}\n"
    return MalformedImpersonation(escape_markup(text))


def _go_user(identities: list[_Impersonated]) -> str:
    """The user without a name, in Go syntax."""
    uid = next((identity.name for identity in identities if identity.kind == "UID"), "")
    extra: dict[str, list[str]] = {}
    for identity in identities:
        if identity.kind == "UserExtra":
            extra.setdefault(identity.key, []).append(identity.name)
    groups = _go_strings([identity.name for identity in identities if identity.kind == "Group"])
    entries = ", ".join(f"{go_quote(key)}:{_go_strings(extra[key])}" for key in sorted(extra))
    shown = f"map[string][]string{{{entries}}}" if extra else "map[string][]string(nil)"
    return f'&user.DefaultInfo{{Name:"", UID:{go_quote(uid)}, Groups:{groups}, Extra:{shown}}}'


def _go_strings(values: list[str]) -> str:
    return f"[]string{{{', '.join(map(go_quote, values))}}}" if values else "[]string(nil)"


def _impersonated(request: HttpRequest, release: Release) -> list[_Impersonated]:
    out: list[_Impersonated] = []
    names = _values(request, _USER)
    if names and names[0]:
        account = serviceaccounts.split_user_name(names[0])
        out.append(
            _Impersonated("User", names[0])
            if account is None
            else _Impersonated("ServiceAccount", account[1], account[0])
        )
    out += [_Impersonated("Group", name) for name in _values(request, _GROUP)]
    for header in request.headers:
        if header.startswith(_EXTRA):
            key = unquote(header[len(_EXTRA) :].decode("latin-1"))
            out += [
                _Impersonated("UserExtra", value, "", key) for value in _values(request, header)
            ]
    uids = _values(request, _UID) if has_behaviour(release, "ImpersonateUid") else ()
    if uids and uids[0]:
        out.append(_Impersonated("UID", uids[0]))
    return out


def _values(request: HttpRequest, header: bytes) -> list[str]:
    """The values of a repeated header: they are joined with newlines, because names may contain
    commas.
    """
    value = request.headers.get(header)
    return [] if value is None else value.decode("utf-8", "replace").split("\n")
