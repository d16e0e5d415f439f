"""StorageVersionMigration (storagemigration.k8s.io)."""

from __future__ import annotations

import re
from typing import Final

from transom.machinery.field import invalid, required
from transom.machinery.validation.meta import (
    immutable,
    validate_conditions,
    validate_object_meta,
    validate_object_meta_update,
)
from transom.machinery.validation.names import (
    IMMUTABLE,
    is_dns1035_label,
    is_dns1123_subdomain,
    name_is_dns_subdomain,
)
from transom.machinery.validation.rules import Errors, Object, ValidationRules

_is_resource_version = re.compile("[1-9][0-9]*").fullmatch


def _resource(migration: Object) -> Object:
    found: Object = (migration.get("spec") or {}).get("resource") or {}
    return found


def validate_storage_version_migration_create(migration: Object) -> Errors:
    errors = validate_object_meta(migration["metadata"], False, name_is_dns_subdomain)
    resource = _resource(migration)
    name, group = resource.get("resource", ""), resource.get("group", "")
    if not name:
        errors.append(required("spec.resource.resource", "resource is required to be set"))
    elif problems := is_dns1035_label(name):
        errors.append(invalid("spec.resource.resource", name, ",".join(problems)))
    if group and (problems := is_dns1123_subdomain(group)):
        errors.append(invalid("spec.resource.group", group, ",".join(problems)))
    return errors


def validate_storage_version_migration_update(new: Object, old: Object) -> Errors:
    errors = validate_storage_version_migration_create(new)
    errors += validate_object_meta_update(new["metadata"], old["metadata"])
    after, before = _resource(new), _resource(old)
    group, name = after.get("group", ""), after.get("resource", "")
    same = (group, name) == (before.get("group", ""), before.get("resource", ""))
    shown = {"Resource": {"group": group, "resource": name}}
    return errors if same else [*errors, invalid("spec", shown, IMMUTABLE)]


def _is_true(migration: Object, kind: str) -> bool:
    conditions = (migration.get("status") or {}).get("conditions") or ()
    return any(one.get("type") == kind and one.get("status") == "True" for one in conditions)


def validate_storage_version_migration_status_update(new: Object, old: Object) -> Errors:
    errors = validate_object_meta_update(new["metadata"], old["metadata"])
    status, before = new.get("status") or {}, old.get("status") or {}
    version, path = status.get("resourceVersion", ""), "status.resourceVersion"
    if version and not _is_resource_version(version):
        text = f"resource version is not well formed: {version}"
        errors.append(invalid(path, version, text))
    errors += validate_conditions(status.get("conditions"), "status.conditions")
    if before.get("resourceVersion"):
        errors += immutable(version, before["resourceVersion"], path)
    shown = status.get("conditions") or []
    succeeded, failed = _is_true(new, "Succeeded"), _is_true(new, "Failed")
    if succeeded and failed:
        text = "Both success and failed conditions cannot be true at the same time"
        errors.append(invalid("status.conditions", shown, text))
    for kind, name, now in (("Succeeded", "Success", succeeded), ("Failed", "Failed", failed)):
        if _is_true(old, kind) and not now:
            text = f"{name} condition cannot be set to false once it is true"
            errors.append(invalid("status.conditions", shown, text))
    return errors


VALIDATORS: Final = {
    "storagemigration.k8s.io/StorageVersionMigration": ValidationRules(
        validate_storage_version_migration_create,
        validate_storage_version_migration_update,
        validate_storage_version_migration_status_update,
    )
}
