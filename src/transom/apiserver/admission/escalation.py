"""Prevents privilege escalation: users cannot grant permissions in roles and bindings that they do
not have.

Kubernetes checks this between mutating admission and validation, as does this plugin, which is the
last mutating one. The verbs `escalate` on roles and `bind` on the referenced role lift the check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from transom.apiserver.admission.plugin import MutatingPlugin
from transom.apiserver.authorization.chain import Decision
from transom.apiserver.authorization.rbac import Rbac, absent
from transom.apiserver.core.attributes import Attributes
from transom.apiserver.core.context import UserInfo
from transom.apiserver.core.offload import compute_in_worker
from transom.apiserver.core.requestinfo import RequestInfo
from transom.apiserver.core.resources import Resource
from transom.kit.goquote import go_quote
from transom.kit.workers import WorkRunner
from transom.machinery import errors, rbac
from transom.machinery.field import aggregate_text
from transom.machinery.objects import Object
from transom.machinery.releases.behaviour import has_behaviour

Decide = Callable[[UserInfo, RequestInfo], Decision]
_ROLES = {f"{rbac.GROUP}/Role", f"{rbac.GROUP}/ClusterRole"}
# Fields that the garbage collector changes; changing only these grants nothing.
_COLLECTORS = {"ownerReferences", "finalizers", "selfLink", "managedFields"}
# A short rule can expand to millions of permissions. The message lists as many as fit into this
# size.
_LONGEST_MESSAGE = 256 * 1024
_LARGE = 300  # the number of rules, or values of a rule, that are compared on the event loop


class RoleEscalation(MutatingPlugin):
    name = "RoleEscalation"
    thread_safe = False

    def __init__(self, policy: Rbac, decide: Decide, workers: WorkRunner) -> None:
        self._policy = policy
        self._decide = decide
        self._workers = workers

    def handles(self, resource: Resource, operation: str, subresource: str) -> bool:
        return resource.group == rbac.GROUP and operation in ("CREATE", "UPDATE")

    async def admit(self, attributes: Attributes) -> None:
        user = attributes.ctx.user
        if "system:masters" in user.groups:
            return
        if attributes.kind_key in _ROLES:
            await self._check_role(attributes, user)
        else:
            await self._check_binding(attributes, user)

    async def _check_role(self, attributes: Attributes, user: UserInfo) -> None:
        resource = attributes.resource.gr.resource
        # The URL of a create has no name, so a permission on a name does not apply.
        name = "" if attributes.ctx.verb == "create" else attributes.name
        if self._may(user, "escalate", rbac.GROUP, resource, attributes.namespace, name):
            return
        role, old = attributes.obj, attributes.old
        if old is not None and _only_collected(role, old):
            return
        await self._confirm(attributes, user, role.get("rules") or [])
        if (_aggregates(role) or (old is not None and _aggregates(old))) and self._lacking(
            user, attributes.namespace, rbac.EVERYTHING
        ):
            raise errors.forbidden(
                attributes.resource.gr,
                role["metadata"].get("name", ""),
                "must have cluster-admin privileges to use the aggregationRule",
            )

    async def _check_binding(self, attributes: Attributes, user: UserInfo) -> None:
        binding, old = attributes.obj, attributes.old
        if old is not None and _only_collected(binding, old):
            return
        reference = binding.get("roleRef") or {}
        kind = reference.get("kind", "")
        if kind in ("Role", "ClusterRole") and self._may(
            user,
            "bind",
            reference.get("apiGroup", ""),
            f"{kind.lower()}s",
            attributes.namespace,
            reference.get("name", ""),
        ):
            return
        res = attributes.resource
        requested = res.gr if has_behaviour(res.release, "RoleErrorsNameRequest") else None
        rules = self._policy.referenced_rules(reference, attributes.namespace, requested)
        await self._confirm(attributes, user, rules)

    def _may(
        self, user: UserInfo, verb: str, group: str, resource: str, namespace: str, name: str
    ) -> bool:
        return (
            self._decide(
                user, RequestInfo(True, "", verb, group, "*", namespace, resource, name)
            ).allowed
            is True
        )

    def _lacking(
        self, user: UserInfo, namespace: str, wanted: Sequence[rbac.Rule]
    ) -> list[rbac.Rule]:
        return rbac.uncovered_rules(self._policy.rules_for(user, namespace)[0], wanted)

    async def _confirm(
        self, attributes: Attributes, user: UserInfo, wanted: Sequence[rbac.Rule]
    ) -> None:
        held, dangling = self._policy.rules_for(user, attributes.namespace)
        work = partial(_describe_missing, held, wanted)
        if _is_large(held) or _is_large(wanted):
            what = await compute_in_worker(self._workers, attributes.ctx, work)
        else:
            what = work()
        if not what:
            return
        who = f"user {go_quote(user.name)} (groups={rbac.go_strings(user.groups)})"
        text = f"{who} is attempting to grant RBAC permissions not currently held:\n{what}"
        if dangling:
            problems = aggregate_text(absent(reference, plural=True) for reference in dangling)
            text += f"; resolution errors: [{problems}]"
        raise errors.forbidden(
            attributes.resource.gr, attributes.obj["metadata"].get("name", ""), text
        )


def _is_large(rules: Sequence[rbac.Rule]) -> bool:
    """Whether comparing these rules may take long; a small binding may refer to a large role."""
    return len(rules) > _LARGE or any(
        len(values) > _LARGE for rule in rules for values in rule.values()
    )


def _describe_missing(held: Sequence[rbac.Rule], wanted: Sequence[rbac.Rule]) -> str:
    lacking = _first(rbac.iterate_uncovered_rules(held, wanted))
    return "\n".join(sorted({rbac.describe_rule(rule) for rule in rbac.compact_rules(lacking)}))


def _first(lacking: Iterable[rbac.Rule]) -> list[rbac.Rule]:
    """As many rules as fit into a message."""
    out: list[rbac.Rule] = []
    size = 0
    for rule in lacking:
        out.append(rule)
        size += sum(len(value) + 40 for values in rule.values() for value in values)
        if size > _LONGEST_MESSAGE:
            break
    return out


def _aggregates(role: Object) -> bool:
    return bool((role.get("aggregationRule") or {}).get("clusterRoleSelectors"))


def _only_collected(new: Object, old: Object) -> bool:
    return _essence(new) == _essence(old)


def _essence(obj: Object) -> Object:
    out = {k: v for k, v in obj.items() if k not in ("kind", "apiVersion", "metadata")}
    out["metadata"] = {k: v for k, v in obj["metadata"].items() if k not in _COLLECTORS}
    return out
