"""The refusal of an admission plugin."""

from __future__ import annotations

from transom.apiserver.admission.attributes import Attributes
from transom.machinery import errors
from transom.machinery.errors import ApiError


def forbidden(attributes: Attributes, why: str) -> ApiError:
    """403 with the object's name, or what is known of it before it has one."""
    meta = (attributes.obj or {}).get("metadata") or {}
    name = attributes.name or meta.get("name") or meta.get("generateName") or "Unknown"
    return errors.forbidden(attributes.resource.gr, name, why)
