"""The token subresource of service accounts: tokens with an audience, an expiry, and optionally
bound to a pod or Secret.
"""

from __future__ import annotations

from collections.abc import Sequence

from transom.apiserver.authentication.service_accounts import Find
from transom.apiserver.authentication.tokens import TokenIssuer
from transom.apiserver.core.attributes import AdmissionInterface, admit_subresource
from transom.apiserver.core.bodies import begin_write, decode_body, own_fields, read_media
from transom.apiserver.core.call import ApiCall, ObjectResult
from transom.apiserver.core.context import RequestContext
from transom.apiserver.core.objectstore import encode_value
from transom.apiserver.core.resources import Resource
from transom.apiserver.core.storage import Storage
from transom.kit.clock import rfc3339
from transom.kit.goquote import go_quote
from transom.machinery import errors
from transom.machinery.errors import GroupResource
from transom.machinery.kinds import Kind
from transom.machinery.objects import Object
from transom.store.api import StoreRecord

# Not a served resource: used to decode, default and validate the body.
_REQUESTS = Resource(
    Kind("authentication.k8s.io", "TokenRequest", "tokenrequests", verbs=("create",)), "v1"
)


class TokenRequests:
    def __init__(
        self,
        storage: Storage,
        admission: AdmissionInterface,
        find: Find,
        issuer: TokenIssuer,
        audiences: Sequence[str],
    ) -> None:
        """`find` looks up objects of the core group; `audiences` are those of this server."""
        self._storage = storage
        self._admission = admission
        self._find = find
        self._issuer = issuer
        self._audiences = audiences

    async def create(self, call: ApiCall) -> ObjectResult:
        ctx, info, storage = call.ctx, call.info, self._storage
        options = begin_write(call, "CreateOptions")
        media = read_media(call)
        request = await storage.compute(ctx, lambda: _read(ctx, call.body, media, options))
        await admit_subresource(self._admission, call, request)
        problems = await storage.compute(ctx, lambda: _REQUESTS.ops.validate_create(request))
        if problems:
            raise errors.invalid(_REQUESTS.ops.error_kind({}), "", problems)
        spec = request["spec"]
        account = self._find("serviceaccounts", info.namespace, info.name)
        if account is None:
            raise errors.not_found(GroupResource("", "serviceaccounts"), info.name)
        bound = self._bound_object(call, spec.get("boundObjectRef"))
        seconds = spec["expirationSeconds"]
        audiences = spec.get("audiences") or list(self._audiences)
        request["spec"] = {
            "audiences": audiences,
            "expirationSeconds": seconds,
            "boundObjectRef": spec.get("boundObjectRef"),
        }
        text = self._issuer.bound(account, audiences, ctx.now, seconds, **bound)
        request["status"] = {"token": text, "expirationTimestamp": rfc3339(ctx.now + seconds)}
        return ObjectResult(_REQUESTS, StoreRecord("", encode_value(request), 0, 0), 201)

    def _bound_object(self, call: ApiCall, reference: Object | None) -> dict[str, Object]:
        """The object that the token is bound to, as `pod=` or `secret=`."""
        if not reference:
            return {}
        kind, name = reference.get("kind", ""), reference.get("name", "")
        group, _, version = reference.get("apiVersion", "").rpartition("/")
        if group or kind not in ("Pod", "Secret"):
            raise errors.bad_request(
                f"cannot bind token to object of type {group}/{version}, Kind={kind}"
            )
        found = self._find(f"{kind.lower()}s", call.info.namespace, name)
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
                GroupResource("", kind),
                name,
                f"the UID in the bound object reference ({uid}) does not match the UID in record. "
                "The object might have been deleted and then recreated",
            )
        return {kind.lower(): found}


def _read(ctx: RequestContext, raw: bytes, media: str, options: Object) -> Object:
    obj = decode_body(ctx, _REQUESTS, raw, media, options)
    _REQUESTS.ops.default(obj)
    own_fields(ctx, _REQUESTS, obj, None)
    return obj
