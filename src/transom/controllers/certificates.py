"""Certificate signing requests: approves those of kubelets, signs approved ones, deletes old ones.

This module does not have the CA key: the cluster passes a signing function.
"""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from transom.client.api import is_not_found
from transom.client.informer import Informer
from transom.client.ratelimit import ControllerLimiter
from transom.client.resources import CERTIFICATE_SIGNING_REQUESTS, SUBJECT_ACCESS_REVIEWS
from transom.client.workqueue import RetryLater, WorkQueue
from transom.controllers.base import ControllerContext, run_worker
from transom.kit.clock import parse_rfc3339, rfc3339
from transom.kit.lazy import lazy_import
from transom.machinery import certificates
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object

if TYPE_CHECKING:
    from cryptography import x509
else:
    x509 = lazy_import("cryptography.x509")

log = logging.getLogger("transom.controllers")

_WORKERS = 5
_FIRST_RETRY = 0.2
# A request is immutable once it is signed, so give the approver time to finish.
_SIGNING_SECONDS = 1.0
_CLIENT_AUTH = "client auth"
_OPTIONAL_CLIENT_USAGES = ("digital signature", "key encipherment")

# The permissions of kubelets: subresource -> message of the approval
_SELF = (
    "selfnodeclient",
    "Auto approving self kubelet client certificate after SubjectAccessReview.",
)
_OTHER = "nodeclient", "Auto approving kubelet client certificate after SubjectAccessReview."

_HOUR = 3600.0
_CLEAN_PERIOD = _HOUR
# Seconds that requests are kept after they got this condition; pending ones from their creation.
_KEPT = {"Approved": _HOUR, "Denied": _HOUR, "Failed": _HOUR}
_KEPT_PENDING = 24 * _HOUR


def _conditions(csr: Object) -> Sequence[Object]:
    return (csr.get("status") or {}).get("conditions") or ()


def _has(csr: Object, kind: str) -> bool:
    return any(c["type"] == kind and c.get("status", "True") == "True" for c in _conditions(csr))


def _decided(csr: Object) -> bool:
    return any(c["type"] in ("Approved", "Denied") for c in _conditions(csr))


def _certificate(csr: Object) -> str:
    return (csr.get("status") or {}).get("certificate") or ""


def _parse(csr: Object) -> certificates.CertificateRequest:
    request = certificates.parse_certificate_request(csr["spec"]["request"])
    if request is None:
        raise RetryLater(f'unable to parse csr "{csr["metadata"]["name"]}"')
    return request


def _requests(
    env: ControllerContext, name: str, wait: float = 0
) -> tuple[Informer, WorkQueue[str]]:
    """The informer, and a queue that gets each request without a certificate some time after it
    changed.
    """
    queue: WorkQueue[str] = WorkQueue(
        env.clock, ControllerLimiter(env.clock, _FIRST_RETRY), name=name, metrics=env.queues
    )

    def changed(csr: Object) -> None:
        if not _certificate(csr):
            queue.add_after(csr["metadata"]["name"], wait)

    informer = env.informers(CERTIFICATE_SIGNING_REQUESTS)
    informer.add_handler(add=changed, update=lambda _, new: changed(new))
    return informer, queue


class CsrApprover:
    """Approves kubelets' client certificate requests, if the requestor has the permission."""

    def __init__(self, env: ControllerContext) -> None:
        self._client = env.client
        self._requests, self._queue = _requests(env, "certificate")

    async def run(self) -> None:
        await run_worker(self._queue, self._sync, (self._requests,), _WORKERS)

    async def _sync(self, name: str) -> None:
        csr = self._requests.get("", name)
        if csr is None or _certificate(csr) or _decided(csr):
            return
        spec = csr["spec"]
        request = _parse(csr)
        if spec["signerName"] != certificates.KUBELET_CLIENT_SIGNER:
            return
        if certificates.kubelet_client_problem(request, spec.get("usages") or ()):
            return
        own = spec.get("username", "") == request.common_name
        tried = []
        for subresource, message in (_SELF, _OTHER) if own else (_OTHER,):
            tried.append(subresource)
            if await self._allowed(spec, subresource):
                await self._approve(csr, message)
                return
        raise RetryLater(
            f'recognized csr "{name}" as {tried} but subject access review was not approved'
        )

    async def _allowed(self, spec: Object, subresource: str) -> bool:
        who = {
            "user": spec.get("username"),
            "uid": spec.get("uid"),
            "groups": spec.get("groups"),
            "extra": spec.get("extra"),
        }
        what = {
            "group": "certificates.k8s.io",
            "resource": "certificatesigningrequests",
            "verb": "create",
            "subresource": subresource,
        }
        review = {"spec": {**{k: v for k, v in who.items() if v}, "resourceAttributes": what}}
        answer = await self._client.create(SUBJECT_ACCESS_REVIEWS, "", review)
        return bool(answer["status"].get("allowed"))

    async def _approve(self, csr: Object, message: str) -> None:
        approval = {
            "type": "Approved",
            "status": "True",
            "reason": "AutoApproved",
            "message": message,
        }
        status = {**(csr.get("status") or {}), "conditions": [*_conditions(csr), approval]}
        await self._client.update(
            CERTIFICATE_SIGNING_REQUESTS, {**csr, "status": status}, subresource="approval"
        )


# request (PEM), usages and seconds -> certificate (PEM)
Sign = Callable[[bytes, Iterable[str], float], bytes]
_VALID_SECONDS = 365 * 86400.0
_SHORTEST_SECONDS = 600.0


class CsrSigner:
    """Signs approved requests for Kubernetes' four built-in signers."""

    def __init__(self, env: ControllerContext, sign: Sign) -> None:
        self._client = env.client
        self._clock = env.clock
        self._sign = sign
        self._requests, self._queue = _requests(env, "certificate", _SIGNING_SECONDS)

    async def run(self) -> None:
        await run_worker(self._queue, self._sync, (self._requests,), _WORKERS)

    async def _sync(self, name: str) -> None:
        csr = self._requests.get("", name)
        if (
            csr is None
            or _certificate(csr)
            or not _has(csr, "Approved")
            or _has(csr, "Denied")
            or _has(csr, "Failed")
        ):
            return
        spec = csr["spec"]
        problem_of = _RULES.get(spec["signerName"])
        if problem_of is None:
            return
        usages = spec.get("usages") or ()
        problem = problem_of(_parse(csr), usages)
        status = dict(csr.get("status") or {})
        if problem:
            failed = {
                "type": "Failed",
                "status": "True",
                "reason": "SignerValidationFailure",
                "message": problem,
                "lastUpdateTime": rfc3339(self._clock.time()),
            }
            status["conditions"] = [*_conditions(csr), failed]
        else:
            try:
                made = self._sign(base64.b64decode(spec["request"]), usages, _validity(spec))
            except ValueError as error:
                raise RetryLater(f"error auto signing csr: {error}") from error
            status["certificate"] = base64.b64encode(made).decode()
        await self._client.update_status(CERTIFICATE_SIGNING_REQUESTS, {**csr, "status": status})


def _validity(spec: Object) -> float:
    """The seconds that a certificate is valid: as requested, but at most a year."""
    wanted = spec.get("expirationSeconds")
    if wanted is None:
        return _VALID_SECONDS
    return min(max(float(wanted), _SHORTEST_SECONDS), _VALID_SECONDS)


def _api_client_problem(_request: certificates.CertificateRequest, usages: Iterable[str]) -> str:
    wanted = [*usages]
    for usage in wanted:
        if usage != _CLIENT_AUTH and usage not in _OPTIONAL_CLIENT_USAGES:
            return f"invalid usage for client certificate: {usage}"
    return (
        ""
        if _CLIENT_AUTH in wanted
        else f"missing required usage for client certificate: {_CLIENT_AUTH}"
    )


# Signer -> why it does not sign such a request, or "".
_RULES: dict[str, Callable[[certificates.CertificateRequest, Iterable[str]], str]] = {
    certificates.CLIENT_SIGNER: _api_client_problem,
    certificates.KUBELET_CLIENT_SIGNER: certificates.kubelet_client_problem,
    certificates.KUBELET_SERVING_SIGNER: certificates.kubelet_serving_problem,
    certificates.LEGACY_SIGNER: lambda _request, _usages: "",
}


class CsrCleaner:
    """Deletes requests an hour after they were handled, and unhandled ones after a day."""

    def __init__(self, env: ControllerContext) -> None:
        self._client = env.client
        self._clock = env.clock
        self._requests = env.informers(CERTIFICATE_SIGNING_REQUESTS)

    async def run(self) -> None:
        await self._requests.synced()
        while True:
            now = self._clock.time()
            for csr in [csr for csr in self._requests.list() if outdated(csr, now)]:
                name = csr["metadata"]["name"]
                try:
                    await self._client.delete(CERTIFICATE_SIGNING_REQUESTS, "", name)
                except (ApiError, OSError) as problem:
                    if not is_not_found(problem):
                        log.info("csrcleaner: %s: %s", name, problem)
            await self._clock.sleep(_CLEAN_PERIOD)


def outdated(csr: Object, now: float) -> bool:
    conditions = _conditions(csr)
    if not conditions:
        return now - parse_rfc3339(csr["metadata"]["creationTimestamp"]) > _KEPT_PENDING
    issued = bool(_certificate(csr))
    for condition in conditions:
        kind, since = condition["type"], condition.get("lastUpdateTime")
        if kind == "Approved" and not issued:
            continue
        if kind in _KEPT and since and now - parse_rfc3339(since) > _KEPT[kind]:
            return True
    return (
        issued
        and any(c["type"] == "Approved" for c in conditions)
        and _expired(_certificate(csr), now)
    )


def _expired(encoded: str, now: float) -> bool:
    try:
        return (
            x509.load_pem_x509_certificate(
                base64.b64decode(encoded)
            ).not_valid_after_utc.timestamp()
            < now
        )
    except (ValueError, binascii.Error):
        return False
