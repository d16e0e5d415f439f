"""Removes data that must never be recorded, whatever the policy: tokens in URLs and in Secrets.
Pure functions.
"""

from __future__ import annotations

import re
from typing import Any

from transom.kit.lazy import lazy_pattern

REDACTED = "REDACTED"
# Keys of Secrets: a service account token, and the secret part of a bootstrap token.
_TOKEN_KEYS = ("token", "token-secret")
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_URL_TOKEN = lazy_pattern(r"([?&;](?:access_token|id_token|token)=)[^&;]*", re.IGNORECASE)


def redact_url(target: str) -> str:
    return _URL_TOKEN.sub(rf"\1{REDACTED}", target) if "token" in target.lower() else target


def redact_secret(value: Any) -> Any:
    """A Secret, a list or table of them, or any kind of patch, without the tokens."""
    if isinstance(value, list):
        return [redact_secret(item) for item in value]
    if not isinstance(value, dict):
        return value
    out = {}
    for key, item in value.items():
        if (key in _TOKEN_KEYS and isinstance(item, str)) or key == _LAST_APPLIED:
            out[key] = REDACTED
        else:
            out[key] = redact_secret(item)
    path = value.get("path")
    if (
        "op" in value
        and "value" in value
        and isinstance(path, str)
        and path.rsplit("/", 1)[-1] in _TOKEN_KEYS
    ):
        out["value"] = REDACTED
    return out


def redact_managed_fields(value: Any) -> Any:
    """An object, or a list of objects, without its managed fields."""
    if not isinstance(value, dict):
        return value
    out = dict(value)
    meta = out.get("metadata")
    if isinstance(meta, dict) and "managedFields" in meta:
        out["metadata"] = {k: v for k, v in meta.items() if k != "managedFields"}
    if isinstance(out.get("items"), list):
        out["items"] = [redact_managed_fields(item) for item in out["items"]]
    return out
