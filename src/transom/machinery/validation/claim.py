"""PersistentVolumeClaims, and their spec elsewhere (templates of StatefulSets, ephemeral volumes)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transom.machinery.field import forbidden, invalid, not_supported, required
from transom.machinery.quantity import ZERO, Quantity, parse_quantity
from transom.machinery.validation.checks import dns_subdomain, positive_quantity
from transom.machinery.validation.godiff import go_diff
from transom.machinery.validation.meta import (
    immutable,
    validate_label_selector,
    validate_object_meta,
    validate_object_meta_update,
)
from transom.machinery.validation.names import IMMUTABLE, name_is_dns_subdomain
from transom.machinery.validation.resources import check_resource_quantity
from transom.machinery.validation.rules import Errors, Object, ValidationRules

ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce")
VOLUME_MODES = ("Block", "Filesystem")
CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"


def validate_claim_spec(spec: Mapping[str, Any], path: str) -> Errors:
    errors: Errors = []
    modes = spec.get("accessModes") or ()
    if not modes:
        errors.append(required(f"{path}.accessModes", "at least 1 access mode is required"))
    errors += validate_label_selector(spec.get("selector"), f"{path}.selector")
    errors += [
        not_supported(f"{path}.accessModes", mode, ACCESS_MODES)
        for mode in modes
        if mode not in ACCESS_MODES
    ]
    storage, where = _request(spec), f"{path}.resources[storage]"
    if storage is None:
        errors.append(required(where))
    elif not_positive := positive_quantity(storage, where):
        errors += not_positive
    else:
        check_resource_quantity("storage", storage, where, errors)
    if spec.get("storageClassName"):
        errors += dns_subdomain(spec["storageClassName"], f"{path}.storageClassName")
    mode = spec.get("volumeMode")
    if mode is not None and mode not in VOLUME_MODES:
        errors.append(not_supported(f"{path}.volumeMode", mode, VOLUME_MODES))
    source = spec.get("dataSource")
    if source is not None:
        errors += [
            required(f"{path}.dataSource.{name}")
            for name in ("name", "kind")
            if not source.get(name)
        ]
        if not source.get("apiGroup") and source.get("kind") != "PersistentVolumeClaim":
            errors.append(invalid(f"{path}.dataSource", source.get("kind", ""), ""))
    return errors


def _request(spec: Mapping[str, Any]) -> str | None:
    return ((spec.get("resources") or {}).get("requests") or {}).get("storage")


def validate_claim(claim: Object) -> Errors:
    errors = validate_object_meta(claim["metadata"], True, name_is_dns_subdomain)
    return errors + validate_claim_spec(claim.get("spec") or {}, "spec")


def _class_upgrade(new: Object, old: Object) -> bool:
    """The class may move, once, from the old annotation to the field that replaced it."""
    before, after = (
        old["metadata"].get("annotations") or {},
        new["metadata"].get("annotations") or {},
    )
    if CLASS_ANNOTATION not in before or old["spec"].get("storageClassName") is not None:
        return False
    name = before[CLASS_ANNOTATION]
    return new["spec"].get("storageClassName") == name and after.get(CLASS_ANNOTATION, name) == name


def _with_storage(spec: dict[str, Any], amount: str | None) -> dict[str, Any]:
    resources = dict(spec.get("resources") or {})
    requests = {
        key: value for key, value in (resources.get("requests") or {}).items() if key != "storage"
    }
    if amount is not None:
        requests["storage"] = amount
    resources["requests"] = requests
    return {**spec, "resources": resources}


def _amount(text: str | None) -> Quantity:
    return ZERO if text is None else parse_quantity(text)


def update_claim(new: Object, old: Object) -> Errors:
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    errors = (
        validate_claim(new)
        + validate_object_meta_update(new["metadata"], old["metadata"])
        + validate_claim(new)
    )
    new_spec, kept = dict(spec), dict(before)
    if not before.get("volumeName"):
        kept.pop("volumeName", None)
        new_spec.pop("volumeName", None)
    if _class_upgrade(new, old):
        new_spec.pop("storageClassName", None)
    else:
        annotation = (new["metadata"].get("annotations") or {}).get(CLASS_ANNOTATION, "")
        if annotation != (old["metadata"].get("annotations") or {}).get(CLASS_ANNOTATION, ""):
            errors.append(
                invalid(f"metadata.annotations.{CLASS_ANNOTATION}", annotation, IMMUTABLE)
            )
    size, was = _amount(_request(spec)), _amount(_request(before))
    # A bound claim may request more; amounts are compared by value.
    if (new.get("status") or {}).get("phase") == "Bound" or size == was:
        new_spec = _with_storage(new_spec, _request(before))
        kept = _with_storage(kept, _request(before))
    if new_spec != kept:
        errors.append(
            forbidden(
                "spec",
                "spec is immutable after creation except resources.requests for bound claims\n"
                + go_diff("core.PersistentVolumeClaimSpec", new_spec, kept),
            )
        )
    if size < was:
        errors.append(
            forbidden(
                "spec.resources.requests.storage", "field can not be less than previous value"
            )
        )
    return errors + immutable(spec.get("volumeMode"), before.get("volumeMode"), "volumeMode")


def update_claim_status(new: Object, old: Object) -> Errors:
    errors = validate_object_meta_update(new["metadata"], old["metadata"])
    if not new["metadata"].get("resourceVersion"):
        errors.append(required("resourceVersion"))
    if not (new.get("spec") or {}).get("accessModes"):
        errors.append(required("Spec.accessModes"))
    for name, text in ((new.get("status") or {}).get("capacity") or {}).items():
        errors += basic_resource(text, f"status.capacity[{name}]")
    return errors


def basic_resource(text: str, path: str) -> Errors:
    value = parse_quantity(text).value()
    return [invalid(path, value, "must be a valid resource quantity")] if value < 0 else []


VALIDATORS = {
    "/PersistentVolumeClaim": ValidationRules(validate_claim, update_claim, update_claim_status)
}
