"""PersistentVolumes, and their spec when inlined in an attachment."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from transom.machinery.field import forbidden, invalid, not_supported, required
from transom.machinery.releases import has_tables
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.releases.features import FeatureSet
from transom.machinery.schema import SchemaType, schema_table
from transom.machinery.validation.checks import (
    csi_driver_name,
    dns_label,
    dns_subdomain,
    positive_quantity,
)
from transom.machinery.validation.claim import (
    ACCESS_MODES,
    SINGLE_POD,
    VOLUME_MODES,
    basic_resource,
    check_access_modes,
)
from transom.machinery.validation.common import check_no_backsteps, check_required
from transom.machinery.validation.godiff import go_diff
from transom.machinery.validation.godump import go_dump
from transom.machinery.validation.internal_dump import diff_internal
from transom.machinery.validation.meta import (
    immutable,
    validate_object_meta,
    validate_object_meta_update,
)
from transom.machinery.validation.names import (
    byte_len,
    is_label_value,
    name_is_dns_subdomain,
    range_error,
)
from transom.machinery.validation.rules import Errors, Object, ValidationRules
from transom.machinery.validation.scheduling import check_node_selector
from transom.machinery.validation.volumes import (
    ISCSI_FORMS,
    check_azure_disk,
    check_disk,
    check_fc,
    check_flex_volume,
    check_flocker,
    check_host_path,
    check_nfs,
    check_quobyte,
    check_required_fields,
)

Check = Callable[[dict[str, Any], str, Errors], None]
MOUNT_OPTIONS = "volume.beta.kubernetes.io/mount-options"
_POLICIES = ("Delete", "Recycle", "Retain")
_INLINE = "may not be specified in the context of inline volumes"


def _secret_reference(source: dict[str, Any], path: str, errors: Errors) -> None:
    if source.get("secretRef") is not None:
        check_required(source["secretRef"], ("name", "namespace"), f"{path}.secretRef", errors)


def _glusterfs(source: dict[str, Any], path: str, errors: Errors) -> None:
    check_required(source, ("endpoints", "path"), path, errors)
    namespace = source.get("endpointsNamespace")
    if namespace == "":
        errors.append(
            invalid(
                f"{path}.endpointsNamespace",
                "",
                "if the endpointnamespace is set, it must be a valid namespace name",
            )
        )
    elif namespace is not None:
        errors += dns_label(namespace, f"{path}.endpointsNamespace")


def _iscsi_name(name: str, path: str) -> Errors:
    form = ISCSI_FORMS.get(name[:3])
    return [] if form is not None and form(name) else [invalid(path, name, "must be valid format")]


def _iscsi(source: dict[str, Any], path: str, errors: Errors) -> None:
    iqn, lun, initiator = source.get("iqn", ""), source.get("lun", 0), source.get("initiatorName")
    check_required(source, ("targetPortal", "iqn"), path, errors)
    if iqn:
        errors += _iscsi_name(iqn, f"{path}.iqn")
    if not 0 <= lun <= 255:
        errors.append(invalid(f"{path}.lun", lun, range_error(0, 255)))
    secret = source.get("secretRef")
    if secret is None:
        if source.get("chapAuthDiscovery") or source.get("chapAuthSession"):
            errors.append(required(f"{path}.secretRef"))
    elif not secret.get("name"):
        errors.append(required(f"{path}.secretRef.name"))
    if initiator is not None:
        errors += _iscsi_name(initiator, f"{path}.initiatorname")


def _cinder(source: dict[str, Any], path: str, errors: Errors) -> None:
    check_required(source, ("volumeID",), path, errors)
    _secret_reference(source, path, errors)


def _azure_file(source: dict[str, Any], path: str, errors: Errors) -> None:
    check_required(source, ("secretName", "shareName"), path, errors)
    if source.get("secretNamespace") == "":
        errors.append(required(f"{path}.secretNamespace"))


def _local(source: dict[str, Any], path: str, errors: Errors) -> None:
    if not source.get("path"):
        errors.append(required(f"{path}.path"))
    else:
        check_no_backsteps(source["path"], f"{path}.path", errors)


def _storage_os(source: dict[str, Any], path: str, errors: Errors) -> None:
    name, namespace = source.get("volumeName"), source.get("volumeNamespace")
    errors += dns_label(name, f"{path}.volumeName") if name else [required(f"{path}.volumeName")]
    if namespace:
        errors += dns_label(namespace, f"{path}.volumeNamespace")
    _secret_reference(source, path, errors)


def _csi(source: dict[str, Any], path: str, errors: Errors) -> None:
    errors += csi_driver_name(source.get("driver", ""), f"{path}.driver")
    check_required(source, ("volumeHandle",), path, errors)
    # The space in the last path is Kubernetes' own.
    for field, shown in (
        ("controllerPublishSecretRef", "controllerPublishSecretRef"),
        ("controllerExpandSecretRef", "controllerExpandSecretRef"),
        ("nodePublishSecretRef", "nodePublishSecretRef "),
    ):
        reference = source.get(field)
        if reference is None:
            continue
        for name in ("name", "namespace"):
            value = reference.get(name)
            errors += (
                dns_label(value, f"{path}.{name}")
                if value
                else [required(f"{path}.{shown}.{name}")]
            )


_CSI_SECRETS = (
    "controllerPublishSecretRef",
    "controllerExpandSecretRef",
    "nodePublishSecretRef",
    "nodeExpandSecretRef",
)


def _csi_since_1_25(source: dict[str, Any], path: str, errors: Errors) -> None:
    errors += csi_driver_name(source.get("driver", ""), f"{path}.driver")
    check_required(source, ("volumeHandle",), path, errors)
    for field in _CSI_SECRETS:
        reference, where = source.get(field), f"{path}.{field}"
        if reference is not None:
            name, namespace = reference.get("name"), reference.get("namespace")
            errors += dns_subdomain(name, f"{where}.name") if name else [required(f"{where}.name")]
            errors += (
                dns_label(namespace, f"{where}.namespace")
                if namespace
                else [required(f"{where}.namespace")]
            )


# source -> (check, last part of the path in its errors, last part if it is an extra source)
_SOURCES: dict[str, tuple[Check, str, str]] = {
    name: (check, more[0] if more else name, more[1] if more else name)
    for name, check, *more in (
        ("hostPath", check_host_path),
        ("gcePersistentDisk", check_disk("pdName"), "persistentDisk", "gcePersistentDisk"),
        ("awsElasticBlockStore", check_disk("volumeID")),
        ("glusterfs", _glusterfs),
        ("flocker", check_flocker),
        ("nfs", check_nfs),
        ("rbd", check_required_fields("monitors", "image")),
        ("quobyte", check_quobyte),
        ("cephfs", check_required_fields("monitors"), "cephfs", "cephFS"),
        ("iscsi", _iscsi),
        ("cinder", _cinder),
        ("fc", check_fc),
        ("flexVolume", check_flex_volume),
        ("azureFile", _azure_file),
        ("vsphereVolume", check_required_fields("volumePath")),
        ("photonPersistentDisk", check_required_fields("pdID")),
        ("portworxVolume", check_required_fields("volumeID")),
        ("azureDisk", check_azure_disk),
        ("scaleIO", check_required_fields("gateway", "system", "volumeName")),
        ("local", _local),
        ("storageos", _storage_os),
        ("csi", _csi),
    )
}
_TAKES_MOUNT_OPTIONS = frozenset(
    (
        "gcePersistentDisk",
        "awsElasticBlockStore",
        "glusterfs",
        "nfs",
        "rbd",
        "quobyte",
        "iscsi",
        "cinder",
        "cephfs",
        "azureFile",
        "vsphereVolume",
        "azureDisk",
        "photonPersistentDisk",
    )
)


def _volume_source(
    spec: Mapping[str, Any], name: str, path: str, inline: bool, options: VolumeOptions
) -> Errors:
    errors: Errors = []
    taken = False
    for field, (check, shown, clash) in _SOURCES.items():
        source = spec.get(field)
        if source is None:
            continue
        # A flex volume never counts as an extra source.
        if taken and field != "flexVolume":
            errors.append(forbidden(f"{path}.{clash}", "may not specify more than 1 volume type"))
            continue
        taken = True
        if field == "csi" and options.secret_references:
            check = _csi_since_1_25
        check(source, f"{path}.{shown}", errors)
        portal = (
            source.get("targetPortal", "") if field == "iscsi" and "initiatorName" in source else ""
        )
        if portal and byte_len(f"{name}:{portal}") > 64:
            errors.append(
                invalid(
                    f"{path}.iscsi.targetportal",
                    portal,
                    "Total length of <volume name>:<iscsi.targetPortal> must be under 64 "
                    "characters if "
                    "iscsi.initiatorName is specified.",
                )
            )
        if field == "local" and (inline or spec.get("nodeAffinity") is None):
            errors.append(required(f"{path}.nodeAffinity", "Local volume requires node affinity"))
    return errors if taken else [*errors, required(path, "must specify a volume type")]


def _inline_only(spec: Mapping[str, Any], path: str) -> Errors:
    errors = [
        forbidden(f"{path}.{name}", _INLINE) for name in ("claimRef", "capacity") if spec.get(name)
    ]
    if spec.get("csi") is None:
        errors.append(
            required(f"{path}.csi", "has to be specified in the context of inline volumes")
        )
    return errors


def _capacity(spec: Mapping[str, Any], path: str) -> Errors:
    capacity = spec.get("capacity") or {}
    errors = [] if capacity else [required(f"{path}.capacity")]
    if "storage" not in capacity or len(capacity) > 1:
        errors.append(
            not_supported(f"{path}.capacity", go_dump("core.ResourceList", capacity), ("storage",))
        )
    for name, text in capacity.items():
        errors += basic_resource(text, f"{path}.capacity[{name}]") + positive_quantity(
            text, f"{path}.capacity[{name}]"
        )
    return errors


def _node_affinity(affinity: Mapping[str, Any], path: str, *, values: bool) -> Errors:
    errors: Errors = []
    if affinity.get("required") is not None:
        check_node_selector(affinity["required"], f"{path}.required", errors, values=values)
    else:
        errors.append(required(f"{path}.required", "must specify required node constraints"))
    return errors


class VolumeOptions(NamedTuple):
    """What the rules of a release depend on."""

    access_modes: tuple[str, ...] = ACCESS_MODES
    attributes_class: bool = False
    moves: bool = False  # the node affinity may change
    types: SchemaType | None = None  # the spec's, where errors show it as JSON
    secret_references: bool = False  # of CSI volumes are checked each by itself
    node_values: bool = False  # the values of a node affinity are those of labels


_BASE_VOLUME = VolumeOptions()


def volume_options(features: FeatureSet) -> VolumeOptions:
    if not has_tables(features.release):
        return _BASE_VOLUME
    types = None
    if has_behaviour(features.release, "JsonValuesInErrors"):
        types = schema_table(features.release).get("core/v1.PersistentVolumeSource")
    return VolumeOptions(
        ACCESS_MODES + ((SINGLE_POD,) if features.enabled("ReadWriteOncePod") else ()),
        features.enabled("VolumeAttributesClass"),
        features.enabled("MutablePVNodeAffinity"),
        types,
        has_behaviour(features.release, "CsiSecretReferences"),
        has_behaviour(features.release, "NodeAffinityValues"),
    )


def _attributes_class(spec: Mapping[str, Any], path: str) -> Errors:
    name, where = spec.get("volumeAttributesClassName"), f"{path}.volumeAttributesClassName"
    if name is None:
        return []
    errors = (
        dns_subdomain(name, where) if name else [required(where, "an empty string is disallowed")]
    )
    if spec.get("csi") is None:
        text = "has to be specified when using volumeAttributesClassName"
        errors.append(required(f"{path}.csi", text))
    return errors


def validate_volume_spec(
    spec: Mapping[str, Any],
    name: str,
    path: str,
    *,
    inline: bool = False,
    options: VolumeOptions = _BASE_VOLUME,
) -> Errors:
    errors = _inline_only(spec, path) if inline else []
    modes, policy = spec.get("accessModes") or (), spec.get("persistentVolumeReclaimPolicy", "")
    if not modes:
        errors.append(required(f"{path}.accessModes"))
    errors += check_access_modes(modes, f"{path}.accessModes", options.access_modes)
    if not inline:
        errors += _capacity(spec, path)
    where = f"{path}.persistentVolumeReclaimPolicy"
    if inline and policy not in ("", "Retain"):
        errors.append(forbidden(where, "may only be Retain in the context of inline volumes"))
    elif not inline and policy and policy not in _POLICIES:
        errors.append(not_supported(where, policy, _POLICIES))
    if spec.get("nodeAffinity") is not None:
        errors += (
            [forbidden(f"{path}.nodeAffinity", _INLINE)]
            if inline
            else _node_affinity(
                spec["nodeAffinity"], f"{path}.nodeAffinity", values=options.node_values
            )
        )
    errors += _volume_source(spec, name, path, inline, options)
    host_path = (spec.get("hostPath") or {}).get("path", "")
    if policy == "Recycle" and host_path and posixpath.normpath(host_path) in ("/", "//"):
        errors.append(forbidden(where, "may not be 'recycle' for a hostPath mount of '/'"))
    if spec.get("storageClassName"):
        where = f"{path}.storageClassName"
        errors += (
            [forbidden(where, _INLINE)]
            if inline
            else dns_subdomain(spec["storageClassName"], where)
        )
    mode, where = spec.get("volumeMode"), f"{path}.volumeMode"
    if inline and mode not in (None, "Filesystem"):
        errors.append(
            forbidden(
                where,
                "may not specify volumeMode other than Filesystem in the context of inline volumes",
            )
        )
    elif not inline and mode is not None and mode not in VOLUME_MODES:
        errors.append(not_supported(where, mode, VOLUME_MODES))
    if options.attributes_class:
        errors += _attributes_class(spec, path)
    return errors


def validate_volume(volume: Object, options: VolumeOptions = _BASE_VOLUME) -> Errors:
    meta = volume["metadata"]
    errors = validate_object_meta(meta, False, name_is_dns_subdomain)
    return errors + validate_volume_spec(
        volume.get("spec") or {}, meta.get("name", ""), "spec", options=options
    )


def _mount_options(volume: Object) -> Errors:
    spec = volume.get("spec") or {}
    if (
        MOUNT_OPTIONS in (volume["metadata"].get("annotations") or {})
        and not _TAKES_MOUNT_OPTIONS & spec.keys()
    ):
        return [
            forbidden(
                f"metadata.annotations.{MOUNT_OPTIONS}",
                "may not specify mount options for this volume type",
            )
        ]
    return []


def validate_persistent_volume_create(
    volume: Object, options: VolumeOptions = _BASE_VOLUME
) -> Errors:
    return validate_volume(volume, options) + _mount_options(volume)


def _source_of(spec: Mapping[str, Any]) -> dict[str, Any]:
    return {name: spec[name] for name in _SOURCES if name in spec}


def _has_label_values(selector: Mapping[str, Any]) -> bool:
    return not any(
        is_label_value(value)
        for term in selector.get("nodeSelectorTerms") or ()
        for requirement in term.get("matchExpressions") or ()
        for value in requirement.get("values") or ()
    )


def validate_persistent_volume_update(
    new: Object, old: Object, options: VolumeOptions = _BASE_VOLUME
) -> Errors:
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    named = before.get("volumeAttributesClassName") is not None
    required = (before.get("nodeAffinity") or {}).get("required") or {}
    stays = options.node_values and not _has_label_values(required)  # bad values may stay
    options = options._replace(
        attributes_class=options.attributes_class or named,
        node_values=options.node_values and not stays,
    )
    errors = validate_persistent_volume_create(new, options) + validate_volume(new, options)
    source, was = _source_of(spec), _source_of(before)
    expand = "controllerExpandSecretRef"
    # The secret for expansion may be added later.
    if "csi" in source and "csi" in was and expand not in was["csi"]:
        source["csi"] = {key: value for key, value in source["csi"].items() if key != expand}
    if source != was:
        errors.append(
            forbidden(
                "spec.persistentvolumesource",
                "spec.persistentvolumesource is immutable after creation\n"
                + _source_difference(source, was, options),
            )
        )
    errors += immutable(spec.get("volumeMode"), before.get("volumeMode"), "volumeMode")
    if before.get("nodeAffinity") is not None and not options.moves:
        affinity = spec.get("nodeAffinity")
        errors += immutable(
            affinity,
            before["nodeAffinity"],
            "nodeAffinity",
            affinity and go_dump("core.VolumeNodeAffinity", affinity),
        )
    if named and options.attributes_class and spec.get("volumeAttributesClassName") is None:
        text = "update from non-nil value to nil is forbidden"
        errors.append(forbidden("spec.volumeAttributesClassName", text))
    return errors


def _source_difference(source: dict[str, Any], was: dict[str, Any], options: VolumeOptions) -> str:
    if options.types is None:
        return go_diff("core.PersistentVolumeSource", source, was)
    return diff_internal(options.types, was, source)


def validate_persistent_volume_status_update(new: Object, old: Object) -> Errors:
    errors = validate_object_meta_update(new["metadata"], old["metadata"])
    return (
        errors if new["metadata"].get("resourceVersion") else [*errors, required("resourceVersion")]
    )


def _volume_rules(features: FeatureSet) -> ValidationRules:
    options = volume_options(features)
    return ValidationRules(
        partial(validate_persistent_volume_create, options=options),
        partial(validate_persistent_volume_update, options=options),
        validate_persistent_volume_status_update,
    )


VALIDATORS = {"/PersistentVolume": _volume_rules}
