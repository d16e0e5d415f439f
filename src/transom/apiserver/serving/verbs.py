"""The verbs of the API: maps verbs of resources and subresources to functions.

Tables, in the order in which the dispatcher looks them up: stored resources, subresources,
resources that are not stored.
"""

from __future__ import annotations

from functools import partial

from transom.apiserver.authentication.reviews import IdentityReviews
from transom.apiserver.authentication.token_requests import TokenRequests
from transom.apiserver.authorization.reviews import AccessReviews
from transom.apiserver.core import reads, writes
from transom.apiserver.core.call import VerbHandler
from transom.apiserver.core.dispatcher import Scope, Verb, VerbTable
from transom.apiserver.core.storage import Prepare, Storage
from transom.apiserver.core.strategies import certificates
from transom.apiserver.core.strategies.pods import prepare_resize
from transom.apiserver.core.subresources.components import ComponentStatuses
from transom.apiserver.core.subresources.connect import ConnectSubresources
from transom.apiserver.core.subresources.ephemeral import EphemeralContainersSubresource
from transom.apiserver.core.subresources.pods import PodSubresources
from transom.apiserver.core.subresources.rollback import RollbackSubresource
from transom.apiserver.core.subresources.scale import ScaleSubresource
from transom.machinery.objects import Object


def _finalize(_storage: object, _ctx: object, new: Object, old: Object) -> None:
    """The /finalize subresource of namespaces changes spec.finalizers only."""
    if "status" in old:
        new["status"] = old["status"]


def verb_table(
    storage: Storage,
    pods: PodSubresources,
    connections: ConnectSubresources,
    rollback: RollbackSubresource,
    tokens: TokenRequests,
    access: AccessReviews,
    identity: IdentityReviews,
    components: ComponentStatuses,
) -> VerbTable:
    scale = ScaleSubresource(storage)
    ephemeral = EphemeralContainersSubresource(storage)

    def updates(prepare: Prepare | None) -> dict[str, VerbHandler]:
        """A subresource that updates a part of its object."""
        return {
            "update": partial(writes.update_object, storage, prepare=prepare),
            "patch": partial(writes.patch_object, storage, prepare=prepare),
        }

    proxy = dict.fromkeys(
        ("get", "create", "update", "patch", "delete", ""),  # OPTIONS has no verb
        connections.proxy,
    )
    stream = {"get": connections.stream, "create": connections.stream}
    return VerbTable(
        stored={
            "get": Verb(partial(reads.get_object, storage)),
            "list": Verb(partial(reads.list_objects, storage)),
            "watch": Verb(partial(reads.watch_objects, storage)),
            "create": Verb(partial(writes.create_object, storage), Scope.COLLECTION),
            "update": Verb(partial(writes.update_object, storage), Scope.OBJECT),
            "patch": Verb(partial(writes.patch_object, storage), Scope.OBJECT),
            "delete": Verb(partial(writes.delete_object, storage), Scope.OBJECT),
            "deletecollection": Verb(partial(writes.delete_collection, storage), Scope.COLLECTION),
        },
        # (kind, subresource); "*" matches every kind.
        subresources={
            ("*", "scale"): {"get": scale.get, "update": scale.update, "patch": scale.patch},
            ("*", "status"): updates(None),
            ("/Pod", "binding"): {"create": pods.bind},
            ("/Pod", "eviction"): {"create": pods.evict},
            ("/Pod", "log"): {"get": connections.log},
            ("/Pod", "exec"): stream,
            ("/Pod", "attach"): stream,
            ("/Pod", "portforward"): stream,
            ("/Pod", "proxy"): proxy,
            ("/Pod", "ephemeralcontainers"): {
                "get": ephemeral.get,
                "update": ephemeral.update,
                "patch": ephemeral.patch,
            },
            ("/Pod", "resize"): {
                "get": partial(reads.get_object, storage),
                **updates(prepare_resize),
            },
            ("/Service", "proxy"): proxy,
            ("/ServiceAccount", "token"): {"create": tokens.create},
            ("apps/Deployment", "rollback"): {"create": rollback.create},
            ("/Node", "proxy"): proxy,
            ("/Namespace", "finalize"): {
                "update": partial(writes.update_object, storage, prepare=_finalize)
            },
            ("certificates.k8s.io/CertificateSigningRequest", "approval"): updates(
                certificates.approve_request
            ),
        },
        # Requests for these kinds are computed or act on other objects; they are not stored.
        unstored={
            "/Binding": {"create": pods.bind},
            "/ComponentStatus": {
                "get": components.get,
                "list": components.list,
                "watch": components.watch,
            },
            "authentication.k8s.io/SelfSubjectReview": {"create": identity.self_subject},
            "authentication.k8s.io/TokenReview": {"create": identity.token},
            "authorization.k8s.io/LocalSubjectAccessReview": {"create": access.subject_access},
            "authorization.k8s.io/SelfSubjectAccessReview": {"create": access.self_access},
            "authorization.k8s.io/SelfSubjectRulesReview": {"create": access.self_rules},
            "authorization.k8s.io/SubjectAccessReview": {"create": access.subject_access},
        },
    )
