"""The objects that run the webhook in a cluster. It never calls the API server, so it needs no RBAC
rules.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from transom import __version__

Object = dict[str, Any]

NAME: Final = "transom-webhook"
NAMESPACE: Final = "transom-webhook"
IMAGE: Final = f"transom:{__version__}"
HOOK: Final = "windows-limits.transom.dev"
EXEMPT: Final = (
    "transom.dev/windows-limits"  # namespace label; "disabled" exempts the namespace's pods
)
_PORT: Final = 8443
_SECRET: Final = "transom-webhook-tls"
_LABELS: Final = {"app.kubernetes.io/name": NAME}
_CERTIFICATES: Final = "/certificates"
_RULES: Final = (
    ("", ("pods", "podtemplates", "replicationcontrollers")),
    ("apps", ("daemonsets", "deployments", "replicasets", "statefulsets")),
    ("batch", ("cronjobs", "jobs")),
)


class WebhookKeys(NamedTuple):
    """PEM: the server's certificate and key, and the authority that signed it."""

    certificate: bytes
    key: bytes
    authority: bytes


def service_names(namespace: str = NAMESPACE) -> list[str]:
    """The names by which an API server reaches the webhook."""
    return [f"{NAME}.{namespace}.svc", f"{NAME}.{namespace}.svc.cluster.local"]


def webhook_manifests(
    options: Sequence[str] = (), *, image: str = IMAGE, keys: WebhookKeys | None = None
) -> list[Object]:
    """With keys, returns a complete set of objects; without, cert-manager issues the
    certificate.
    """
    secret = [_own_secret(keys)] if keys is not None else [_issuer(), _certificate()]
    return [_namespace(), *secret, _deployment(options, image), _service(), _configuration(keys)]


def _namespaced(api_version: str, kind: str, name: str, **more: Any) -> Object:
    meta = {"name": name, "namespace": NAMESPACE, "labels": dict(_LABELS)}
    return {"apiVersion": api_version, "kind": kind, "metadata": meta, **more}


def _namespace() -> Object:
    # The webhook must not block its own pods.
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": NAMESPACE, "labels": {EXEMPT: "disabled"}},
    }


def _own_secret(keys: WebhookKeys) -> Object:
    data = {"tls.crt": _base64(keys.certificate), "tls.key": _base64(keys.key)}
    return _namespaced("v1", "Secret", _SECRET, type="kubernetes.io/tls", data=data)


def _issuer() -> Object:
    return _namespaced("cert-manager.io/v1", "Issuer", NAME, spec={"selfSigned": {}})


def _certificate() -> Object:
    return _namespaced(
        "cert-manager.io/v1",
        "Certificate",
        NAME,
        spec={
            "secretName": _SECRET,
            "dnsNames": service_names(),
            "issuerRef": {"kind": "Issuer", "name": NAME},
        },
    )


def _deployment(options: Sequence[str], image: str) -> Object:
    probe = {"httpGet": {"path": "/readyz", "port": _PORT, "scheme": "HTTPS"}}
    container = {
        "name": "webhook",
        "image": image,
        "args": [
            "webhook",
            "--bind",
            "0.0.0.0",
            "--port",
            str(_PORT),
            "--cert-file",
            f"{_CERTIFICATES}/tls.crt",
            "--key-file",
            f"{_CERTIFICATES}/tls.key",
            *options,
        ],
        "ports": [{"name": "https", "containerPort": _PORT}],
        "readinessProbe": probe,
        "livenessProbe": {"httpGet": {**probe["httpGet"], "path": "/livez"}},
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "certificates", "mountPath": _CERTIFICATES, "readOnly": True}],
    }
    pod = {
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "automountServiceAccountToken": False,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532},
        "containers": [container],
        "volumes": [{"name": "certificates", "secret": {"secretName": _SECRET}}],
    }
    return _namespaced(
        "apps/v1",
        "Deployment",
        NAME,
        spec={
            "replicas": 2,
            "selector": {"matchLabels": dict(_LABELS)},
            "template": {"metadata": {"labels": dict(_LABELS)}, "spec": pod},
        },
    )


def _service() -> Object:
    return _namespaced(
        "v1",
        "Service",
        NAME,
        spec={
            "selector": dict(_LABELS),
            "ports": [{"name": "https", "port": 443, "targetPort": "https"}],
        },
    )


def _configuration(keys: WebhookKeys | None) -> Object:
    client: Object = {"service": {"name": NAME, "namespace": NAMESPACE, "path": "/validate"}}
    meta: Object = {"name": NAME, "labels": dict(_LABELS)}
    if keys is not None:
        client["caBundle"] = _base64(keys.authority)
    else:
        meta["annotations"] = {"cert-manager.io/inject-ca-from": f"{NAMESPACE}/{NAME}"}
    hook = {
        "name": HOOK,
        "clientConfig": client,
        "rules": [
            {
                "operations": ["CREATE", "UPDATE"],
                "apiGroups": [group],
                "apiVersions": ["*"],
                "resources": list(resources),
                "scope": "Namespaced",
            }
            for group, resources in _RULES
        ],
        "namespaceSelector": {
            "matchExpressions": [{"key": EXEMPT, "operator": "NotIn", "values": ["disabled"]}]
        },
        "matchPolicy": "Equivalent",
        "failurePolicy": "Ignore",  # an unavailable webhook must not block pod creation
        "sideEffects": "None",
        "timeoutSeconds": 5,
        "admissionReviewVersions": ["v1", "v1beta1"],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": meta,
        "webhooks": [hook],
    }


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
