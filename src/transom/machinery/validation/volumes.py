"""Volumes of a pod spec: one source each, and the rules of every source.

`_SOURCES` holds the sources in the order in which Kubernetes checks them: if a volume has two, the
later one is reported. The rules for sources that persistent volumes share are public.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from transom.kit.goquote import go_quote
from transom.kit.lazy import lazy_import
from transom.kit.named_tuple import NamedTuple
from transom.machinery.field import (
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
)
from transom.machinery.quantity import parse_quantity
from transom.machinery.serviceaccounts import TOKEN_SOURCES
from transom.machinery.validation.checks import csi_driver_name
from transom.machinery.validation.claim import claim_options, validate_claim_spec
from transom.machinery.validation.common import (
    all_invalid,
    check_descending_path,
    check_dns_label,
    check_mode,
    check_no_backsteps,
    check_range,
    check_required,
    check_unreserved_path,
)
from transom.machinery.validation.env import (
    VOLUME_FIELDS,
    check_field_ref,
    check_resource_field_ref,
)
from transom.machinery.validation.godump import go_dump
from transom.machinery.validation.meta import (
    validate_label_selector,
    validate_template_metadata,
)
from transom.machinery.validation.names import byte_len, name_is_dns_subdomain
from transom.machinery.validation.podoptions import BASE_OPTIONS, PodOptions
from transom.machinery.validation.rules import Errors

if TYPE_CHECKING:
    from transom.machinery.validation import certificates
else:
    certificates = lazy_import("transom.machinery.validation.certificates")

_TWO_SOURCES = "may not specify more than 1 volume type"
_HOST_PATH_TYPES = (
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
)
_CACHING_MODES = ("None", "ReadOnly", "ReadWrite")
_DISK_KINDS = ("Dedicated", "Managed", "Shared")
_MANAGED_URI = "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"
_BLOB_URI = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"
_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_TOKEN_MIN, _TOKEN_MAX = 600, 1 << 32
ISCSI_FORMS = {
    "iqn": re.compile(r"iqn\.\d{4}-\d{2}\.([A-Za-z0-9.-]+)(:[^,;*&$|\s]+)\Z", re.ASCII).search,
    "eui": re.compile(r"\Aeui.[A-Za-z0-9]{16}\Z").search,
    "naa": re.compile(r"\Anaa.[A-Za-z0-9]{32}\Z").search,
}

Source = dict[str, Any]
Check = Callable[[Source, str, Errors], None]


def check_volumes(
    volumes: list[Source],
    pod_name: str,
    path: str,
    errs: Errors,
    options: PodOptions = BASE_OPTIONS,
) -> dict[str, Source]:
    """Checks all; returns the valid ones by name. `pod_name` is empty for templates."""
    good: dict[str, Source] = {}
    made = (
        {f"{pod_name}-{v.get('name', '')}" for v in volumes if "ephemeral" in v}
        if pod_name
        else set()
    )
    for i, volume in enumerate(volumes):
        where = f"{path}[{i}]"
        name = volume.get("name", "")
        before = len(errs)
        _check_source(volume, name, pod_name, where, errs, options)
        if not name:
            errs.append(required(f"{where}.name"))
        else:
            check_dns_label(name, f"{where}.name", errs)
        if name in good:
            errs.append(duplicate(f"{where}.name", name))
        if len(errs) == before:
            good[name] = volume
        claim = (volume.get("persistentVolumeClaim") or {}).get("claimName")
        if claim in made:
            errs.append(
                invalid(
                    f"{where}.persistentVolumeClaim.claimName",
                    claim,
                    "must not reference a PVC that gets created for an ephemeral volume",
                )
            )
    return good


def _check_source(
    volume: Source, name: str, pod_name: str, path: str, errs: Errors, options: PodOptions
) -> None:
    kinds = [kind for kind in volume if kind in _SOURCES]
    if not kinds:
        errs.append(required(path, "must specify a volume type"))
    elif len(kinds) > 1:
        kinds = [kind for kind in _SOURCES if kind in volume]
    for i, kind in enumerate(kinds):
        source, rule = volume[kind], _SOURCES[kind]
        if i:
            errs.append(forbidden(f"{path}.{rule.clash or kind}", _TWO_SOURCES))
        else:
            where = f"{path}.{rule.path or kind}"
            if kind == "image" and options.in_pod and not source.get("reference"):
                errs.append(required(f"{where}.reference"))
            if kind == "projected":
                _check_projected(source, where, errs, options)
            elif kind == "ephemeral":
                _check_ephemeral(source, where, errs, options)
            else:
                rule.check(source, where, errs)
            if kind == "ephemeral" and pod_name and name:
                _check_claim_name(f"{pod_name}-{name}", name, path, errs)
        if kind == "iscsi" and "initiatorName" in source:
            _check_iscsi_length(name, source.get("targetPortal", ""), path, errs)


def _check_iscsi_length(name: str, portal: str, path: str, errs: Errors) -> None:
    if byte_len(f"{name}:{portal}") > 64:
        text = (
            "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if "
            "iscsi.initiatorName is specified."
        )
        errs.append(invalid(f"{path}.name", name, text))


def _check_claim_name(claim: str, volume: str, path: str, errs: Errors) -> None:
    for message in name_is_dns_subdomain(claim, False):
        errs.append(invalid(f"{path}.name", volume, f"PVC name {go_quote(claim)}: {message}"))


def check_required_fields(*names: str) -> Check:
    """A source that only has required fields."""

    def check(source: Source, path: str, errs: Errors) -> None:
        check_required(source, names, path, errs)

    return check


def _check_empty_dir(source: Source, path: str, errs: Errors) -> None:
    limit = source.get("sizeLimit")
    if limit is not None and parse_quantity(limit).mantissa < 0:
        errs.append(
            forbidden(f"{path}.sizeLimit", "SizeLimit field must be a valid resource quantity")
        )


def check_host_path(source: Source, path: str, errs: Errors) -> None:
    target = source.get("path")
    if not target:
        errs.append(required(f"{path}.path"))
        return
    check_no_backsteps(target, f"{path}.path", errs)
    kind = source.get("type")
    if kind is not None and kind not in _HOST_PATH_TYPES:
        errs.append(not_supported(f"{path}.type", kind, _HOST_PATH_TYPES))


def _check_git_repo(source: Source, path: str, errs: Errors) -> None:
    check_required(source, ("repository",), path, errs)
    check_descending_path(source.get("directory", ""), f"{path}.directory", errs)


def check_disk(name: str) -> Check:
    def check(source: Source, path: str, errs: Errors) -> None:
        check_required(source, (name,), path, errs)
        partition = source.get("partition", 0)
        if not 0 <= partition <= 255:
            errs.append(
                invalid(f"{path}.partition", partition, "must be between 1 and 255, inclusive")
            )

    return check


def check_key_to_path(item: dict[str, Any], path: str, errs: Errors) -> None:
    check_required(item, ("key", "path"), path, errs)
    check_unreserved_path(item.get("path", ""), f"{path}.path", errs)
    check_mode(item.get("mode"), f"{path}.mode", errs)


def _check_files_of(name: str) -> Check:
    """A secret or config map as a volume."""

    def check(source: Source, path: str, errs: Errors) -> None:
        check_required(source, (name,), path, errs)
        check_mode(source.get("defaultMode"), f"{path}.defaultMode", errs)
        for i, item in enumerate(source.get("items") or ()):
            check_key_to_path(item, f"{path}.items[{i}]", errs)

    return check


def check_nfs(source: Source, path: str, errs: Errors) -> None:
    check_required(source, ("server", "path"), path, errs)
    target = source.get("path", "")
    if not target.startswith("/"):
        errs.append(invalid(f"{path}.path", target, "must be an absolute path"))


def _check_iscsi_name(name: str, path: str, errs: Errors) -> None:
    form = ISCSI_FORMS.get(name[:3])
    if form is None:
        errs.append(invalid(path, name, "must be valid format starting with iqn, eui, or naa"))
    elif not form(name):
        errs.append(invalid(path, name, "must be valid format"))


def _check_iscsi(source: Source, path: str, errs: Errors) -> None:
    check_required(source, ("targetPortal", "iqn"), path, errs)
    if source.get("iqn"):
        _check_iscsi_name(source["iqn"], f"{path}.iqn", errs)
    check_range(source.get("lun", 0), 0, 255, f"{path}.lun", errs)
    if (
        source.get("chapAuthDiscovery") or source.get("chapAuthSession")
    ) and "secretRef" not in source:
        errs.append(required(f"{path}.secretRef"))
    if "initiatorName" in source:
        _check_iscsi_name(source["initiatorName"], f"{path}.initiatorname", errs)


def check_fc(source: Source, path: str, errs: Errors) -> None:
    names, ids, lun = source.get("targetWWNs"), source.get("wwids"), source.get("lun")
    if not names and not ids:
        errs.append(
            required(f"{path}.targetWWNs", "must specify either targetWWNs or wwids, but not both")
        )
    if names and ids:
        errs.append(
            invalid(
                f"{path}.targetWWNs",
                go_dump("[]string", names),
                "targetWWNs and wwids can not be specified simultaneously",
            )
        )
    if names and lun is None:
        errs.append(required(f"{path}.lun", "lun is required if targetWWNs is specified"))
    elif names and lun is not None:
        check_range(lun, 0, 255, f"{path}.lun", errs)


def check_flocker(source: Source, path: str, errs: Errors) -> None:
    name, uuid = source.get("datasetName", ""), source.get("datasetUUID", "")
    if not name and not uuid:
        errs.append(required(path, "one of datasetName and datasetUUID is required"))
    if name and uuid:
        errs.append(
            invalid(
                path, "resource", "datasetName and datasetUUID can not be specified simultaneously"
            )
        )
    if "/" in name:
        errs.append(invalid(f"{path}.datasetName", name, "must not contain '/'"))


def _check_cinder(source: Source, path: str, errs: Errors) -> None:
    check_required(source, ("volumeID",), path, errs)
    _check_secret_ref(source, path, errs)


def _check_secret_ref(source: Source, path: str, errs: Errors) -> None:
    ref = source.get("secretRef")
    if ref is not None and not ref.get("name"):
        errs.append(required(f"{path}.secretRef.name"))


def check_quobyte(source: Source, path: str, errs: Errors) -> None:
    text = "must be a host:port pair or multiple pairs separated by commas"
    registry = source.get("registry", "")
    if not registry:
        errs.append(required(f"{path}.registry", text))
    elif byte_len(source.get("tenant", "")) >= 65:
        errs.append(
            required(
                f"{path}.tenant", "must be a UUID and may not exceed a length of 64 characters"
            )
        )
    else:
        for pair in registry.split(","):
            if not _is_host_port(pair):
                errs.append(invalid(f"{path}.registry", registry, text))
    check_required(source, ("volume",), path, errs)


def _is_host_port(pair: str) -> bool:
    """Whether it splits into host and port: one colon, or brackets around the host."""
    host, colon, port = pair.rpartition(":")
    if not colon or "[" in port or "]" in port:
        return False
    if host.startswith("["):
        return host.endswith("]") and not set("[]") & set(host[1:-1])
    return not set(":[]") & set(host)


def check_flex_volume(source: Source, path: str, errs: Errors) -> None:
    check_required(source, ("driver",), path, errs)
    for key in source.get("options") or ():
        domain = "." + key.partition("/")[0].lower()
        if domain.endswith((".kubernetes.io", ".k8s.io")):
            errs.append(
                invalid(
                    f"{path}.options[{key}]",
                    key,
                    "kubernetes.io and k8s.io namespaces are reserved",
                )
            )


def check_azure_disk(source: Source, path: str, errs: Errors) -> None:
    check_required(source, ("diskName", "diskURI"), path, errs)
    uri, kind, caching = source.get("diskURI", ""), source.get("kind"), source.get("cachingMode")
    if caching is not None and caching not in _CACHING_MODES:
        errs.append(not_supported(f"{path}.cachingMode", caching, _CACHING_MODES))
    if kind is None:
        return
    if kind not in _DISK_KINDS:
        errs.append(not_supported(f"{path}.kind", kind, _DISK_KINDS))
    start, form = (
        ("/subscriptions/", _MANAGED_URI) if kind == "Managed" else ("https://", _BLOB_URI)
    )
    if not uri.startswith(start):
        errs.append(not_supported(f"{path}.diskURI", uri, (form,)))


def _check_storage_os(source: Source, path: str, errs: Errors) -> None:
    name, namespace = source.get("volumeName"), source.get("volumeNamespace")
    if not name:
        errs.append(required(f"{path}.volumeName"))
    else:
        check_dns_label(name, f"{path}.volumeName", errs)
    if namespace:
        check_dns_label(namespace, f"{path}.volumeNamespace", errs)
    _check_secret_ref(source, path, errs)


def _check_csi(source: Source, path: str, errs: Errors) -> None:
    errs += csi_driver_name(source.get("driver", ""), f"{path}.driver")
    ref = source.get("nodePublishSecretRef")
    if ref is None:
        return
    name = ref.get("name")
    if not name:
        # The space is Kubernetes' own.
        errs.append(required(f"{path}.nodePublishSecretRef .name"))
    else:
        all_invalid(name_is_dns_subdomain(name, False), name, f"{path}.name", errs)


def _check_image(source: Source, path: str, errs: Errors) -> None:
    policy = source.get("pullPolicy", "")
    if policy not in _PULL_POLICIES:
        where = f"{path}.pullPolicy"
        errs.append(not_supported(where, policy, _PULL_POLICIES) if policy else required(where))


def _check_ephemeral(
    source: Source, path: str, errs: Errors, options: PodOptions = BASE_OPTIONS
) -> None:
    template = source.get("volumeClaimTemplate")
    where = f"{path}.volumeClaimTemplate"
    if template is None:
        errs.append(required(where))
        return
    errs += validate_template_metadata(template.get("metadata") or {}, f"{where}.metadata")
    claims = claim_options(options.features)
    errs += validate_claim_spec(template.get("spec") or {}, f"{where}.spec", claims)


def check_downward_file(item: dict[str, Any], path: str, errs: Errors) -> None:
    """One file of the downward API. The path has no index, as in Kubernetes."""
    target = item.get("path", "")
    if not target:
        errs.append(required(f"{path}.path"))
    check_unreserved_path(target, f"{path}.path", errs)
    field, resource = item.get("fieldRef"), item.get("resourceFieldRef")
    if field is not None:
        check_field_ref(field, VOLUME_FIELDS, (), f"{path}.fieldRef", errs)
        if resource is not None:
            errs.append(
                invalid(
                    path,
                    "resource",
                    "fieldRef and resourceFieldRef can not be specified simultaneously",
                )
            )
    elif resource is not None:
        check_resource_field_ref(resource, True, f"{path}.resourceFieldRef", errs)
    else:
        errs.append(required(path, "one of fieldRef and resourceFieldRef is required"))
    check_mode(item.get("mode"), f"{path}.mode", errs)


def _check_downward(source: Source, path: str, errs: Errors) -> None:
    check_mode(source.get("defaultMode"), f"{path}.defaultMode", errs)
    for item in source.get("items") or ():
        check_downward_file(item, path, errs)


def _check_projected(
    source: Source, path: str, errs: Errors, options: PodOptions = BASE_OPTIONS
) -> None:
    check_mode(source.get("defaultMode"), f"{path}.defaultMode", errs)
    sources = source.get("sources") or ()
    if sources == TOKEN_SOURCES:
        return
    taken: set[str] = set()
    for i, projection in enumerate(sources):
        where = f"{path}.sources[{i}]"
        for kind in ("secret", "configMap"):
            if (files := projection.get(kind)) is not None:
                _check_projected_files(files, taken, f"{where}.{kind}", path, errs)
        if (downward := projection.get("downwardAPI")) is not None:
            for item in downward.get("items") or ():
                check_downward_file(item, f"{where}.downwardAPI", errs)
                _check_free(item.get("path", ""), item.get("path", ""), taken, path, errs)
        if (token := projection.get("serviceAccountToken")) is not None:
            _check_token(token, f"{where}.serviceAccountToken", path, errs, options)
        if (bundle := projection.get("clusterTrustBundle")) is not None:
            _check_trust_bundle(bundle, f"{where}.clusterTrustBundle", errs)
            if options.newer:
                target = bundle.get("path", "")
                _check_free(target, target, taken, path, errs)
        if (certificate := projection.get("podCertificate")) is not None:
            _check_pod_certificate(certificate, taken, f"{where}.podCertificate", path, errs)
        if len(projection) > 1:
            text = f"{_TWO_SOURCES} per source" if options.counts_sources else _TWO_SOURCES
            errs.append(forbidden(where, text))


def _check_pod_certificate(
    certificate: Source, taken: set[str], path: str, volume_path: str, errs: Errors
) -> None:
    signer, key = certificate.get("signerName", ""), certificate.get("keyType", "")
    errs += certificates.validate_signer_name(signer, f"{path}.signerName")
    if key not in _KEY_TYPES:
        errs.append(not_supported(f"{path}.keyType", key, _KEY_TYPES))
    seconds = certificate.get("maxExpirationSeconds")
    if seconds is not None:
        where, start = f"{path}.maxExpirationSeconds", "if provided, maxExpirationSeconds must be"
        most = _DAY if signer.startswith("kubernetes.io/") else _MOST_DAYS * _DAY
        if seconds < _HOUR:
            errs.append(invalid(where, seconds, f"{start} >= {_HOUR}"))
        if seconds > most:
            errs.append(invalid(where, seconds, f"{start} <= {most}"))
    names = [n for n in _CERTIFICATE_PATHS if certificate.get(n)]
    for name in names:
        target = certificate[name]
        check_unreserved_path(target, f"{path}.{name}", errs)
        _check_free(target, target, taken, volume_path, errs)
    if not names:
        text = "specify at least one of credentialBundlePath, keyPath, and certificateChainPath"
        errs.append(required(path, text))


_KEY_TYPES = ("RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519")
_CERTIFICATE_PATHS = ("credentialBundlePath", "keyPath", "certificateChainPath")
_HOUR, _DAY, _MOST_DAYS = 3600, 86400, 91


def _check_free(target: str, shown: str, taken: set[str], path: str, errs: Errors) -> None:
    if not target:
        return
    if target in taken:
        errs.append(invalid(path, shown, "conflicting duplicate paths"))
    taken.add(target)


def _check_projected_files(
    files: Source, taken: set[str], path: str, volume_path: str, errs: Errors
) -> None:
    name = files.get("name", "")
    if not name:
        errs.append(required(f"{path}.name"))
    for i, item in enumerate(files.get("items") or ()):
        check_key_to_path(item, f"{path}.items[{i}]", errs)
        _check_free(item.get("path", ""), name, taken, volume_path, errs)


def _check_token(
    token: Source, path: str, volume_path: str, errs: Errors, options: PodOptions
) -> None:
    seconds = token.get("expirationSeconds", 0)
    if seconds < _TOKEN_MIN:
        errs.append(
            invalid(
                f"{path}.expirationSeconds",
                seconds,
                "may not specify a duration less than 10 minutes",
            )
        )
    if seconds > _TOKEN_MAX:
        text = "may not specify a duration larger than 2^32 seconds"
        errs.append(invalid(f"{path}.expirationSeconds", seconds, text))
    if not token.get("path"):
        errs.append(required(f"{volume_path}.path"))
    elif options.checks_token_path:
        check_unreserved_path(token["path"], f"{volume_path}.path", errs)


def _check_trust_bundle(bundle: Source, path: str, errs: Errors) -> None:
    name, signer, selector = (
        bundle.get("name"),
        bundle.get("signerName"),
        bundle.get("labelSelector"),
    )
    if name is not None and signer is not None:
        errs.append(invalid(path, bundle, "only one of name and signerName may be used"))
    elif name is not None:
        if not name:
            errs.append(required(f"{path}.name", "must be a valid object name"))
        if selector is not None:
            errs.append(
                invalid(
                    f"{path}.labelSelector",
                    go_dump("v1.LabelSelector", selector),
                    "labelSelector must be unset if name is specified",
                )
            )
    elif signer is not None:
        if not signer:
            errs.append(required(f"{path}.signerName", "must be a valid signer name"))
        errs += validate_label_selector(selector, f"{path}.labelSelector")
    else:
        errs.append(required(path, "either name or signerName must be specified"))
    target = bundle.get("path", "")
    if not target:
        errs.append(required(f"{path}.path"))
    check_unreserved_path(target, f"{path}.path", errs)


class _Rule(NamedTuple):
    check: Check
    path: str = ""  # the path of its errors, if that is not the field itself
    clash: str = ""  # the path of an extra source, if that is not the field itself


_SOURCES: dict[str, _Rule] = {
    "emptyDir": _Rule(_check_empty_dir),
    "hostPath": _Rule(check_host_path),
    "gitRepo": _Rule(_check_git_repo),
    "gcePersistentDisk": _Rule(check_disk("pdName"), "persistentDisk"),
    "awsElasticBlockStore": _Rule(check_disk("volumeID")),
    "secret": _Rule(_check_files_of("secretName")),
    "nfs": _Rule(check_nfs),
    "iscsi": _Rule(_check_iscsi),
    "glusterfs": _Rule(check_required_fields("endpoints", "path")),
    "flocker": _Rule(check_flocker),
    "persistentVolumeClaim": _Rule(check_required_fields("claimName")),
    "rbd": _Rule(check_required_fields("monitors", "image")),
    "cinder": _Rule(_check_cinder),
    "cephfs": _Rule(check_required_fields("monitors"), clash="cephFS"),
    "quobyte": _Rule(check_quobyte),
    "downwardAPI": _Rule(_check_downward, clash="downwarAPI"),
    "fc": _Rule(check_fc),
    "flexVolume": _Rule(check_flex_volume),
    "configMap": _Rule(_check_files_of("name")),
    "azureFile": _Rule(check_required_fields("secretName", "shareName")),
    "vsphereVolume": _Rule(check_required_fields("volumePath")),
    "photonPersistentDisk": _Rule(check_required_fields("pdID")),
    "portworxVolume": _Rule(check_required_fields("volumeID")),
    "azureDisk": _Rule(check_azure_disk),
    "storageos": _Rule(_check_storage_os),
    "projected": _Rule(_check_projected),
    "scaleIO": _Rule(check_required_fields("gateway", "system", "volumeName")),
    "csi": _Rule(_check_csi),
    "ephemeral": _Rule(_check_ephemeral),
    "image": _Rule(_check_image),
}
