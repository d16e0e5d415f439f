"""AdmissionReview v1 and v1beta1: builds the request to a webhook and evaluates its response.

Pure functions. Messages are those of Kubernetes.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import orjson

from transom.apiserver.core.attributes import Attributes
from transom.apiserver.core.resources import Resource
from transom.apiserver.webhooks.client import CallFailed, media_of
from transom.kit.goquote import go_quote
from transom.kit.named_tuple import NamedTuple
from transom.machinery import codec, gojson
from transom.machinery.errors import ApiError
from transom.machinery.kinds import GVK
from transom.machinery.objects import Object

GROUP = "admission.k8s.io"
VERSIONS = ("v1", "v1beta1")
_KIND = "AdmissionReview"
_OPTIONS = {"CREATE": "CreateOptions", "UPDATE": "UpdateOptions", "DELETE": "DeleteOptions"}
# Kubernetes' messages contain this source location
_SCHEME = "k8s.io/apiserver/pkg/util/webhook/client.go:71"


class AdmissionResponse(NamedTuple):
    """The common content of both versions."""

    allowed: bool
    status: Object | None
    patch: bytes
    patch_type: str
    annotations: dict[str, str]
    warnings: list[str]


def version_for(accepted: Sequence[str]) -> str:
    """The first version that the webhook accepts and this server supports."""
    for version in accepted:
        if version in VERSIONS:
            return version
    raise CallFailed("webhook does not accept known AdmissionReview versions (v1, v1beta1)")


def admission_review(
    version: str,
    uid: str,
    attributes: Attributes,
    kind: GVK,
    request_kind: GVK,
    target: Resource,
    obj: Object | None,
    old: Object | None,
) -> Object:
    """The review to send. `kind` and `target` match the webhook's rule, `asked_kind` is the
    request's own.
    """
    request: Object = {"uid": uid, **admission_request(attributes, kind, request_kind, target)}
    options = request.pop("options")
    dry_run = request.pop("dryRun")
    request["object"], request["oldObject"] = obj, old
    request["dryRun"], request["options"] = dry_run, options
    return {"kind": _KIND, "apiVersion": f"{GROUP}/{version}", "request": request}


def admission_request(
    attributes: Attributes, kind: GVK, request_kind: GVK, target: Resource
) -> Object:
    """The AdmissionRequest without uid and objects: what expressions see as `request`."""
    source, sub = attributes.resource, attributes.subresource
    request: Object = {"kind": _kind(kind), "resource": _resource(target)}
    if sub:
        request["subResource"] = sub
    request["requestKind"], request["requestResource"] = _kind(request_kind), _resource(source)
    if sub:
        request["requestSubResource"] = sub
    # deletecollection has no name
    if attributes.name and attributes.ctx.verb != "deletecollection":
        request["name"] = attributes.name
    namespace = namespace_of(attributes)
    if namespace:
        request["namespace"] = namespace
    request["operation"] = attributes.operation
    request["userInfo"] = attributes.ctx.user.info()
    request["dryRun"] = attributes.ctx.dry_run
    request["options"] = _options(attributes)
    return request


def namespace_of(attributes: Attributes) -> str:
    """The namespace of a Namespace is its own name."""
    if attributes.namespace or attributes.resource.kind.key != "/Namespace":
        return attributes.namespace
    return attributes.name


def _kind(gvk: GVK) -> Object:
    return {"group": gvk.group, "version": gvk.version, "kind": gvk.kind}


def _resource(resource: Resource) -> Object:
    return {"group": resource.group, "version": resource.version, "resource": resource.kind.plural}


def _options(attributes: Attributes) -> Object | None:
    kind = _OPTIONS.get(attributes.operation)
    if kind is None:
        return None
    options: Object = {"kind": kind, "apiVersion": "meta.k8s.io/v1"}
    if attributes.options is not None:
        options.update(attributes.options)
        return options
    if attributes.ctx.dry_run:
        options["dryRun"] = ["All"]
    if attributes.ctx.field_manager:
        options["fieldManager"] = attributes.ctx.field_manager
    return options


def parse_admission_response(
    raw: bytes, version: str, uid: str, *, mutating: bool
) -> AdmissionResponse:
    """The response to the review `uid`; raises CallFailed if it is invalid."""
    given = _object(raw)
    named = _named(given)
    if named.kind not in ("", _KIND) or (named.group, named.version) not in (
        ("", ""),
        (GROUP, version),
    ):
        raise CallFailed(_other_kind(named, version))
    try:
        # both versions have the same fields
        review = codec.normalise_object(GVK(GROUP, "v1", _KIND), given)
    except codec.DecodeError as problem:
        raise CallFailed(problem.base) from None
    response = review.get("response")
    if response is None:
        raise CallFailed("webhook response was absent")
    patch, kind = base64.b64decode(response.get("patch") or ""), response.get("patchType")
    if version == "v1":
        _verify(response, uid, named, patch, kind, mutating)
    elif patch:
        kind = "JSONPatch"  # not checked in v1beta1
    return AdmissionResponse(
        bool(response.get("allowed")),
        response.get("status"),
        patch if mutating else b"",
        kind or "",
        response.get("auditAnnotations") or {},
        response.get("warnings") or [],
    )


def _object(raw: bytes) -> Object:
    media = media_of(raw)
    try:
        given = gojson.loads(raw) if media == codec.JSON else codec.from_yaml(raw)
    except ValueError:
        given = None
    if isinstance(given, dict):
        return given
    try:
        return codec.decode_object(raw, media, GVK(GROUP, "v1", _KIND)).obj
    except codec.DecodeError as problem:
        raise CallFailed(problem.base) from None


def _named(given: Object) -> GVK:
    """The kind that the response declares."""
    group, _, version = str(given.get("apiVersion") or "").rpartition("/")
    return GVK(group, version, str(given.get("kind") or ""))


def _other_kind(named: GVK, version: str) -> str:
    if named in (GVK("", "v1", "Status"), *(GVK(GROUP, known, _KIND) for known in VERSIONS)):
        return (
            f"converting ({named.version}.{named.kind}) to ({version}.{_KIND}): unknown conversion"
        )
    return (
        f'no kind "{named.kind}" is registered for version "{named.api_version}" in scheme '
        f'"{_SCHEME}"'
    )


def _verify(
    response: Object, uid: str, named: GVK, patch: bytes, kind: Any, mutating: bool
) -> None:
    if response.get("uid", "") != uid:
        raise CallFailed(
            f"expected response.uid={go_quote(uid)}, got {go_quote(response.get('uid', ''))}"
        )
    if named != GVK(GROUP, "v1", _KIND):
        got = f"{named.group}/{named.version}, Kind={named.kind}"
        raise CallFailed(f"expected webhook response of {GROUP}/v1, Kind={_KIND}, got {got}")
    if not mutating:
        if patch:
            raise CallFailed("validating webhook may not return response.patch")
        if kind is not None:
            raise CallFailed("validating webhook may not return response.patchType")
        return
    if patch and kind is None:
        raise CallFailed("webhook returned response.patch but not response.patchType")
    if not patch and kind is not None:
        raise CallFailed("webhook returned response.patchType but not response.patch")
    if kind == "":
        raise CallFailed('webhook returned invalid response.patchType of ""')


def webhook_denial(webhook: str, status: Object | None) -> ApiError:
    """The error for the client: the webhook's own Status, with the webhook's name before the
    message.
    """
    status = status or {}
    code = status.get("code") or 0
    why = status.get("message") or status.get("reason")
    denied = f"admission webhook {go_quote(webhook)} denied the request"
    return ApiError(
        code if code >= 400 else 400,
        status.get("reason") or "",
        f"{denied}: {why}" if why else f"{denied} without explanation",
        status.get("details"),
    )


def patch_operations(patch: bytes) -> list[Any]:
    """A decoded JSON patch; raises ValueError with Go's message if it is invalid."""
    found = gojson.loads(patch)
    if found is None:
        return []
    if not isinstance(found, list):
        raise ValueError(
            f"json: cannot unmarshal {gojson.kind_of(patch)} into Go value of type jsonpatch.Patch"
        )
    for op in found:
        if op is not None and not isinstance(op, dict):
            raise ValueError(
                f"json: cannot unmarshal {gojson.kind_of(orjson.dumps(op))} into Go value of type "
                "jsonpatch.Operation"
            )
    return found
