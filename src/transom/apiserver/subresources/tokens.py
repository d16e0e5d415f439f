"""Tokens of service accounts on request: for an audience, for a while, bound to a pod or a secret."""

from __future__ import annotations

from transom.apiserver import writes
from transom.apiserver.negotiate import body_media
from transom.apiserver.resources import Resource
from transom.apiserver.storage import encode_value
from transom.apiserver.subresources.call import Call
from transom.http.messages import Response
from transom.kit.clock import rfc3339
from transom.machinery import errors
from transom.machinery.errors import GroupResource
from transom.machinery.field import go_quote
from transom.machinery.kinds import Kind
from transom.machinery.objects import Object
from transom.store.api import Record

# Not served by itself: this is what decodes, defaults and judges the body.
_REQUESTS = Resource(Kind("authentication.k8s.io", "TokenRequest", "tokenrequests", verbs=("create",)), "v1")


async def create(call: Call) -> Response:
    request = _received(call)
    await call.server.admission.connect(call, request)
    problems = _REQUESTS.ops.validate_create(request)
    if problems:
        raise errors.invalid(_REQUESTS.ops.error_kind({}), "", problems)
    server, info, spec = call.server, call.info, request["spec"]
    account = server.find_core("serviceaccounts", info.namespace, info.name)
    if account is None:
        raise errors.not_found(GroupResource("", "serviceaccounts"), info.name)
    bound = _bound_object(call, spec.get("boundObjectRef"))
    seconds = spec["expirationSeconds"]
    request["spec"] = {
        "audiences": spec.get("audiences") or list(server.security.tokens.audiences),
        "expirationSeconds": seconds,
        "boundObjectRef": spec.get("boundObjectRef"),
    }
    text = server.security.issuer.bound(account, request["spec"]["audiences"], call.ctx.now, seconds, **bound)
    request["status"] = {"token": text, "expirationTimestamp": rfc3339(call.ctx.now + seconds)}
    return writes.answer(
        call.ctx, _REQUESTS, Record("", encode_value(request), 0, 0), call.form, call.request, 201
    )


def _received(call: Call) -> Object:
    ctx, raw = call.ctx, call.request
    options = writes.begin(ctx, raw, "CreateOptions")
    obj = writes.decode_body(ctx, _REQUESTS, raw.body, body_media(raw.header(b"content-type")), options)
    _REQUESTS.ops.default(obj)
    writes.own_fields(ctx, _REQUESTS, obj, None)
    return obj


def _bound_object(call: Call, reference: Object | None) -> dict[str, Object]:
    """What the token is to end with, as `pod=` or `secret=`."""
    if not reference:
        return {}
    kind, name = reference.get("kind", ""), reference.get("name", "")
    group, _, version = reference.get("apiVersion", "").rpartition("/")
    if group or kind not in ("Pod", "Secret"):
        raise errors.bad_request(f"cannot bind token to object of type {group}/{version}, Kind={kind}")
    found = call.server.find_core(f"{kind.lower()}s", call.info.namespace, name)
    if found is None:
        raise errors.not_found(GroupResource("", f"{kind.lower()}s"), name)
    account = call.info.name
    if kind == "Pod" and (found.get("spec") or {}).get("serviceAccountName", "") != account:
        raise errors.bad_request(
            f"cannot bind token for serviceaccount {go_quote(account)} to pod running with different "
            "serviceaccount name."
        )
    uid = reference.get("uid")
    if uid and uid != found["metadata"]["uid"]:
        raise errors.conflict(
            GroupResource("", kind), name,
            f"the UID in the bound object reference ({uid}) does not match the UID in record. "
            "The object might have been deleted and then recreated",
        )
    return {kind.lower(): found}
