"""The kinds of storage.k8s.io: classes, CSI drivers and their nodes, capacities, attachments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from transom.kit.named_tuple import NamedTuple
from transom.machinery.field import (
    duplicate,
    errors_are_omitted,
    forbidden,
    invalid,
    not_supported,
    required,
    too_long,
)
from transom.machinery.releases import Release, has_tables
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.releases.features import FeatureSet
from transom.machinery.validation.checks import (
    check_each,
    csi_driver_name,
    dns_subdomain,
    nonnegative_quantity,
    token_lifetime,
)
from transom.machinery.validation.godump import go_dump
from transom.machinery.validation.meta import (
    immutable,
    nonnegative,
    validate_label_name,
    validate_label_selector,
    validate_object_meta,
    validate_object_meta_update,
)
from transom.machinery.validation.names import (
    IMMUTABLE,
    byte_len,
    is_qualified_name,
    name_is_dns_subdomain,
)
from transom.machinery.validation.persistentvolume import VolumeOptions, validate_volume_spec
from transom.machinery.validation.repetitions import repetitions
from transom.machinery.validation.rules import Errors, Object, RulesFactory, ValidationRules

_PARAMETERS_LIMIT = 256 * 1024
_INLINE = VolumeOptions()
_INLINE_SINCE_1_36 = VolumeOptions(secret_references=True)
_BINDING_MODES = ("Immediate", "WaitForFirstConsumer")
_ONE_SOURCE = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"


def _size(values: Mapping[str, str]) -> int:
    return sum(byte_len(key) + byte_len(value) for key, value in values.items())


def _parameters(parameters: Mapping[str, str]) -> Errors:
    if len(parameters) > 512:
        return [too_long("parameters", "", 512)]
    errors = [invalid("parameters", "", "field can not be empty.")] if "" in parameters else []
    if _size(parameters) > _PARAMETERS_LIMIT:
        errors.append(too_long("parameters", "", _PARAMETERS_LIMIT))
    return errors


def _topologies(terms: Sequence[Mapping[str, Any]]) -> Errors:
    errors: Errors = []
    # As many empty terms as there are terms count as seen from the start, so every empty term is a
    # duplicate.
    seen = Counter({frozenset[tuple[str, frozenset[str]]](): len(terms)})
    for i, term in enumerate(terms):
        path = f"allowedTopologies[{i}].matchLabelExpressions"
        held: dict[str, frozenset[str]] = {}
        for j, expression in enumerate(term.get("matchLabelExpressions") or ()):
            key, values = expression.get("key", ""), expression.get("values") or ()
            if not values:
                errors.append(required(f"{path}[{j}].values"))
            before: set[str] = set()
            for n, v in enumerate(values):
                if v in before:
                    errors.append(duplicate(f"{path}[{j}].values[{n}]", v))
                before.add(v)
            errors += validate_label_name(key, f"{path}[{j}].key")
            if key in held:
                errors.append(duplicate(f"{path}[{j}].key", key))
            held[key] = frozenset(values)
        same = frozenset(held.items())
        for _ in range(seen[same]):
            if errors_are_omitted():
                break
            errors.append(duplicate(path, ""))
        seen[same] += 1
    return errors


def validate_storage_class(obj: Object) -> Errors:
    provisioner, mode = obj.get("provisioner", ""), obj.get("volumeBindingMode")
    errors = validate_object_meta(obj["metadata"], False, name_is_dns_subdomain)
    if provisioner:
        errors += check_each(
            "provisioner", provisioner.lower(), is_qualified_name(provisioner.lower())
        )
    else:
        errors.append(required("provisioner"))
    errors += _parameters(obj.get("parameters") or {})
    policy = obj.get("reclaimPolicy", "")
    if policy and policy not in ("Delete", "Retain"):
        errors.append(not_supported("reclaimPolicy", policy, ("Delete", "Retain")))
    if mode is None:
        errors.append(required("volumeBindingMode"))
    elif mode not in _BINDING_MODES:
        errors.append(not_supported("volumeBindingMode", mode, _BINDING_MODES))
    return errors + _topologies(obj.get("allowedTopologies") or ())


def validate_storage_class_update(
    new: Object, old: Object, *, plain_errors: bool = False
) -> Errors:
    """`plain_errors`: all fields have the error of immutable fields."""
    errors = validate_storage_class(new) + validate_object_meta_update(
        new["metadata"], old["metadata"]
    )
    if plain_errors:
        parameters = new.get("parameters")
        errors += immutable(
            parameters or {},
            old.get("parameters") or {},
            "parameters",
            go_dump("map[string]string", parameters),
        )
        for name in ("provisioner", "reclaimPolicy", "volumeBindingMode"):
            errors += immutable(new.get(name), old.get(name), name)
        return errors
    errors += [
        forbidden(name, f"updates to {name} are forbidden.")
        for name in ("parameters", "provisioner", "reclaimPolicy")
        if new.get(name) != old.get(name)
    ]
    return errors + immutable(
        new.get("volumeBindingMode"), old.get("volumeBindingMode"), "volumeBindingMode"
    )


def _attachment_source(source: Mapping[str, Any], options: VolumeOptions) -> Errors:
    inline, name = source.get("inlineVolumeSpec"), source.get("persistentVolumeName")
    if inline is None and name is None:
        return [required("spec.source", _ONE_SOURCE)]
    if inline is not None and name is not None:
        return [forbidden("spec.source", _ONE_SOURCE)]
    if inline is None:
        return (
            []
            if name
            else [
                required(
                    "spec.source.persistentVolumeName",
                    "must specify non empty persistentVolumeName",
                )
            ]
        )

    return validate_volume_spec(
        inline, "", "spec.source.inlineVolumeSpec", inline=True, options=options
    )


def validate_attachment(obj: Object) -> Errors:
    attacher = (obj.get("spec") or {}).get("attacher")
    return _attachment_errors(obj, [] if attacher else [required("spec.attacher")])


def _attachment_errors(obj: Object, attacher: Errors, options: VolumeOptions = _INLINE) -> Errors:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    errors = validate_object_meta(obj["metadata"], False, name_is_dns_subdomain) + attacher
    errors += _attachment_source(spec.get("source") or {}, options) + dns_subdomain(
        spec.get("nodeName", ""), "spec.nodeName"
    )
    if _size(status.get("attachmentMetadata") or {}) > _PARAMETERS_LIMIT:
        errors.append(too_long("status.attachmentMetadata", "", _PARAMETERS_LIMIT))
    for name in ("attachError", "detachError"):
        if byte_len((status.get(name) or {}).get("message", "")) > 1024:
            errors.append(too_long(f"status.{name}.message", "", _PARAMETERS_LIMIT))
    return errors


def validate_attachment_create(obj: Object) -> Errors:
    spec = obj.get("spec") or {}
    errors = validate_attachment(obj) + csi_driver_name(spec.get("attacher", ""), "spec.attacher")
    return errors + _attached_volume_name(spec)


def _attached_volume_name(spec: Object) -> Errors:
    name = (spec.get("source") or {}).get("persistentVolumeName")
    return dns_subdomain(name, "spec.source.persistentVolumeName") if name is not None else []


def _validate_attachment_once(obj: Object) -> Errors:
    spec = obj.get("spec") or {}
    attacher = csi_driver_name(spec.get("attacher", ""), "spec.attacher")
    errors = _attachment_errors(obj, attacher, _INLINE_SINCE_1_36)
    return errors + _attached_volume_name(spec)


def validate_attachment_update(new: Object, old: Object) -> Errors:
    errors = validate_attachment(new) + validate_attachment(new)
    return errors + _immutable_attachment(new, old)


def _immutable_attachment(new: Object, old: Object) -> Errors:
    return immutable(
        new.get("spec"),
        old.get("spec"),
        "spec",
        go_dump("storage.VolumeAttachmentSpec", new.get("spec")),
    )


def _attachment_rules(features: FeatureSet) -> ValidationRules:
    if has_behaviour(features.release, "SingleAttachmentCheck"):
        return ValidationRules(
            _validate_attachment_once,
            lambda new, old: _validate_attachment_once(new) + _immutable_attachment(new, old),
        )
    return ValidationRules(validate_attachment_create, validate_attachment_update)


class CSINodeLimits(NamedTuple):
    """`node_id`: the longest ID. `names_keys`: errors of a topology key show it, not all keys."""

    node_id: int = 128
    names_keys: bool = False


_OF_1_20 = CSINodeLimits()


def _csi_node_limits(release: Release) -> CSINodeLimits:
    longest = 192 if has_behaviour(release, "LongNodeIDs") else 128
    if has_behaviour(release, "LongerNodeIDs"):
        longest = 256
    return CSINodeLimits(longest, has_behaviour(release, "TopologyKeyErrors"))


def validate_csi_node(obj: Object, limits: CSINodeLimits = _OF_1_20) -> Errors:
    errors = validate_object_meta(obj["metadata"], False, name_is_dns_subdomain)
    names: set[str] = set()
    for i, driver in enumerate((obj.get("spec") or {}).get("drivers") or ()):
        errors += _csi_node_driver(driver, names, f"spec.drivers[{i}]", limits)
    return errors


def validate_csi_node_allocatable_update(new: Object, old: Object, features: FeatureSet) -> Errors:
    """Since the number of volumes may change: drivers are compared without it where it may."""
    limits = _csi_node_limits(features.release)
    errors = validate_csi_node(new, limits) + validate_csi_node(new, limits)
    mutable = features.enabled("MutableCSINodeAllocatableCount")
    drivers = (new.get("spec") or {}).get("drivers") or ()
    for was in (old.get("spec") or {}).get("drivers") or ():
        for driver in drivers:
            if driver.get("name") != was.get("name"):
                continue
            after, before = driver, was
            if mutable:
                after, before = (
                    {name: value for name, value in each.items() if name != "allocatable"}
                    for each in (driver, was)
                )
            errors += immutable(
                after, before, "spec.drivers", go_dump("storage.CSINodeDriver", after)
            )
    return errors


def _csi_node_driver(
    driver: Mapping[str, Any], names: set[str], path: str, limits: CSINodeLimits
) -> Errors:
    name, node, keys = (
        driver.get("name", ""),
        driver.get("nodeID", ""),
        driver.get("topologyKeys") or (),
    )
    errors = csi_driver_name(name, f"{path}.name")
    if not node:
        errors.append(required(f"{path}.nodeID"))
    if byte_len(node) > limits.node_id:
        text = f"must be {limits.node_id} characters or less"
        errors.append(invalid(f"{path}.nodeID", node, text))
    count = (driver.get("allocatable") or {}).get("count")
    if count is not None:
        errors += nonnegative(count, f"{path}.allocatable.count")
    if name in names:
        errors.append(duplicate(f"{path}.name", name))
    names.add(name)
    repeated = repetitions(keys)
    shown = go_dump("[]string", keys)
    for i, key in enumerate(keys):
        if not key:
            errors.append(required(path))
        if i in repeated:
            errors.append(duplicate(path, key))
        errors += check_each(path, key if limits.names_keys else shown, is_qualified_name(key))
    return errors


def validate_csi_node_update(new: Object, old: Object, limits: CSINodeLimits = _OF_1_20) -> Errors:
    errors = validate_csi_node(new, limits) + validate_csi_node(new, limits)
    drivers = (new.get("spec") or {}).get("drivers") or ()
    named: dict[str, list[Mapping[str, Any]]] = {}
    for driver in drivers:
        named.setdefault(driver.get("name", ""), []).append(driver)
    for was in (old.get("spec") or {}).get("drivers") or ():
        errors += [
            invalid("CSINodeDriver", go_dump("storage.CSINodeDriver", driver), IMMUTABLE)
            for driver in named.get(was.get("name", ""), ())
            if driver != was
        ]
    return errors


def _token_requests(requests: Sequence[Mapping[str, Any]]) -> Errors:
    errors: Errors = []
    audiences: set[str] = set()
    for i, request in enumerate(requests):
        path, audience = f"spec.tokenRequests[{i}]", request.get("audience", "")
        seconds = request.get("expirationSeconds")
        if audience in audiences:
            errors.append(duplicate(f"{path}.audience", audience))
            continue
        audiences.add(audience)
        if seconds is not None:
            errors += token_lifetime(seconds, f"{path}.expirationSeconds")
    return errors


def validate_csi_driver(obj: Object) -> Errors:
    spec = obj.get("spec") or {}
    errors = validate_object_meta(obj["metadata"], False, name_is_dns_subdomain)
    errors += [
        required(f"spec.{shown}")
        for name, shown in (
            ("attachRequired", "attachedRequired"),
            ("podInfoOnMount", "podInfoOnMount"),
        )
        if spec.get(name) is None
    ]
    policy, policies = spec.get("fsGroupPolicy"), ("File", "None", "ReadWriteOnceWithFSType")
    if policy is not None and policy not in policies:
        errors.append(not_supported("spec.fsGroupPolicy", policy, policies))
    errors += _token_requests(spec.get("tokenRequests") or ())
    modes = ("Persistent", "Ephemeral")
    return errors + [
        not_supported("spec.volumeLifecycleModes", mode, modes)
        for mode in spec.get("volumeLifecycleModes") or ()
        if mode not in modes
    ]


def validate_csi_driver_update(new: Object, old: Object) -> Errors:
    return validate_object_meta_update(new["metadata"], old["metadata"]) + immutable(
        new.get("spec"), old.get("spec"), "spec", go_dump("storage.CSIDriverSpec", new.get("spec"))
    )


def _twice(check: Any) -> Any:
    """Kubernetes runs the check of a few new objects twice, which duplicates their causes."""
    return lambda obj: check(obj) + check(obj)


def _newer_csi_driver_spec(obj: Object, features: FeatureSet) -> Errors:
    """The fields that came after 1.20."""
    spec = obj.get("spec") or {}
    errors: Errors = []
    if spec.get("seLinuxMount") is None and features.enabled("SELinuxMountReadWriteOncePod"):
        errors.append(required("spec.seLinuxMount"))
    period = spec.get("nodeAllocatableUpdatePeriodSeconds")
    if period is not None and period < 10:
        text = "must be greater than or equal to 10 seconds"
        errors.append(invalid("spec.nodeAllocatableUpdatePeriodSeconds", period, text))
    in_secrets = spec.get("serviceAccountTokenInSecrets")
    if in_secrets is not None and not spec.get("tokenRequests"):
        text = "serviceAccountTokenInSecrets is set but no tokenRequests are specified"
        errors.append(invalid("spec.serviceAccountTokenInSecrets", in_secrets, text))
    prevents = spec.get("preventPodSchedulingIfMissing")
    if prevents is None and features.enabled("VolumeLimitScaling"):
        errors.append(required("spec.preventPodSchedulingIfMissing"))
    return errors


def _csi_driver_rules(features: FeatureSet) -> ValidationRules:
    if not has_tables(features.release):
        return ValidationRules(_twice(validate_csi_driver), validate_csi_driver_update)
    fixed = ["attachRequired", "volumeLifecycleModes"]
    if not has_behaviour(features.release, "MutableCSIDrivers"):
        fixed = ["attachRequired", "fsGroupPolicy", "podInfoOnMount", *fixed[1:], "tokenRequests"]

    def create(obj: Object) -> Errors:
        return validate_csi_driver(obj) + _newer_csi_driver_spec(obj, features)

    def update(new: Object, old: Object) -> Errors:
        errors = validate_object_meta_update(new["metadata"], old["metadata"]) + create(new)
        spec, before = new.get("spec") or {}, old.get("spec") or {}
        for name in fixed:
            value = spec.get(name)
            shown = go_dump("[]string", value) if name == "volumeLifecycleModes" else value
            path = "spec.attachedRequired" if name == "attachRequired" else f"spec.{name}"
            errors += immutable(value, before.get(name), path, shown)
        return errors

    return ValidationRules(create, update)


def _class_rules(features: FeatureSet) -> ValidationRules:
    plain = has_behaviour(features.release, "ImmutableClassErrors")
    return ValidationRules(
        validate_storage_class, partial(validate_storage_class_update, plain_errors=plain)
    )


def _csi_node_rules(features: FeatureSet) -> ValidationRules:
    limits = _csi_node_limits(features.release)
    create, update = (
        partial(rule, limits=limits) for rule in (validate_csi_node, validate_csi_node_update)
    )
    if has_behaviour(features.release, "MutableCSINodes"):
        update = partial(validate_csi_node_allocatable_update, features=features)
    once = has_behaviour(features.release, "SingleCSINodeCheck")
    return ValidationRules(create if once else _twice(create), update)


def _capacity_rules(features: FeatureSet) -> ValidationRules:
    once = has_behaviour(features.release, "SingleCapacityCheck")
    return ValidationRules(
        validate_capacity if once else _twice(validate_capacity),
        validate_csi_storage_capacity_update,
    )


def validate_attributes_class(obj: Object) -> Errors:
    """VolumeAttributesClass: the driver and the parameters that it gets."""
    errors = validate_object_meta(obj["metadata"], False, name_is_dns_subdomain)
    driver, parameters = obj.get("driverName", ""), obj.get("parameters") or {}
    if driver:
        errors += check_each("driverName", driver.lower(), is_qualified_name(driver.lower()))
    else:
        errors.append(required("driverName"))
    errors += _parameters(parameters)
    if not parameters:
        errors.append(required("parameters", "must contain at least one key/value pair"))
    return errors


def validate_volume_attributes_class_update(new: Object, old: Object) -> Errors:
    errors = validate_object_meta_update(new["metadata"], old["metadata"])
    errors += [
        forbidden(name, f"updates to {name} are forbidden.")
        for name in ("driverName", "parameters")
        if new.get(name) != old.get(name)
    ]
    return errors + validate_attributes_class(new)


def validate_capacity(obj: Object) -> Errors:
    name = obj.get("storageClassName", "")
    errors = validate_object_meta(obj["metadata"], True, name_is_dns_subdomain)
    errors += validate_label_selector(obj.get("nodeTopology"), "nodeTopology") + dns_subdomain(
        name, "storageClassName"
    )
    return errors + (
        nonnegative_quantity(obj["capacity"], "capacity") if obj.get("capacity") is not None else []
    )


def validate_csi_storage_capacity_update(new: Object, old: Object) -> Errors:
    errors = validate_capacity(new) + validate_object_meta_update(new["metadata"], old["metadata"])
    topology = new.get("nodeTopology")
    errors += immutable(
        topology,
        old.get("nodeTopology"),
        "nodeTopology",
        None if topology is None else go_dump("v1.LabelSelector", topology),
    )
    return errors + immutable(
        new.get("storageClassName", ""), old.get("storageClassName", ""), "storageClassName"
    )


VALIDATORS: Mapping[str, ValidationRules | RulesFactory] = {
    "storage.k8s.io/StorageClass": _class_rules,
    "storage.k8s.io/VolumeAttributesClass": ValidationRules(
        validate_attributes_class, validate_volume_attributes_class_update
    ),
    "storage.k8s.io/VolumeAttachment": _attachment_rules,
    # The beta does not restrict the names of drivers and volumes.
    "storage.k8s.io/VolumeAttachment@storage.k8s.io/v1beta1": ValidationRules(
        validate_attachment, validate_attachment_update
    ),
    "storage.k8s.io/CSINode": _csi_node_rules,
    "storage.k8s.io/CSIDriver": _csi_driver_rules,
    "storage.k8s.io/CSIStorageCapacity": _capacity_rules,
}
