"""The hash of a pod template in the names of ReplicaSets and DaemonSet revisions, as computed by
Kubernetes 1.20.

It is FNV-1a over a dump of the Go structs: every field with its name and type, zero or not. So the
same manifest gets the same ReplicaSet name as in Kubernetes, and an imported cluster does not roll
out anew. The dump needs information that JSON does not contain: names of string types, and which
fields release 1.20 did not have. Those are included only if set.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import orjson

from transom.kit.lazy import lazy_pattern
from transom.machinery import schema
from transom.machinery.hashes import fnv32a
from transom.machinery.objects import Object
from transom.machinery.quantity import BINARY_SUFFIXES, DECIMAL_SUFFIXES
from transom.machinery.schema import SchemaField, SchemaType, SchemaValue

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_TEMPLATE, _META = "core/v1.PodTemplateSpec", "meta/v1.ObjectMeta"

# Fields whose Go type is a named type.
_NAMED = {
    "core/v1.AzureDiskVolumeSource": {
        "cachingMode": "*v1.AzureDataDiskCachingMode",
        "kind": "*v1.AzureDataDiskKind",
    },
    "core/v1.Capabilities": {"add": "[]v1.Capability", "drop": "[]v1.Capability"},
    "core/v1.Container": {
        "terminationMessagePolicy": "v1.TerminationMessagePolicy",
        "imagePullPolicy": "v1.PullPolicy",
    },
    "core/v1.ContainerPort": {"protocol": "v1.Protocol"},
    "core/v1.EmptyDirVolumeSource": {"medium": "v1.StorageMedium"},
    "core/v1.EphemeralContainerCommon": {
        "terminationMessagePolicy": "v1.TerminationMessagePolicy",
        "imagePullPolicy": "v1.PullPolicy",
    },
    "core/v1.HTTPGetAction": {"scheme": "v1.URIScheme"},
    "core/v1.HostPathVolumeSource": {"type": "*v1.HostPathType"},
    "core/v1.NodeSelectorRequirement": {"operator": "v1.NodeSelectorOperator"},
    "core/v1.PersistentVolumeClaimSpec": {
        "accessModes": "[]v1.PersistentVolumeAccessMode",
        "volumeMode": "*v1.PersistentVolumeMode",
    },
    "core/v1.PodReadinessGate": {"conditionType": "v1.PodConditionType"},
    "core/v1.PodSecurityContext": {"fsGroupChangePolicy": "*v1.PodFSGroupChangePolicy"},
    "core/v1.PodSpec": {
        "restartPolicy": "v1.RestartPolicy",
        "dnsPolicy": "v1.DNSPolicy",
        "preemptionPolicy": "*v1.PreemptionPolicy",
        "overhead": "v1.ResourceList",
    },
    "core/v1.ResourceRequirements": {"limits": "v1.ResourceList", "requests": "v1.ResourceList"},
    "core/v1.SeccompProfile": {"type": "v1.SeccompProfileType"},
    "core/v1.SecurityContext": {"procMount": "*v1.ProcMountType"},
    "core/v1.Toleration": {"operator": "v1.TolerationOperator", "effect": "v1.TaintEffect"},
    "core/v1.TopologySpreadConstraint": {"whenUnsatisfiable": "v1.UnsatisfiableConstraintAction"},
    "core/v1.VolumeMount": {"mountPropagation": "*v1.MountPropagationMode"},
    "meta/v1.LabelSelectorRequirement": {"operator": "v1.LabelSelectorOperator"},
    "meta/v1.ManagedFieldsEntry": {"operation": "v1.ManagedFieldsOperationType"},
    "meta/v1.ObjectMeta": {"uid": "types.UID"},
    "meta/v1.OwnerReference": {"uid": "types.UID"},
}
# Fields added after release 1.20.
_LATER = {
    "core/v1.Container": {"resizePolicy", "restartPolicy"},
    "core/v1.EphemeralContainerCommon": {"resizePolicy", "restartPolicy"},
    "core/v1.PersistentVolumeClaimSpec": {"dataSourceRef", "volumeAttributesClassName"},
    "core/v1.PodAffinityTerm": {"namespaceSelector", "matchLabelKeys", "mismatchLabelKeys"},
    "core/v1.PodSecurityContext": {
        "supplementalGroupsPolicy",
        "appArmorProfile",
        "seLinuxChangePolicy",
    },
    "core/v1.PodSpec": {"os", "hostUsers", "schedulingGates", "resourceClaims", "resources"},
    "core/v1.Probe": {"terminationGracePeriodSeconds"},
    "core/v1.ResourceRequirements": {"claims"},
    "core/v1.SecurityContext": {"appArmorProfile"},
    "core/v1.TopologySpreadConstraint": {
        "minDomains",
        "nodeAffinityPolicy",
        "nodeTaintsPolicy",
        "matchLabelKeys",
    },
    "core/v1.VolumeMount": {"recursiveReadOnly"},
    "core/v1.VolumeProjection": {"clusterTrustBundle"},
    "core/v1.VolumeSource": {"image"},
    "core/v1.WindowsSecurityContextOptions": {"hostProcess"},
    "core/v1.ProbeHandler": {"grpc"},
    "core/v1.LifecycleHandler": {"sleep"},
}
# Fields removed since, with the field before them and their dump.
_GONE = {
    _META: ("finalizers", "ClusterName:(string)"),
    "core/v1.EphemeralVolumeSource": ("volumeClaimTemplate", "ReadOnly:(bool)false"),
}
_ZERO_TIME = "{Time:(time.Time){wall:(uint64)0 ext:(int64)0 loc:(*time.Location)<nil>}}"
_ZEROS = {
    "string": "",
    "bool": "false",
    "int32": "0",
    "int64": "0",
    "float": "0",
    "list": "<nil>",
    "map": "<nil>",
    "time": _ZERO_TIME,
    "quantity": "{i:(resource.int64Amount){value:(int64)0 scale:(resource.Scale)0} "
    "d:(resource.infDecAmount){Dec:(*inf.Dec)<nil>} s:(string) Format:(resource.Format)}",
    "int-or-string": "{Type:(intstr.Type)0 IntVal:(int32)0 StrVal:(string)}",
}


def compute_template_hash(template: Object, collisions: int | None) -> str:
    """The hash as used in names and labels; `collisions` is the collision count, None if there was
    none.
    """
    text = f"(v1.PodTemplateSpec){_struct(schema.get_schema_type(_TEMPLATE), template)}".encode()
    if collisions is not None:
        text += collisions.to_bytes(8, "little")
    return safe_encode(fnv32a(text))


def safe_encode(number: int) -> str:
    """Encodes the decimal digits in letters that form no words."""
    return "".join(_ALPHABET[ord(digit) % len(_ALPHABET)] for digit in str(number))


# ---- the dump ----


@lru_cache(maxsize=256)
def _layout(name: str) -> tuple[tuple[str, tuple[SchemaField, ...]], ...]:
    """The fields of a struct in order: those of an embedded struct grouped under its name, others
    under "".
    """
    rows: list[tuple[str, list[SchemaField]]] = []
    for field in schema.get_schema_type(name).properties.values():
        embedding = field.go_path[0] if len(field.go_path) > 1 else ""
        if embedding and rows and rows[-1][0] == embedding:
            rows[-1][1].append(field)
        else:
            rows.append((embedding, [field]))
    return tuple((embedding, tuple(fields)) for embedding, fields in rows)


# Go's name of an embedded struct -> our name of its type, if they differ.
_EMBEDDED = {"Handler": "core/v1.ProbeHandler"}


def _struct(of: SchemaType, obj: Object) -> str:
    parts: list[str] = []
    for embedding, fields in _layout(of.id):
        if embedding:
            inner = schema.get_schema_type(_EMBEDDED.get(embedding, f"core/v1.{embedding}"))
            parts.append(f"{embedding}:(v1.{embedding}){{{' '.join(_fields(inner, fields, obj))}}}")
        else:
            parts += _fields(of, fields, obj)
    return f"{{{' '.join(parts)}}}"


def _fields(of: SchemaType, fields: tuple[SchemaField, ...], obj: Object) -> Iterator[str]:
    named, later = _NAMED.get(of.id, {}), _LATER.get(of.id, ())
    gone_after, gone = _GONE.get(of.id, ("", ""))
    for field in fields:
        value = obj.get(field.name)
        if field.name in later:
            if value is not None:
                yield f"{field.go_path[-1]}:{orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()}"
            continue
        yield f"{field.go_path[-1]}:({named.get(field.name) or field.value.go_name}){_value(field.value, value)}"
        if field.name == gone_after:
            yield gone


def _value(of: SchemaValue, value: Any) -> str:
    """Without its type. A pointer is dumped like its target."""
    kind = of.kind
    if value is None:
        if of.pointer:
            return "<nil>"
        return _struct(of.type, {}) if kind == "struct" else _ZEROS[kind]
    if kind == "struct":
        return _struct(of.type, value)
    item = of.item
    if kind == "list" and item is not None:
        return f"[{' '.join(_value(item, element) for element in value)}]"
    if kind == "map" and item is not None:
        return f"map[{' '.join(f'{key}:{_value(item, value[key])}' for key in sorted(value))}]"
    if kind == "bool":
        return "true" if value else "false"
    if kind == "quantity":
        return _quantity(str(value))
    if kind == "int-or-string":
        if isinstance(value, str):
            return f"{{Type:(intstr.Type)1 IntVal:(int32)0 StrVal:(string){value}}}"
        return f"{{Type:(intstr.Type)0 IntVal:(int32){value} StrVal:(string)}}"
    return str(value)


_AMOUNT = lazy_pattern(r"([+-]?)0*([0-9]*)(?:\.([0-9]*))?(.*)", re.ASCII | re.DOTALL)
_DIGITS = 18  # that always fit


def _quantity(text: str) -> str:
    """As Go stores it: a scaled integer and, if the text was in canonical form, that text."""
    match = _AMOUNT.fullmatch(text)
    if text == "0" or match is None:
        return _amount(0, 0, text, "DecimalSI")
    sign, whole, fraction, suffix = match[1], match[2] or "0", match[3] or "", match[4]
    digits = whole + fraction
    number, form = int(digits), "DecimalSI"
    if suffix in BINARY_SUFFIXES:
        exponent, form = BINARY_SUFFIXES[suffix], "BinarySI"
        value, scale = number << exponent, 0
        shortest = number & 7 != 0
        exact = not fraction and 15 - len(whole) - int(exponent * 0.3) - 1 >= 0
    else:
        if suffix in DECIMAL_SUFFIXES:
            exponent = DECIMAL_SUFFIXES[suffix]
        else:
            exponent, form = int(suffix[1:]), "DecimalExponent"
        value, scale = number, exponent - len(fraction)
        shortest = scale % 3 == 0 and not digits.endswith("000") and digits[0] != "0"
        exact = len(digits) <= _DIGITS and scale >= -9
    if not exact:
        return f"{{{text}}}"  # arbitrary precision, whose internal form is never visible
    return _amount(-value if sign == "-" else value, scale, text if shortest else "", form)


def _amount(value: int, scale: int, text: str, form: str) -> str:
    return (
        f"{{i:(resource.int64Amount){{value:(int64){value} scale:(resource.Scale){scale}}} "
        f"d:(resource.infDecAmount){{Dec:(*inf.Dec)<nil>}} s:(string){text} "
        f"Format:(resource.Format){form}}}"
    )
