"""The token subresource of service accounts: tokens with an audience, an expiry, and optionally
bound to a pod or Secret.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from transom.apiserver.authentication.service_accounts import Find
from transom.apiserver.authentication.tokens import TokenIssuer
from transom.apiserver.core.attributes import AdmissionInterface, admit_subresource
from transom.apiserver.core.bodies import (
    begin_write,
    check_namespace,
    decode_body,
    own_fields,
    read_media,
)
from transom.apiserver.core.call import ApiCall, ObjectResult
from transom.apiserver.core.context import RequestContext
from transom.apiserver.core.objectstore import encode_value
from transom.apiserver.core.resources import Resource
from transom.apiserver.core.storage import Storage
from transom.apiserver.core.typed import BuiltinType
from transom.kit.clock import rfc3339
from transom.kit.goquote import go_quote
from transom.kit.uuids import random_uuid
from transom.machinery import errors
from transom.machinery.errors import GroupResource
from transom.machinery.field import invalid
from transom.machinery.kinds import Kind
from transom.machinery.objects import Object
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.schema import SchemaTable
from transom.store.api import StoreRecord

_NODE_BINDING = "ServiceAccountTokenNodeBinding"
_KIND = Kind("authentication.k8s.io", "TokenRequest", "tokenrequests", verbs=("create",))


class TokenRequests:
    def __init__(
        self,
        storage: Storage,
        admission: AdmissionInterface,
        find: Find,
        issuer: TokenIssuer,
        audiences: Sequence[str],
        rng: random.Random,
        types: SchemaTable,
    ) -> None:
        """`find` looks up objects of the core group; `audiences` are those of this server."""
        self._storage = storage
        self._admission = admission
        self._find = find
        self._issuer = issuer
        self._audiences = audiences
        self._rng = rng
        # Not a served resource: used to decode, default and validate the body.
        self._requests = Resource(
            _KIND,
            "v1",
            make_ops=lambda kind, gvk: BuiltinType(kind, gvk, types),
            release=storage.release,
        )

    async def create(self, call: ApiCall) -> ObjectResult:
        ctx, storage = call.ctx, self._storage
        options = begin_write(call, "CreateOptions")
        media = read_media(call)
        request = await storage.compute(ctx, lambda: self._read(ctx, call.body, media, options))
        account = None
        if has_behaviour(storage.release, "TokenRequestMetadata"):
            account = self._complete(call, request)
        await admit_subresource(self._admission, call, request)
        problems = await storage.compute(ctx, lambda: self._requests.ops.validate_create(request))
        if problems:
            raise errors.invalid(self._requests.ops.error_kind({}), "", problems)
        spec = request["spec"]
        if account is None:
            account = self._account(call)
        bound = self._bound_object(call, spec.get("boundObjectRef"))
        seconds = spec["expirationSeconds"]
        audiences = spec.get("audiences") or list(self._audiences)
        request["spec"] = {
            "audiences": audiences,
            "expirationSeconds": seconds,
            "boundObjectRef": spec.get("boundObjectRef"),
        }
        token_id = random_uuid(self._rng) if storage.feature("ServiceAccountTokenJTI") else ""
        text = self._issuer.bound(account, audiences, ctx.now, seconds, token_id=token_id, **bound)
        request["status"] = {"token": text, "expirationTimestamp": rfc3339(ctx.now + seconds)}
        return ObjectResult(self._requests, StoreRecord("", encode_value(request), 0, 0), 201)

    def _read(self, ctx: RequestContext, raw: bytes, media: str, options: Object) -> Object:
        obj = decode_body(ctx, self._requests, raw, media, options)
        self._requests.ops.default(obj)
        own_fields(ctx, self._requests, obj, None)
        if has_behaviour(self._requests.release, "SubresourcesInManagedFields"):
            for entry in obj["metadata"].get("managedFields") or ():
                entry["subresource"] = "token"
        return obj

    def _account(self, call: ApiCall) -> Object:
        found = self._find("serviceaccounts", call.info.namespace, call.info.name)
        if found is None:
            raise errors.not_found(GroupResource("", "serviceaccounts"), call.info.name)
        return found

    def _complete(self, call: ApiCall, request: Object) -> Object:
        """Checks and completes the metadata, which is that of the account."""
        meta, info = request["metadata"], call.info
        check_namespace(self._requests, request, info.namespace)
        if meta.get("name") and meta["name"] != info.name:
            problem = invalid(
                "metadata.name", meta["name"], "must match the service account name if specified"
            )
            raise errors.invalid(self._requests.ops.error_kind({}), info.name, [problem])
        account = self._account(call)
        uid, given = account["metadata"]["uid"], meta.get("uid")
        if given and given != uid:
            text = (
                f"the UID in the token request ({given}) does not match the UID of the service "
                f"account ({uid})"
            )
            if self._storage.feature("TokenRequestServiceAccountUIDValidation"):
                where = GroupResource("authentication.k8s.io", "TokenRequest")
                raise errors.conflict(where, info.name, text)
        meta.update(
            {
                "name": info.name,
                "namespace": info.namespace,
                "creationTimestamp": rfc3339(call.ctx.now),
            }
        )
        if has_behaviour(self._storage.release, "TokenRequestUid"):
            meta["uid"] = given or uid
        return account

    def _node_of(self, pod: Object) -> Object | None:
        """The node of a pod, which its tokens name; without a UID if it does not exist."""
        name = (pod.get("spec") or {}).get("nodeName")
        if not name or not self._storage.feature("ServiceAccountTokenPodNodeInfo"):
            return None
        return self._find("nodes", "", name) or {"metadata": {"name": name, "uid": ""}}

    def _bound_object(self, call: ApiCall, reference: Object | None) -> dict[str, Object]:
        """The object that the token is bound to, as `pod=`, `secret=` or `node=`."""
        if reference is None:
            return {}
        kind, name = reference.get("kind", ""), reference.get("name", "")
        group, _, version = reference.get("apiVersion", "").rpartition("/")
        kinds: tuple[str, ...] = ("Pod", "Secret")
        if has_behaviour(self._storage.release, "NodeBoundTokens"):
            kinds = (*kinds, "Node")
            if not group and kind == "Node" and not self._storage.feature(_NODE_BINDING):
                raise errors.bad_request(
                    f"cannot bind token to a Node object as the {go_quote(_NODE_BINDING)} "
                    "feature-gate is disabled"
                )
        if group or kind not in kinds:
            raise errors.bad_request(
                f"cannot bind token to object of type {group}/{version}, Kind={kind}"
            )
        namespace = "" if kind == "Node" else call.info.namespace
        found = self._find(f"{kind.lower()}s", namespace, name)
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
        node = self._node_of(found) if kind == "Pod" else None
        return {kind.lower(): found} if node is None else {kind.lower(): found, "node": node}
