"""The Secrets and ConfigMaps that pods and persistent volumes refer to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from transom.machinery.objects import Object
from transom.machinery.podutil import visit_containers

_VOLUME_SECRETS = (
    "azureFile",
    "cephfs",
    "cinder",
    "flexVolume",
    "rbd",
    "scaleIO",
    "iscsi",
    "storageos",
)
_VOLUME_REFERENCES: Final = {
    "configMap": "configmaps (via configmap volumes)",
    "secret": "secrets (via secret volumes)",
    "csi": "csidrivers (via CSI volumes)",
    "glusterfs": "endpoints (via glusterFS volumes)",
    "persistentVolumeClaim": "persistentvolumeclaims",
    "ephemeral": "persistentvolumeclaims (via ephemeral volumes)",
    "azureFile": "secrets (via azureFile volumes)",
}
_SOURCE_REFERENCES: Final = {
    "configMap": "configmaps (via projected volumes)",
    "secret": "secrets (via projected volumes)",
    "serviceAccountToken": "serviceaccounts (via projected volumes)",
    "clusterTrustBundle": "clustertrustbundles",
    "podCertificate": "podcertificates",
}


def _from_containers(spec: Object, whole: str, key: str) -> Iterator[str]:
    for container in visit_containers(spec):
        for source in container.get("envFrom") or ():
            yield (source.get(whole) or {}).get("name", "")
        for variable in container.get("env") or ():
            yield ((variable.get("valueFrom") or {}).get(key) or {}).get("name", "")


def secret_names(spec: Object) -> Iterator[str]:
    """Every Secret that a pod refers to directly."""
    return filter(None, _secret_names(spec))


def _secret_names(spec: Object) -> Iterator[str]:
    for reference in spec.get("imagePullSecrets") or ():
        yield reference.get("name", "")
    yield from _from_containers(spec, "secretRef", "secretKeyRef")
    for volume in spec.get("volumes") or ():
        if "secret" in volume:
            yield volume["secret"].get("secretName", "")
        for source in (volume.get("projected") or {}).get("sources") or ():
            yield (source.get("secret") or {}).get("name", "")
        for kind in _VOLUME_SECRETS:
            if kind in volume:
                yield (
                    volume[kind].get("secretName", "")
                    if kind == "azureFile"
                    else ((volume[kind].get("secretRef") or {}).get("name", ""))
                )
        yield ((volume.get("csi") or {}).get("nodePublishSecretRef") or {}).get("name", "")


def config_map_names(spec: Object) -> Iterator[str]:
    """Every ConfigMap that a pod refers to directly."""
    return filter(None, _config_map_names(spec))


def _config_map_names(spec: Object) -> Iterator[str]:
    yield from _from_containers(spec, "configMapRef", "configMapKeyRef")
    for volume in spec.get("volumes") or ():
        yield (volume.get("configMap") or {}).get("name", "")
        for source in (volume.get("projected") or {}).get("sources") or ():
            yield (source.get("configMap") or {}).get("name", "")


def projected_sources(spec: Object) -> Iterator[Object]:
    """The sources of all projected volumes of a pod."""
    for volume in spec.get("volumes") or ():
        yield from (volume.get("projected") or {}).get("sources") or ()


def api_object_reference(spec: Object) -> str:
    """The first kind of API objects that a pod refers to, with Kubernetes' words, or ""."""
    if spec.get("serviceAccountName"):
        return "serviceaccounts"
    if any(secret_names(spec)):
        return "secrets"
    if any(config_map_names(spec)):
        return "configmaps"
    if spec.get("resourceClaims"):
        return "resourceclaims"
    for volume in spec.get("volumes") or ():
        for field, text in _VOLUME_REFERENCES.items():
            if field in volume:
                return text
        for source in (volume.get("projected") or {}).get("sources") or ():
            for field, text in _SOURCE_REFERENCES.items():
                if field in source:
                    return text
    return ""


def volume_secrets(spec: Object, claim_namespace: str) -> Iterator[tuple[str, str]]:
    """Namespace and name of the Secrets of a persistent volume that a kubelet needs."""
    for kind in _VOLUME_SECRETS:
        source = spec.get(kind)
        if source is None:
            continue
        if kind == "azureFile":
            reference = {
                "name": source.get("secretName", ""),
                "namespace": source.get("secretNamespace", ""),
            }
        else:
            reference = source.get("secretRef") or {}
        # Cinder and StorageOS do not default to the namespace of the claim.
        fallback = "" if kind in ("cinder", "storageos") else claim_namespace
        if reference.get("name"):
            yield reference.get("namespace") or fallback, reference["name"]
    csi = spec.get("csi") or {}
    for field in ("nodePublishSecretRef", "nodeStageSecretRef", "nodeExpandSecretRef"):
        reference = csi.get(field) or {}
        if reference.get("name"):
            yield reference.get("namespace", ""), reference["name"]
