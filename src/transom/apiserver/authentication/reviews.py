"""TokenReview and SelfSubjectReview: the user of a token, and of the request itself."""

from __future__ import annotations

from transom.apiserver.authentication.bearer import BearerTokens
from transom.apiserver.core.attributes import AdmissionInterface
from transom.apiserver.core.call import ApiCall, ObjectResult
from transom.apiserver.core.reviews import read_review, review_result
from transom.apiserver.core.storage import Storage
from transom.kit.clock import rfc3339
from transom.machinery import errors
from transom.machinery.objects import Object


class IdentityReviews:
    def __init__(
        self, storage: Storage, admission: AdmissionInterface, tokens: BearerTokens
    ) -> None:
        self._storage = storage
        self._admission = admission
        self._tokens = tokens

    async def self_subject(self, call: ApiCall) -> ObjectResult:
        await read_review(self._storage, self._admission, call)
        meta = {"creationTimestamp": rfc3339(call.ctx.now)}
        status = {"userInfo": call.ctx.user.info()}
        return review_result(call, {"metadata": meta, "status": status})

    async def token(self, call: ApiCall) -> ObjectResult:
        review = await read_review(self._storage, self._admission, call, _check_token_given)
        spec, tokens = review["spec"], self._tokens
        audiences = spec.get("audiences") or tokens.audiences
        verified, problem, annotations = tokens.verify(spec["token"], audiences)
        call.ctx.annotations.update(annotations)
        status: Object = {"user": {}}
        if verified is None:
            status["error"] = problem
        else:
            if verified.warning:
                call.ctx.warn(verified.warning)
            status = {
                "authenticated": True,
                "user": verified.user.info(),
                "audiences": list(verified.audiences),
            }
        review["status"] = status
        return review_result(call, review)


def _check_token_given(review: Object) -> None:
    if not (review.get("spec") or {}).get("token"):
        raise errors.bad_request("token is required for TokenReview in authentication")
