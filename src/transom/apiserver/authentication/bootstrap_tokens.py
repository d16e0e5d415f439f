"""Bootstrap tokens: a Secret in kube-system that lets a new node request its certificate."""

from __future__ import annotations

import base64
import binascii
import hmac

from transom.apiserver.authentication.chain import with_authenticated
from transom.apiserver.authentication.service_accounts import Find
from transom.apiserver.core.context import UserInfo
from transom.kit.clock import Clock, parse_rfc3339
from transom.kit.lazy import lazy_pattern
from transom.machinery import gotime
from transom.machinery.objects import Object

_TOKEN = lazy_pattern(r"([a-z0-9]{6})\.([a-z0-9]{16})")
_GROUP = lazy_pattern(r"system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]")
_TYPE = "bootstrap.kubernetes.io/token"
_DEFAULT_GROUP = "system:bootstrappers"


class BootstrapTokens:
    def __init__(self, find: Find, clock: Clock) -> None:
        self._find = find
        self._clock = clock

    def __call__(self, token: str) -> UserInfo | None:
        match = _TOKEN.fullmatch(token)
        if match is None:
            return None
        identity, given = match.groups()
        secret = self._find("secrets", "kube-system", f"bootstrap-token-{identity}")
        if (
            secret is None
            or secret["metadata"].get("deletionTimestamp")
            or secret.get("type") != _TYPE
        ):
            return None
        same = hmac.compare_digest(_data(secret, "token-secret").encode(), given.encode())
        if (
            not same
            or _data(secret, "token-id") != identity
            or self._expired(_data(secret, "expiration"))
        ):
            return None
        if _data(secret, "usage-bootstrap-authentication") != "true":
            return None
        groups = _groups(_data(secret, "auth-extra-groups"))
        return (
            None
            if groups is None
            else UserInfo(f"system:bootstrap:{identity}", with_authenticated(groups))
        )

    def _expired(self, stamp: str) -> bool:
        """An invalid time counts as expired."""
        if not stamp:
            return False
        try:
            read = gotime.canonical_time(stamp)
        except gotime.TimeError:
            return True
        return read is None or parse_rfc3339(read) <= self._clock.time()


def _groups(extra: str) -> list[str] | None:
    """All groups, sorted; None if one of them is not a bootstrappers' group."""
    groups = {_DEFAULT_GROUP}
    for group in extra.split(",") if extra else ():
        if _GROUP.fullmatch(group) is None:
            return None
        groups.add(group)
    return sorted(groups)


def _data(secret: Object, key: str) -> str:
    try:
        return base64.b64decode((secret.get("data") or {}).get(key, "")).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""
