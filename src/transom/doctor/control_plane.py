"""Checks of the control plane: the API server, its data, certificates, aggregated APIs, webhooks,
CRDs, namespaces.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from transom.doctor.findings import DoctorFinding
from transom.doctor.snapshot import (
    ClusterSnapshot,
    Object,
    condition_text,
    key_of_object,
    name_of_object,
    place_of_object,
    status_condition,
    time_of,
)
from transom.kit.lazy import lazy_import

if TYPE_CHECKING:
    from cryptography import x509
else:
    x509 = lazy_import("cryptography.x509")

_LOW_SPACE: Final = 64 << 20
_SOON: Final = 30 * 86400.0  # seconds before its expiry that a certificate is reported
_SKEW: Final = 30.0  # seconds that clocks may differ
_SLOW: Final = 60.0
_RENEW: Final = (
    "Renew it: kubeadm certs renew all; for a cluster of transom: transom down, then transom up"
)


def check_api_server(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    if s.unreachable:
        why, remedy = (
            "Nothing else can be checked.",
            (
                "Check that it runs, and the kubeconfig; for clusters of this machine: transom "
                "status --all"
            ),
        )
        text = s.unreachable
        if re.search(r"certificate has expired|not yet valid", text):
            remedy = (
                "Renew the certificate: kubeadm certs renew, or for a cluster of transom: "
                "transom down, then transom up. "
                "If the certificate is valid, correct the clock of this machine."
            )
        elif re.search(r"certificate verify failed|self.signed|unknown authority", text):
            remedy = (
                "The kubeconfig has another certificate authority than the server: get a "
                "current kubeconfig "
                "(transom kubeconfig)."
            )
        elif "401" in text or "Unauthorized" in text:
            remedy = (
                "The credentials of the kubeconfig are expired or unknown: get a current "
                "kubeconfig (transom kubeconfig)."
            )
        yield DoctorFinding("error", f"the API server does not answer: {text}", (), why, remedy)
    for check in s.unhealthy:
        yield DoctorFinding(
            "error",
            f"the API server reports that it is not ready: {check}",
            (),
            "Requests may fail.",
            "Read its log: transom logs",
        )
    if s.unread:  # one finding: an account with few rights reads almost nothing
        plurals = sorted(s.unread)
        yield DoctorFinding(
            "info",
            f"{', '.join(plurals)} cannot be read: {s.unread[plurals[0]]}",
            (),
            "Checks that need them are skipped.",
            "Use an account that may read them.",
        )


def check_store(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    """Only for Transom clusters: others do not report it."""
    for one in s.store.get("quarantined") or ():
        at = f" (revision {one['revision']})" if one.get("revision") else ""
        where = str(one.get("key") or "")
        yield DoctorFinding(
            "error",
            f"a stored record is corrupt and in quarantine: {one.get('reason')}{at}",
            (where,) if where else (),
            "The object is not served as it was last written; everything else is.",
            "Create the object again, or restore a snapshot (transom snapshot list). Check "
            "the disk of this machine. "
            "Then empty the quarantine: transom snapshot forget-corrupt",
        )
    if s.store.get("problem"):
        yield DoctorFinding(
            "error",
            f"writes fail: {s.store['problem']}",
            (),
            "Nothing can be created or changed.",
            "Free space on the disk, or make it writable; writes work again by themselves then.",
        )
    elif s.store.get("readOnly"):
        yield DoctorFinding(
            "error",
            "the disk of the cluster's data is read-only",
            (),
            "Nothing can be created or changed.",
            "Make it writable.",
        )
    free = s.store.get("freeBytes")
    if isinstance(free, int) and free < _LOW_SPACE:
        yield DoctorFinding(
            "warning",
            f"only {free / (1 << 20):.1f} MiB are free on the disk of the cluster's data",
            (),
            "When it is full, nothing can be created or changed.",
            "Free space on the disk.",
        )


def check_certificates(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    """The certificates of the API server, the kubeconfig, kubelets, webhooks and aggregated
    APIs.
    """
    own = {str(one["label"]) for one in s.renewals}
    for label, end in s.certificates.items():
        if label not in own:
            yield from _expiry(s, label, end, (), _RENEW)
    for one in s.renewals:
        label, where = str(one["label"]), (str(one["where"]),) if one["where"] else ()
        if one["problem"]:
            yield DoctorFinding(
                "error",
                f"{label} cannot be read: {one['problem']}",
                where,
                "Connections that use it fail after the next start.",
                str(one["renew"]),
            )
        else:
            yield from _expiry(s, label, float(one["end"]), where, str(one["renew"]))
    for kind, obj, bundle in _bundles(s):
        where = (place_of_object(kind, obj),)
        try:
            ends = certificate_ends(base64.b64decode(bundle))
        except (ValueError, binascii.Error):
            yield DoctorFinding(
                "error",
                "its caBundle is not a certificate in PEM",
                where,
                "It cannot be called.",
                "Correct caBundle.",
            )
            continue
        if ends and max(ends) < s.now:
            yield DoctorFinding(
                "error",
                "the certificate in its caBundle has expired",
                where,
                "It cannot be called.",
                "Issue a new certificate and put its authority into caBundle.",
            )


def _expiry(
    s: ClusterSnapshot, label: str, end: float, where: tuple[str, ...], remedy: str
) -> Iterator[DoctorFinding]:
    if end < s.now:
        yield DoctorFinding(
            "error", f"{label} has expired", where, "Connections that use it fail.", remedy
        )
    elif end - s.now < _SOON:
        yield DoctorFinding(
            "warning",
            f"{label} expires {_within(end - s.now)}",
            where,
            "Connections that use it fail then.",
            remedy,
        )


def _within(seconds: float) -> str:
    days = int(seconds / 86400)
    return f"in {days} day{'' if days == 1 else 's'}" if days else "within a day"


def _bundles(s: ClusterSnapshot) -> Iterator[tuple[str, Object, str]]:
    for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
        for configuration in s.of(kind):
            for bundle in dict.fromkeys(
                (h.get("clientConfig") or {}).get("caBundle")
                for h in configuration.get("webhooks") or ()
            ):
                if bundle:
                    yield kind.removesuffix("s"), configuration, bundle
    for service in s.of("apiservices"):
        if (service.get("spec") or {}).get("caBundle"):
            yield "apiservice", service, service["spec"]["caBundle"]


def certificate_ends(pem: bytes) -> list[float]:
    """When the certificates of a PEM text expire. Raises ValueError if it has none."""
    return [one.not_valid_after_utc.timestamp() for one in x509.load_pem_x509_certificates(pem)]


def der_end(certificate: bytes) -> float:
    return x509.load_der_x509_certificate(certificate).not_valid_after_utc.timestamp()


def check_clocks(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    """Clock skew makes certificates and tokens invalid, and heartbeats look old."""
    if s.server_time and not s.virtual_time and abs(s.server_time - s.now) > _SKEW:
        yield DoctorFinding(
            "warning",
            (
                "the clocks of this machine and of the API server differ by "
                f"{abs(s.server_time - s.now):.0f} s"
            ),
            (),
            "Certificates and tokens may not be valid yet, or no longer.",
            "Synchronize both clocks (NTP).",
        )
    for lease in s.of("leases"):
        if key_of_object(lease)[0] != "kube-node-lease":
            continue
        ahead = time_of(str((lease.get("spec") or {}).get("renewTime") or "")) - s.now
        if ahead > _SKEW:
            yield DoctorFinding(
                "warning",
                f"its clock is {ahead:.0f} s ahead",
                (f"node/{name_of_object(lease)}",),
                "Its heartbeats and certificates are not reliable.",
                "Synchronize the node's clock (NTP).",
            )
    for node in s.inside.values():
        if abs(node.clock_offset) > _SKEW:
            yield DoctorFinding(
                "warning",
                (
                    f"its clock is {abs(node.clock_offset):.0f} s "
                    f"{'ahead' if node.clock_offset > 0 else 'behind'}"
                ),
                (f"node/{node.name}",),
                "Its heartbeats and certificates are not reliable.",
                "Synchronize the node's clock (w32tm /resync, NTP).",
            )


def check_api_services(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    for service in s.of("apiservices"):
        available = status_condition(service, "Available")
        if available.get("status") == "False":
            target = (service.get("spec") or {}).get("service") or {}
            behind = f"{target.get('namespace')}/{target.get('name')}"
            yield DoctorFinding(
                "error",
                f"is not available: {condition_text(available)}",
                (place_of_object("apiservice", service),),
                "Requests for it fail, and namespaces cannot be deleted meanwhile.",
                f"Start the pods behind its service {behind}, or delete the APIService.",
            )


def check_webhooks(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
        for configuration in s.of(kind):
            for hook in configuration.get("webhooks") or ():
                problem, remedy = _webhook_problem(s, hook.get("clientConfig") or {})
                if problem:
                    fails = hook.get("failurePolicy", "Fail") == "Fail"
                    yield DoctorFinding(
                        "error" if fails else "warning",
                        f"webhook {hook['name']} calls {problem}",
                        (place_of_object(kind.removesuffix("s"), configuration),),
                        "Requests that it applies to are rejected."
                        if fails
                        else "Requests pass without it, with a delay.",
                        f"{remedy}, or remove the configuration.",
                        commands=(
                            f"kubectl delete {kind.removesuffix('s')} {name_of_object(configuration)}",
                        ),
                    )


def check_conversions(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    """Webhooks that convert custom resources between versions."""
    for definition in s.of("customresourcedefinitions"):
        conversion = (definition.get("spec") or {}).get("conversion") or {}
        config = (conversion.get("webhook") or {}).get("clientConfig")
        config = config or conversion.get("webhookClientConfig")
        if conversion.get("strategy") != "Webhook" or not config:
            continue
        problem, remedy = _webhook_problem(s, config)
        if problem:
            yield DoctorFinding(
                "error",
                f"its conversion webhook is {problem}",
                (place_of_object("customresourcedefinition", definition),),
                "Its custom resources cannot be read or written in other versions than they are stored in.",
                f"{remedy}, or set spec.conversion.strategy to None.",
            )


def _webhook_problem(s: ClusterSnapshot, config: Object) -> tuple[str, str]:
    """What is wrong with the server in a client configuration, and the remedy."""
    target = config.get("service")
    if target:
        problem, remedy = _unserved(s, target), "Start its pods"
        namespace, called = target.get("namespace", ""), target.get("name", "")
        url = f"https://{called}.{namespace}.svc:{target.get('port', 443)}"
    else:
        problem, url = "", str(config.get("url") or "")
        remedy = f"Start the server at {url}, correct the URL"
    if problem:
        return problem, remedy
    for called_url, failure in s.webhooks.items():
        if url and (called_url == url or called_url.startswith(f"{url}/")):
            if "x509" in failure or "certificate" in failure:
                remedy = "Correct caBundle or the server's certificate"
            return f"{url}, which does not answer: {failure}", remedy
    return "", ""


def _unserved(s: ClusterSnapshot, target: Object) -> str:
    found = str(target.get("namespace", "")), str(target.get("name", ""))
    if found not in s.service:
        return "" if "services" in s.unread else f"service {'/'.join(found)}, which does not exist"
    if s.service[found]["spec"].get("type") == "ExternalName" or "endpoints" in s.unread:
        return ""
    ports = [port.get("port") for port in s.service[found]["spec"].get("ports") or ()]
    wanted = target.get("port", 443)
    if ports and wanted not in ports:
        return (
            f"port {wanted} of service {'/'.join(found)}, which has only "
            f"{', '.join(map(str, ports))}"
        )
    return (
        ""
        if s.ready_addresses(found)
        else f"service {'/'.join(found)}, which has no ready endpoints"
    )


def check_custom_resources(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    for definition in s.of("customresourcedefinitions"):
        where = (place_of_object("customresourcedefinition", definition),)
        for kind, wanted in (("NamesAccepted", "True"), ("Established", "True")):
            found = status_condition(definition, kind)
            if found and found.get("status") != wanted and found.get("reason") != "Installing":
                yield DoctorFinding(
                    "error",
                    f"is not served: {condition_text(found)}",
                    where,
                    "Its custom resources cannot be used.",
                    "Use names that no other definition has, or delete the other one.",
                )
                break
        found = status_condition(definition, "NonStructuralSchema")
        if found.get("status") == "True":
            yield DoctorFinding(
                "warning",
                f"its schema is not structural: {found.get('message', '')}",
                where,
                "Features such as pruning and defaults do not work.",
                "Correct the schema.",
            )


def check_signing_requests(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    """Certificate requests without a decision: a joining kubelet waits for its certificate."""
    for request in s.of("certificatesigningrequests"):
        conditions = {
            c.get("type"): c for c in (request.get("status") or {}).get("conditions") or ()
        }
        age = s.now - time_of(request["metadata"].get("creationTimestamp", ""))
        where = (place_of_object("certificatesigningrequest", request),)
        if "Failed" in conditions:
            yield DoctorFinding(
                "warning",
                f"was not signed: {condition_text(conditions['Failed'])}",
                where,
                "Its requestor has no certificate.",
                "Correct the request and create it again.",
            )
        elif "Denied" in conditions:
            continue
        elif not conditions and age > _SLOW:
            yield DoctorFinding(
                "info",
                "waits for approval",
                where,
                "Its requestor has no certificate yet.",
                "Approve it, or deny it.",
                commands=(f"kubectl certificate approve {name_of_object(request)}",),
            )


def check_namespaces(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    broken = [
        name_of_object(service)
        for service in s.of("apiservices")
        if status_condition(service, "Available").get("status") == "False"
    ]
    for namespace in s.of("namespaces"):
        since = time_of(namespace["metadata"].get("deletionTimestamp") or "")
        if since and s.now - since > _SLOW:
            texts = [
                str(c.get("message", ""))
                for c in (namespace.get("status") or {}).get("conditions") or ()
                if c.get("status") == "True"
            ]
            remedy = (
                f"Repair the APIService {broken[0]}, or delete it."
                if broken
                else (
                    "Remove the finalizers of the objects that are left, or start the "
                    "controllers that set them."
                )
            )
            yield DoctorFinding(
                "warning",
                "is being deleted for more than a minute" + "".join(f"; {t}" for t in texts),
                (place_of_object("namespace", namespace),),
                "Its name cannot be used again.",
                remedy,
            )


def check_finalizers(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    """Objects that were deleted some time ago and still exist. Pods and namespaces have their own
    checks.
    """
    for plural, objects in s.objects.items():
        if plural in ("pods", "namespaces", "events"):
            continue
        for obj in objects:
            since = time_of(obj["metadata"].get("deletionTimestamp") or "")
            left: Any = obj["metadata"].get("finalizers") or ()
            if since and s.now - since > _SLOW and left:
                kind = _SINGULAR.get(plural) or plural.removesuffix("s")
                yield DoctorFinding(
                    "warning",
                    f"is not deleted: it has the finalizers {', '.join(left)}",
                    (place_of_object(kind, obj),),
                    "Its name cannot be used again.",
                    _release(kind, obj, left),
                )


_SINGULAR: Final = {
    "ingresses": "ingress",
    "ingressclasses": "ingressclass",
    "storageclasses": "storageclass",
    "runtimeclasses": "runtimeclass",
    "networkpolicies": "networkpolicy",
    "endpoints": "endpoints",
}


def _release(kind: str, obj: Object, left: Any) -> str:
    """The remedy that lets the deletion proceed."""
    namespace, called = key_of_object(obj)
    scope = f" --namespace {namespace}" if namespace else ""
    if any(one.endswith("-protection") for one in left):
        return (
            "Delete the claim that is bound to it."
            if kind == "persistentvolume"
            else "Delete the pods that use it."
        )
    if left[0] in ("foregroundDeletion", "orphan"):
        return "The garbage collector removes it once the dependents are gone; delete what still depends on it."
    patch = """-p '{"metadata":{"finalizers":null}}'"""
    return (
        "Start the controller that set the finalizer, or remove the finalizer: "
        f"kubectl patch {kind} {called}{scope} --type merge {patch}"
    )
