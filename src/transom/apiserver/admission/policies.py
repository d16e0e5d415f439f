"""The configured admission policies, for the plugins that evaluate them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from transom.apiserver.admission.policy_source import GROUP, PolicySource
from transom.apiserver.core.objectstore import ObjectStore
from transom.apiserver.core.resources import Resource, ResourceRegistry
from transom.kit.lazy import lazy_import
from transom.machinery.objects import Object
from transom.machinery.releases import Release
from transom.machinery.releases.features import is_enabled

# The CEL engine, which clusters without policies do not need.
if TYPE_CHECKING:
    from transom.machinery.cel import policies
else:
    policies = lazy_import("transom.machinery.cel.policies")


def _compile_validating(release: Release, policy: Object) -> policies.CompiledValidatingPolicy:
    return policies.CompiledValidatingPolicy(release, policy)


def _compile_mutating(release: Release, policy: Object) -> policies.CompiledMutatingPolicy:
    return policies.CompiledMutatingPolicy(release, policy)


class AdmissionPolicies:
    """The policies of both types, None in a release that does not have them. None is evaluated
    before `start`: the server's own writes at start-up must not depend on them.
    """

    def __init__(self, objects: ObjectStore, resources: ResourceRegistry) -> None:
        release = resources.release
        self.validating: PolicySource[policies.CompiledValidatingPolicy] | None = None
        self.mutating: PolicySource[policies.CompiledMutatingPolicy] | None = None
        found = _stored(resources, "ValidatingAdmissionPolicy", "validatingadmissionpolic")
        if found is not None:
            compile_validating = partial(_compile_validating, release)
            self.validating = PolicySource(objects, resources, *found, compile_validating)
        found = _stored(resources, "MutatingAdmissionPolicy", "mutatingadmissionpolic")
        if found is not None:
            compile_mutating = partial(_compile_mutating, release)
            self.mutating = PolicySource(objects, resources, *found, compile_mutating)

    def start(self) -> None:
        for source in (self.validating, self.mutating):
            if source is not None:
                source.start()

    def stop(self) -> None:
        for source in (self.validating, self.mutating):
            if source is not None:
                source.stop()


def _stored(resources: ResourceRegistry, gate: str, stem: str) -> tuple[Resource, Resource] | None:
    """Policies and bindings in their storage version."""
    if not is_enabled(resources.release, gate):
        return None
    held = resources.storage(GROUP, f"{stem}ies")
    bindings = resources.storage(GROUP, f"{stem}ybindings")
    return None if held is None or bindings is None else (held, bindings)
