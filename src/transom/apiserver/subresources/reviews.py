"""Access reviews: may he, may I, what may I, who am I. They are calls: nothing is stored."""

from __future__ import annotations

from collections.abc import Callable

from transom.apiserver import writes
from transom.apiserver.admission.attributes import Attributes
from transom.apiserver.authorization.node import node_name
from transom.apiserver.authorization.rbac import absent
from transom.apiserver.context import User
from transom.apiserver.negotiate import body_media
from transom.apiserver.requestinfo import RequestInfo
from transom.apiserver.storage import encode_value
from transom.apiserver.subresources.call import Call
from transom.http.messages import Response
from transom.kit.clock import rfc3339
from transom.machinery import errors
from transom.machinery.field import aggregate_text
from transom.machinery.objects import Object
from transom.store.api import Record

_NO_NODE_RULES = "node authorizer does not support user rule resolution"


async def _received(call: Call, check: Callable[[Call, Object], None] | None = None) -> Object:
    """The review in the storage version, through admission and validation."""
    ctx, res = call.ctx, call.res
    options = writes.begin(ctx, call.request, "CreateOptions")
    obj = writes.decode_body(ctx, res, call.request.body, body_media(call.request.header(b"content-type")), options)
    obj.setdefault("metadata", {})
    res.ops.default(obj)
    writes.check_namespace(res, obj, call.info.namespace)
    writes.own_fields(ctx, res, obj, None)
    attributes = Attributes(
        "CREATE", res, "", call.info.namespace, obj["metadata"].get("name", ""), res.ops.to_storage(obj), None, ctx
    )
    await call.server.admission.admit(attributes)
    review: Object = attributes.obj
    problems = res.ops.validate_create(review)
    if problems:
        raise errors.invalid(res.ops.error_kind(obj), "", problems)
    if check is not None:
        check(call, review)
    await call.server.admission.validate(attributes)
    return review


def _answer(call: Call, review: Object) -> Response:
    return writes.answer(call.ctx, call.res, Record("", encode_value(review), 0, 0), call.form, call.request, 201)


def _attributes(spec: Object) -> RequestInfo:
    resource = spec.get("resourceAttributes")
    if resource is None:
        other = spec["nonResourceAttributes"]
        return RequestInfo(False, other.get("path", ""), other.get("verb", ""))
    return RequestInfo(
        True, "", resource.get("verb", ""), resource.get("group", ""), resource.get("version", ""),
        resource.get("namespace", ""), resource.get("resource", ""), resource.get("name", ""),
        resource.get("subresource", ""),
    )


def _decided(call: Call, user: User, review: Object) -> Response:
    decision = call.server.security.decide(user, _attributes(review["spec"]))
    status: Object = {"allowed": decision.allowed is True}
    if decision.allowed is False:
        status["denied"] = True
    if decision.reason:
        status["reason"] = decision.reason
    review["status"] = status
    return _answer(call, review)


async def subject_access(call: Call) -> Response:
    review = await _received(call)
    spec = review["spec"]
    user = User(spec.get("user", ""), tuple(spec.get("groups") or ()), spec.get("uid", ""), spec.get("extra"))
    return _decided(call, user, review)


async def self_access(call: Call) -> Response:
    return _decided(call, call.ctx.user, await _received(call))


async def self_rules(call: Call) -> Response:
    review = await _received(call, _namespace_given)
    user = call.ctx.user
    rules, dangling = call.server.security.rbac.rules_for(user, review["spec"]["namespace"])
    incomplete = node_name(user) is not None
    problems = [_NO_NODE_RULES] if incomplete else []
    if dangling:
        problems.append(aggregate_text(absent(reference, plural=False) for reference in dangling))
    status: Object = {
        "resourceRules": [
            {k: r[k] for k in ("verbs", "apiGroups", "resources", "resourceNames") if r.get(k)}
            for r in rules if r.get("resources")
        ],
        "nonResourceRules": [
            {"verbs": r["verbs"], "nonResourceURLs": r["nonResourceURLs"]} for r in rules if r.get("nonResourceURLs")
        ],
        "incomplete": incomplete,
    }
    if problems:
        status["evaluationError"] = aggregate_text(problems)
    return _answer(call, {"metadata": {"creationTimestamp": None}, "spec": {}, "status": status})


def _namespace_given(_call: Call, review: Object) -> None:
    if not (review.get("spec") or {}).get("namespace"):
        raise errors.bad_request("no namespace on request")


async def self_subject(call: Call) -> Response:
    await _received(call)
    meta = {"creationTimestamp": rfc3339(call.ctx.now)}
    return _answer(call, {"metadata": meta, "status": {"userInfo": call.ctx.user.info()}})


async def token(call: Call) -> Response:
    review = await _received(call, _token_given)
    spec, tokens = review["spec"], call.server.security.tokens
    verified, problem = tokens.verify(spec["token"], spec.get("audiences") or tokens.audiences)
    status: Object = {"user": {}}
    if verified is None:
        status["error"] = problem
    else:
        status = {"authenticated": True, "user": verified.user.info(), "audiences": list(verified.audiences)}
    review["status"] = status
    return _answer(call, review)


def _token_given(_call: Call, review: Object) -> None:
    if not (review.get("spec") or {}).get("token"):
        raise errors.bad_request("token is required for TokenReview in authentication")
