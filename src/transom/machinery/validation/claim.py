"""PersistentVolumeClaims, and their spec elsewhere (templates of StatefulSets, ephemeral volumes)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

from transom.kit.named_tuple import NamedTuple
from transom.machinery.field import GoText, forbidden, invalid, not_supported, required
from transom.machinery.quantity import ZERO, Quantity, parse_quantity
from transom.machinery.releases import has_tables
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.releases.features import FeatureSet
from transom.machinery.resourcenames import is_native_resource
from transom.machinery.schema import SchemaType, schema_table
from transom.machinery.validation.checks import check_each, dns_subdomain, positive_quantity
from transom.machinery.validation.godiff import go_diff
from transom.machinery.validation.internal_dump import diff_internal
from transom.machinery.validation.meta import (
    immutable,
    validate_label_selector,
    validate_object_meta,
    validate_object_meta_update,
)
from transom.machinery.validation.names import (
    IMMUTABLE,
    is_qualified_name,
    name_is_dns_label,
    name_is_dns_subdomain,
)
from transom.machinery.validation.resources import check_resource_quantity
from transom.machinery.validation.rules import Errors, Object, ValidationRules

ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce")
SINGLE_POD = "ReadWriteOncePod"
_RESIZE_STATUSES = (
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
    "NodeResizePending",
)
VOLUME_MODES = ("Block", "Filesystem")
CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"


class ClaimOptions(NamedTuple):
    """What the rules of a release depend on."""

    access_modes: tuple[str, ...] = ACCESS_MODES
    names_default_group: bool = False  # errors of data sources list the kinds of the core group
    source_refs: bool = False
    attributes_class: bool = False
    class_later: bool = False  # a claim without a class may get one
    recovers: bool = False  # after a failed expansion a claim may request less
    immutable_text: str = (
        "spec is immutable after creation except resources.requests for bound claims\n"
    )
    types: SchemaType | None = None  # the spec's, where errors show it as JSON


@lru_cache(maxsize=16)
def claim_options(features: FeatureSet) -> ClaimOptions:
    release = features.release
    if not has_tables(release):
        return ClaimOptions()
    text = ClaimOptions().immutable_text
    if has_behaviour(release, "AttributesClassInErrors"):
        text = text.replace("requests for", "requests and volumeAttributesClassName for")
    types = None
    if has_behaviour(release, "JsonValuesInErrors"):
        types = schema_table(release).get("core/v1.PersistentVolumeClaimSpec")
    return ClaimOptions(
        ACCESS_MODES + ((SINGLE_POD,) if features.enabled("ReadWriteOncePod") else ()),
        has_behaviour(release, "DefaultGroupInErrors"),
        features.enabled("AnyVolumeDataSource"),
        features.enabled("VolumeAttributesClass"),
        features.enabled("RetroactiveDefaultStorageClass"),
        features.enabled("RecoverVolumeExpansionFailure"),
        text,
        types,
    )


_BASE_OPTIONS = ClaimOptions()


def check_access_modes(modes: Sequence[str], path: str, supported: Sequence[str]) -> Errors:
    errors = [not_supported(path, mode, supported) for mode in modes if mode not in supported]
    if SINGLE_POD in modes and any(mode in supported and mode != SINGLE_POD for mode in modes):
        errors.append(forbidden(path, "may not use ReadWriteOncePod with other access modes"))
    return errors


def validate_claim_spec(
    spec: Mapping[str, Any], path: str, options: ClaimOptions = _BASE_OPTIONS
) -> Errors:
    errors: Errors = []
    modes = spec.get("accessModes") or ()
    if not modes:
        errors.append(required(f"{path}.accessModes", "at least 1 access mode is required"))
    errors += validate_label_selector(spec.get("selector"), f"{path}.selector")
    errors += check_access_modes(modes, f"{path}.accessModes", options.access_modes)
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
    return errors + _sources(spec, path, options) + _attributes_class(spec, path, options)


def _sources(spec: Mapping[str, Any], path: str, options: ClaimOptions) -> Errors:
    source, ref = spec.get("dataSource"), spec.get("dataSourceRef")
    errors = [] if source is None else _source(source, f"{path}.dataSource", options)
    if ref is None or not options.source_refs:
        return errors
    errors += _source(ref, f"{path}.dataSourceRef", options)
    if ref.get("namespace"):
        errors += [
            invalid(f"{path}.dataSourceRef.namespace", ref["namespace"], text)
            for text in name_is_dns_label(ref["namespace"], False)
        ]
    if source is None:
        return errors
    shown = GoText(f"{path}.dataSource", "{}")
    if ref.get("namespace"):
        text = "may not be specified when dataSourceRef.namespace is specified"
        errors.append(invalid(path, shown, text))
    elif any(
        (source.get(name) or "") != (ref.get(name) or "") for name in ("apiGroup", "kind", "name")
    ):
        errors.append(invalid(path, shown, "must match dataSourceRef"))
    return errors


def _source(source: Mapping[str, Any], path: str, options: ClaimOptions) -> Errors:
    errors = [required(f"{path}.{name}") for name in ("name", "kind") if not source.get(name)]
    kind, group = source.get("kind", ""), source.get("apiGroup") or ""
    if not group and kind != "PersistentVolumeClaim":
        text = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
        errors.append(invalid(path, kind, text if options.names_default_group else ""))
    if group and options.names_default_group:
        errors += dns_subdomain(group, f"{path}.apiGroup")
    return errors


def _attributes_class(spec: Mapping[str, Any], path: str, options: ClaimOptions) -> Errors:
    name = spec.get("volumeAttributesClassName")
    if not name or not options.attributes_class:
        return []
    return dns_subdomain(name, f"{path}.volumeAttributesClassName")


def _request(spec: Mapping[str, Any]) -> str | None:
    return ((spec.get("resources") or {}).get("requests") or {}).get("storage")


def validate_claim(claim: Object, options: ClaimOptions = _BASE_OPTIONS) -> Errors:
    errors = validate_object_meta(claim["metadata"], True, name_is_dns_subdomain)
    return errors + validate_claim_spec(claim.get("spec") or {}, "spec", options)


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


def _class_from_nil(new: Object, old: Object) -> bool:
    """A claim without a class may get one, but not another one than its annotation names."""
    name, before = new["spec"].get("storageClassName"), old["metadata"].get("annotations") or {}
    if name is None or old["spec"].get("storageClassName") is not None:
        return False
    return bool(before.get(CLASS_ANNOTATION, name) == name)


def validate_persistent_volume_claim_update(
    new: Object, old: Object, options: ClaimOptions = _BASE_OPTIONS
) -> Errors:
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    if before.get("volumeAttributesClassName") is not None:
        options = options._replace(attributes_class=True)
    errors = (
        validate_claim(new, options)
        + validate_object_meta_update(new["metadata"], old["metadata"])
        + validate_claim(new, options)
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
        if options.class_later and _class_from_nil(new, old):
            new_spec.pop("storageClassName", None)
    errors += _changed_spec(new, (new_spec, kept), (spec, before), options)
    errors += _smaller(spec, old, options)
    errors += immutable(spec.get("volumeMode"), before.get("volumeMode"), "volumeMode")
    return errors + _changed_attributes_class(spec, old, options)


def _changed_spec(
    new: Object,
    specs: tuple[dict[str, Any], dict[str, Any]],
    given: tuple[dict[str, Any], dict[str, Any]],
    options: ClaimOptions,
) -> Errors:
    new_spec, kept = specs
    spec, before = given
    size, was = _amount(_request(spec)), _amount(_request(before))
    bound = (new.get("status") or {}).get("phase") == "Bound"
    # A bound claim may request more; amounts are compared by value.
    if bound or size == was:
        new_spec = _with_storage(new_spec, _request(before))
        kept = _with_storage(kept, _request(before))
    if bound and options.attributes_class:
        new_spec, kept = _without_attributes(new_spec), _without_attributes(kept)
    if new_spec == kept:
        return []
    if options.types is None:
        difference = go_diff("core.PersistentVolumeClaimSpec", new_spec, kept)
    else:
        # What may change is shown with the same value.
        shown = {"volumeName": spec, "volumeAttributesClassName": before}
        for name, holder in shown.items():
            if name not in new_spec and name not in kept and name in holder:
                new_spec, kept = {**new_spec, name: holder[name]}, {**kept, name: holder[name]}
        difference = diff_internal(options.types, kept, new_spec)
    return [forbidden("spec", options.immutable_text + difference)]


def _without_attributes(spec: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in spec.items() if name != "volumeAttributesClassName"}


def _smaller(spec: dict[str, Any], old: Object, options: ClaimOptions) -> Errors:
    size, path = _amount(_request(spec)), "spec.resources.requests.storage"
    if size >= _amount(_request(old.get("spec") or {})):
        return []
    status = old.get("status") or {}
    if not (
        options.recovers
        or status.get("allocatedResources")
        or status.get("allocatedResourceStatuses")
    ):
        return [forbidden(path, "field can not be less than previous value")]
    if size <= _amount((status.get("capacity") or {}).get("storage")):
        return [forbidden(path, "field can not be less than status.capacity")]
    return []


def _changed_attributes_class(
    spec: Mapping[str, Any], old: Object, options: ClaimOptions
) -> Errors:
    name, field = spec.get("volumeAttributesClassName"), "spec.volumeAttributesClassName"
    if name == (old.get("spec") or {}).get("volumeAttributesClassName"):
        return []
    if (old.get("status") or {}).get("currentVolumeAttributesClassName") is None or name:
        return []
    if not options.attributes_class:
        return []
    value = "nil" if name is None else "empty string"
    text = f"update to {value} is forbidden when status.currentVolumeAttributesClassName is not nil"
    return [forbidden(field, text)]


def validate_persistent_volume_claim_status_update(
    new: Object, old: Object, options: ClaimOptions = _BASE_OPTIONS
) -> Errors:
    errors = validate_object_meta_update(new["metadata"], old["metadata"])
    if not new["metadata"].get("resourceVersion"):
        errors.append(required("resourceVersion"))
    if not (new.get("spec") or {}).get("accessModes"):
        errors.append(required("Spec.accessModes"))
    for name, text in ((new.get("status") or {}).get("capacity") or {}).items():
        errors += basic_resource(text, f"status.capacity[{name}]")
    return errors + (_expansion(new.get("status") or {}) if options.recovers else [])


def _expansion(status: Mapping[str, Any]) -> Errors:
    """How far the expansion of a volume is, for each resource."""
    errors: Errors = []
    path = "status.allocatedResourceStatuses"
    for name, state in sorted((status.get("allocatedResourceStatuses") or {}).items()):
        errors += _claim_resource(name, path)
        if state not in _RESIZE_STATUSES:
            errors.append(not_supported(path, name, _RESIZE_STATUSES))
    path = "status.allocatedResources"
    for name, text in sorted((status.get("allocatedResources") or {}).items()):
        wrong = _claim_resource(name, path) or basic_resource(text, f"{path}[{name}]")
        if not wrong:
            check_resource_quantity("storage", text, f"{path}[{name}]", wrong)
        errors += wrong
    return errors


def _claim_resource(name: str, path: str) -> Errors:
    wrong = check_each(path, name, is_qualified_name(name))
    if not wrong and is_native_resource(name) and name != "storage":
        return [not_supported(path, name, ("storage",))]
    return wrong


def basic_resource(text: str, path: str) -> Errors:
    value = parse_quantity(text).value()
    return [invalid(path, value, "must be a valid resource quantity")] if value < 0 else []


def _claim_rules(features: FeatureSet) -> ValidationRules:
    options = claim_options(features)
    return ValidationRules(
        partial(validate_claim, options=options),
        partial(validate_persistent_volume_claim_update, options=options),
        partial(validate_persistent_volume_claim_status_update, options=options),
    )


VALIDATORS = {"/PersistentVolumeClaim": _claim_rules}
