"""Which function serves which verb of which sub-resource (or of a resource that is nothing but a call)."""

from __future__ import annotations

from transom.apiserver import writes
from transom.apiserver.storage import Prepare
from transom.apiserver.strategies import certificates
from transom.apiserver.subresources import components, connect, ephemeral, pods, reviews, scale, tokens
from transom.apiserver.subresources.call import Call, Handler
from transom.http.messages import Response
from transom.machinery.objects import Object

_SCALE: dict[str, Handler] = {"get": scale.get, "update": scale.update, "patch": scale.patch_}
_STREAM: dict[str, Handler] = dict.fromkeys(("get", "create"), connect.stream)
# OPTIONS has no verb.
_PROXY: dict[str, Handler] = dict.fromkeys(("get", "create", "update", "patch", "delete", ""), connect.proxy)
# Sub-resources that lead somewhere else: what a client accepts is between it and whoever is there.
CONNECTED = frozenset(("attach", "exec", "portforward", "proxy"))


def _finalize(_storage: object, _ctx: object, new: Object, old: Object) -> None:
    """Namespaces' /finalize changes spec.finalizers only."""
    if "status" in old:
        new["status"] = old["status"]


def _updating(prepare: Prepare | None) -> dict[str, Handler]:
    """The verbs of a sub-resource that updates a part of its object."""

    async def update(call: Call) -> Response:
        return await writes.update(
            call.server.storage, call.ctx, call.res, call.info, call.request, call.form, prepare=prepare
        )

    async def patch(call: Call) -> Response:
        return await writes.patch_(
            call.server.storage, call.ctx, call.res, call.info, call.request, call.form, prepare=prepare
        )

    return {"update": update, "patch": patch}


STATUS = _updating(None)

# (kind key, sub-resource) -> verb -> handler; "*" stands for every kind.
SUBRESOURCES: dict[tuple[str, str], dict[str, Handler]] = {
    ("*", "scale"): _SCALE,
    ("*", "status"): STATUS,
    ("/Pod", "binding"): {"create": pods.bind},
    ("/Pod", "eviction"): {"create": pods.evict},
    ("/Pod", "log"): {"get": connect.log},
    ("/Pod", "exec"): _STREAM,
    ("/Pod", "attach"): _STREAM,
    ("/Pod", "portforward"): _STREAM,
    ("/Pod", "proxy"): _PROXY,
    ("/Pod", "ephemeralcontainers"): {
        **_updating(ephemeral.prepare), "get": ephemeral.get, "update": ephemeral.update,
    },
    ("/Service", "proxy"): _PROXY,
    ("/ServiceAccount", "token"): {"create": tokens.create},
    ("/Node", "proxy"): _PROXY,
    ("/Namespace", "finalize"): _updating(_finalize),
    ("certificates.k8s.io/CertificateSigningRequest", "approval"): _updating(certificates.approve),
}

# Kinds that are not stored, verb -> handler: creating one is a call, reading one finds out.
UNSTORED: dict[str, dict[str, Handler]] = {
    "/Binding": {"create": pods.bind},
    "/ComponentStatus": {"get": components.get, "list": components.list_},
    "authentication.k8s.io/SelfSubjectReview": {"create": reviews.self_subject},
    "authentication.k8s.io/TokenReview": {"create": reviews.token},
    "authorization.k8s.io/LocalSubjectAccessReview": {"create": reviews.subject_access},
    "authorization.k8s.io/SelfSubjectAccessReview": {"create": reviews.self_access},
    "authorization.k8s.io/SelfSubjectRulesReview": {"create": reviews.self_rules},
    "authorization.k8s.io/SubjectAccessReview": {"create": reviews.subject_access},
}


def find(kind_key: str, subresource: str) -> dict[str, Handler] | None:
    return SUBRESOURCES.get((kind_key, subresource)) or SUBRESOURCES.get(("*", subresource))
