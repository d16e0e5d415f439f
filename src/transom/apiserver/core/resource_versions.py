"""The resourceVersion and uid of an object to write: optimistic concurrency."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transom.apiserver.core.request_size import registry_path
from transom.apiserver.core.resources import Resource
from transom.apiserver.core.strategies import Strategy
from transom.kit.goquote import go_quote
from transom.kit.lazy import lazy_import
from transom.machinery import errors, field
from transom.machinery.integers import parse_int
from transom.machinery.objects import Object
from transom.machinery.releases.behaviour import has_behaviour
from transom.store.api import StoreRecord

if TYPE_CHECKING:
    from transom.machinery.releases import texts
else:
    texts = lazy_import("transom.machinery.releases.texts")

OBJECT_MODIFIED = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


def check_resource_version(
    res: Resource,
    strategy: Strategy,
    key: str,
    name: str,
    new: Object,
    old: Object,
    current: StoreRecord,
    patched: bool,
    dry_run: bool = False,
) -> bool:
    """Rejects an update of another version or another object. True if the caller did not
    require a version.
    """
    meta = new["metadata"]
    uid = meta.get("uid")
    # validation rejects a patch of the uid
    if uid and uid != old["metadata"]["uid"] and not patched:
        raise uid_mismatch(res, key, name, uid, old["metadata"]["uid"], dry_run)
    version = meta.get("resourceVersion") or ""
    if version in ("", "0"):
        if not strategy.unconditional_update:
            missing = field.invalid(
                "metadata.resourceVersion",
                field.GoText("0x0", "0"),
                "must be specified for an update",
            )
            raise errors.invalid(res.gr, name, texts.in_release(res.release, [missing]))
        early = strategy.checks_before_store and not is_generic(strategy, res)
        if not early or version == "0":
            meta["resourceVersion"] = old["metadata"]["resourceVersion"]
        return True
    if parse_resource_version(version) != current.mod_revision:
        raise errors.conflict(res.gr, name, OBJECT_MODIFIED)
    return False


def is_generic(strategy: Strategy, res: Resource) -> bool:
    since = strategy.generic_since
    return since is not None and has_behaviour(res.release, since)


def parse_resource_version(text: str) -> int:
    """The resourceVersion of an object to write; anything but a number is an error 500, as in
    Kubernetes.
    """
    if not (text.isascii() and text.isdigit()):
        raise errors.ApiError(
            500, "", f"strconv.ParseUint: parsing {go_quote(text)}: invalid syntax"
        )
    number = parse_int(text)
    if number >= 1 << 64:
        raise errors.ApiError(
            500, "", f"strconv.ParseUint: parsing {go_quote(text)}: value out of range"
        )
    return number


def is_resource_version(text: str) -> bool:
    return text.isascii() and text.isdigit() and parse_int(text) > 0


def drop_resource_version(meta: Object, dry_run: bool) -> None:
    """An update that creates an object may have any version, because there is none to compare it
    with. Only a dry run returns it.
    """
    if parse_resource_version(meta.get("resourceVersion") or "0") and not dry_run:
        del meta["resourceVersion"]


def uid_mismatch(
    res: Resource, key: str, name: str, given: str, actual: str, dry_run: bool = False
) -> errors.ApiError:
    return precondition_failed(res, key, name, "UID", given, actual, dry_run)


def precondition_failed(
    res: Resource, key: str, name: str, what: str, given: str, actual: str, dry_run: bool
) -> errors.ApiError:
    """A dry run does not get to etcd, whose prefix its key lacks."""
    prefix = "" if dry_run else "/registry"
    return errors.conflict(
        res.gr,
        name,
        f"StorageError: invalid object, Code: 4, Key: {prefix}/{registry_path(res, key)}, "
        "ResourceVersion: 0, "
        f"AdditionalErrorMsg: Precondition failed: {what} in precondition: {given}, {what} in "
        f"object meta: {actual}",
    )
