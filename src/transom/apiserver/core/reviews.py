"""Reviews (SubjectAccessReview, TokenReview and the like): a create returns a result, and nothing
is stored.
"""

from __future__ import annotations

from collections.abc import Callable

from transom.apiserver.core.attributes import AdmissionInterface, Attributes
from transom.apiserver.core.bodies import (
    begin_write,
    check_namespace,
    decode_body,
    own_fields,
    read_media,
)
from transom.apiserver.core.call import ApiCall, ObjectResult
from transom.apiserver.core.objectstore import encode_value
from transom.apiserver.core.storage import Storage
from transom.machinery import errors
from transom.machinery.objects import Object
from transom.machinery.releases.behaviour import has_behaviour
from transom.store.api import StoreRecord

# What the server sets in the metadata of a new object; since 1.25 it removes them from reviews too.
_WIPED = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink")


async def read_review(
    storage: Storage,
    admission: AdmissionInterface,
    call: ApiCall,
    check: Callable[[Object], None] | None = None,
) -> Object:
    """The review of a create call in the storage version, after admission and validation."""
    ctx, res = call.ctx, call.res
    options = begin_write(call, "CreateOptions")
    media = read_media(call)

    def read() -> Object:
        obj = decode_body(ctx, res, call.body, media, options)
        meta = obj.setdefault("metadata", {})
        if has_behaviour(res.release, "WipedReviews"):
            for name in _WIPED:
                meta.pop(name, None)
            if not has_behaviour(res.release, "OmittedZeroTimes"):
                meta["creationTimestamp"] = None
            if not res.kind.namespaced:
                meta.pop("namespace", None)
            elif call.info.namespace:
                meta["namespace"] = meta.get("namespace") or call.info.namespace
        res.ops.default(obj)
        check_namespace(res, obj, call.info.namespace)
        own_fields(ctx, res, obj, None)
        return res.ops.to_storage(obj)

    obj = await storage.compute(ctx, read)
    attributes = Attributes(
        "CREATE", res, "", call.info.namespace, obj["metadata"].get("name", ""), obj, None, ctx
    )
    await admission.admit(attributes)
    review: Object = attributes.obj
    problems = await storage.compute(ctx, lambda: res.ops.validate_create(review))
    if problems:
        raise errors.invalid(res.ops.error_kind(obj), "", problems)
    if check is not None:
        check(review)
    await admission.validate(attributes)
    return review


def review_result(call: ApiCall, review: Object) -> ObjectResult:
    return ObjectResult(call.res, StoreRecord("", encode_value(review), 0, 0), 201)
