"""Permissions for parts of a ResourceClaim's status (DRAResourceClaimGranularStatusAuthorization):
allocations need `resourceclaims/binding`, the status of a driver's devices
`resourceclaims/driver` with a verb that says on which nodes.

Kubernetes checks this in the storage of claims, after mutating admission, as does this plugin.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from transom.apiserver.admission.plugin import MutatingPlugin
from transom.apiserver.authorization.chain import Decision, refusal
from transom.apiserver.core.attributes import Attributes
from transom.apiserver.core.context import UserInfo
from transom.apiserver.core.requestinfo import RequestInfo
from transom.apiserver.core.resources import Resource
from transom.machinery import errors, serviceaccounts
from transom.machinery.field import FieldError, forbidden

Decide = Callable[[UserInfo, RequestInfo], Decision]
Status = Mapping[str, Any]
GATE = "DRAResourceClaimGranularStatusAuthorization"
_KIND = "resource.k8s.io/ResourceClaim"


class ClaimStatusAuthorization(MutatingPlugin):
    name = "ClaimStatusAuthorization"
    thread_safe = False

    def __init__(self, decide: Decide) -> None:
        self._decide = decide

    def handles(self, resource: Resource, operation: str, subresource: str) -> bool:
        return resource.kind.key == _KIND and operation == "UPDATE" and subresource == "status"

    def admit(self, attributes: Attributes) -> None:
        assert attributes.old is not None
        new: Status = attributes.obj.get("status") or {}
        old: Status = attributes.old.get("status") or {}
        found = [*self._binding_errors(attributes, new, old)]
        if new.get("allocation") is not None:
            found += self._driver_errors(attributes, new, old)
        if found:
            resource = attributes.resource
            kind = errors.GroupResource(resource.group, resource.kind.kind)
            raise errors.invalid(kind, attributes.name, found)

    def _binding_errors(self, attributes: Attributes, new: Status, old: Status) -> list[FieldError]:
        if all(
            (new.get(name) or None) == (old.get(name) or None)
            for name in ("allocation", "reservedFor")
        ):
            return []
        verb = attributes.ctx.verb
        problem = self._problem(attributes, [verb], "binding", "", "")
        if not problem:
            return []
        text = (
            "changing status.allocation or status.reservedFor requires "
            f'resource="resourceclaims/binding", verb="{verb}" permission: {problem}'
        )
        return [forbidden("status.allocation", text)]

    def _driver_errors(self, attributes: Attributes, new: Status, old: Status) -> list[FieldError]:
        verbs = [f"arbitrary-node:{attributes.ctx.verb}"]
        if _is_on_node(attributes.ctx.user, _node_of(new["allocation"])):
            verbs.insert(0, f"associated-node:{attributes.ctx.verb}")
        out = []
        for driver in sorted(_changed_drivers(new, old)):
            problem = self._problem(attributes, verbs, "driver", attributes.namespace, driver)
            if problem:
                text = (
                    'changing status.devices requires resource="resourceclaims/driver", '
                    f'verb="[{" ".join(verbs)}]" permission: {problem}'
                )
                out.append(forbidden("status.devices", text))
        return out

    def _problem(
        self,
        attributes: Attributes,
        verbs: Sequence[str],
        subresource: str,
        namespace: str,
        name: str,
    ) -> str:
        """Why none of the verbs is allowed, "" if one is."""
        user, resource = attributes.ctx.user, attributes.resource
        problems = []
        for verb in verbs:
            info = RequestInfo(
                True,
                "",
                verb,
                resource.group,
                resource.version,
                namespace,
                resource.gr.resource,
                name,
                subresource,
            )
            decision = self._decide(user, info)
            if decision.allowed:
                return ""
            problems.append(refusal(user, info, decision.reason).message)
        return problems[0]


def _changed_drivers(new: Status, old: Status) -> set[str]:
    def by_key(status: Status) -> dict[tuple[str, ...], Any]:
        names = ("driver", "pool", "device", "shareID")
        return {
            tuple(row.get(name, "") for name in names): row for row in status.get("devices") or ()
        }

    before, after = by_key(old), by_key(new)
    return {key[0] for key in before.keys() | after.keys() if before.get(key) != after.get(key)}


def _node_of(allocation: Mapping[str, Any]) -> str:
    """The node of an allocation that is usable on one node only, "" for others."""
    terms = (allocation.get("nodeSelector") or {}).get("nodeSelectorTerms") or []
    if len(terms) != 1 or terms[0].get("matchExpressions"):
        return ""
    fields = terms[0].get("matchFields") or []
    if len(fields) != 1 or (fields[0].get("key"), fields[0].get("operator")) != (
        "metadata.name",
        "In",
    ):
        return ""
    values = fields[0].get("values") or []
    return str(values[0]) if len(values) == 1 else ""


def _is_on_node(user: UserInfo, node: str) -> bool:
    """Whether the user is a service account with a token of a pod on the node."""
    if not node or serviceaccounts.split_user_name(user.name) is None:
        return False
    return list(user.extra.get(serviceaccounts.NODE_NAME, ())) == [node]
