"""Nobody grants what he does not hold: roles and bindings are checked against their writer's own rights.

Kubernetes checks between mutating admission and validation; as the last mutating plugin this one stands there too.
The verbs `escalate` on roles and `bind` on what is bound lift the check.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from transom.apiserver.admission.attributes import Attributes
from transom.apiserver.authorization.chain import Decision
from transom.apiserver.authorization.rbac import Rbac, absent
from transom.apiserver.context import User
from transom.apiserver.requestinfo import RequestInfo
from transom.apiserver.resources import Resource
from transom.machinery import errors, rbac
from transom.machinery.field import aggregate_text, go_quote
from transom.machinery.objects import Object

Decide = Callable[[User, RequestInfo], Decision]
_ROLES = {f"{rbac.GROUP}/Role", f"{rbac.GROUP}/ClusterRole"}
# What the garbage collector changes; changing only these grants nothing.
_COLLECTORS = {"ownerReferences", "finalizers", "selfLink", "managedFields"}


class RoleEscalation:
    name = "RoleEscalation"

    def __init__(self, policy: Rbac, decide: Decide) -> None:
        self._policy = policy
        self._decide = decide

    def handles(self, resource: Resource, operation: str, subresource: str) -> bool:
        return resource.group == rbac.GROUP and operation in ("CREATE", "UPDATE")

    def admit(self, attributes: Attributes) -> None:
        user = attributes.ctx.user
        if "system:masters" in user.groups:
            return
        if attributes.kind_key in _ROLES:
            self._check_role(attributes, user)
        else:
            self._check_binding(attributes, user)

    def _check_role(self, attributes: Attributes, user: User) -> None:
        resource = attributes.resource.gr.resource
        # The name of what is posted is not in the URL, so no right on a name helps there.
        name = "" if attributes.ctx.verb == "create" else attributes.name
        if self._may(user, "escalate", rbac.GROUP, resource, attributes.namespace, name):
            return
        role, old = attributes.obj, attributes.old
        if old is not None and _only_collected(role, old):
            return
        self._confirm(attributes, user, role.get("rules") or [])
        if (_aggregates(role) or (old is not None and _aggregates(old))) and self._lacking(
            user, attributes.namespace, rbac.EVERYTHING
        ):
            raise errors.forbidden(
                attributes.resource.gr, role["metadata"].get("name", ""),
                "must have cluster-admin privileges to use the aggregationRule",
            )

    def _check_binding(self, attributes: Attributes, user: User) -> None:
        binding, old = attributes.obj, attributes.old
        if old is not None and _only_collected(binding, old):
            return
        reference = binding.get("roleRef") or {}
        kind = reference.get("kind", "")
        if kind in ("Role", "ClusterRole") and self._may(
            user, "bind", reference.get("apiGroup", ""), f"{kind.lower()}s", attributes.namespace,
            reference.get("name", ""),
        ):
            return
        self._confirm(attributes, user, self._policy.referenced_rules(reference, attributes.namespace))

    def _may(self, user: User, verb: str, group: str, resource: str, namespace: str, name: str) -> bool:
        return self._decide(user, RequestInfo(True, "", verb, group, "*", namespace, resource, name)).allowed is True

    def _lacking(self, user: User, namespace: str, wanted: Sequence[rbac.Rule]) -> list[rbac.Rule]:
        return rbac.missing(self._policy.rules_for(user, namespace)[0], wanted)

    def _confirm(self, attributes: Attributes, user: User, wanted: Sequence[rbac.Rule]) -> None:
        held, dangling = self._policy.rules_for(user, attributes.namespace)
        lacking = rbac.missing(held, wanted)
        if not lacking:
            return
        who = f"user {go_quote(user.name)} (groups={rbac.go_strings(user.groups)})"
        what = "\n".join(sorted({rbac.describe(rule) for rule in rbac.compact(lacking)}))
        text = f"{who} is attempting to grant RBAC permissions not currently held:\n{what}"
        if dangling:
            problems = aggregate_text(absent(reference, plural=True) for reference in dangling)
            text += f"; resolution errors: [{problems}]"
        raise errors.forbidden(attributes.resource.gr, attributes.obj["metadata"].get("name", ""), text)


def _aggregates(role: Object) -> bool:
    return bool((role.get("aggregationRule") or {}).get("clusterRoleSelectors"))


def _only_collected(new: Object, old: Object) -> bool:
    return _essence(new) == _essence(old)


def _essence(obj: Object) -> Object:
    out = {k: v for k, v in obj.items() if k not in ("kind", "apiVersion", "metadata")}
    out["metadata"] = {k: v for k, v in obj["metadata"].items() if k not in _COLLECTORS}
    return out
