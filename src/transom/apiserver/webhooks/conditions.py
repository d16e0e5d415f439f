"""Match conditions: expressions that decide whether a webhook is called."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from transom.apiserver.core.attributes import Attributes
from transom.apiserver.core.offload import compute_in_worker
from transom.apiserver.core.request_authorizer import Decide, RequestAuthorizer
from transom.apiserver.webhooks.review import admission_request
from transom.apiserver.webhooks.versioned_object import VersionedObject, own_kind
from transom.kit.lazy import lazy_import
from transom.kit.workers import WorkRunner
from transom.machinery.cel.brief import BriefBudget, BriefBudgetSpentError
from transom.machinery.objects import Object
from transom.machinery.releases import Release

# The CEL engine, which few webhooks need.
if TYPE_CHECKING:
    from transom.machinery.cel import admission, conditions
else:
    admission = lazy_import("transom.machinery.cel.admission")
    conditions = lazy_import("transom.machinery.cel.conditions")


class WebhookConditions:
    """The match conditions of one webhook, compiled on first use."""

    __slots__ = ("_compiled", "_given", "_ignore")

    def __init__(self, given: Sequence[Object], *, ignore_failure: bool) -> None:
        self._given, self._ignore = given, ignore_failure
        self._compiled: conditions.MatchConditions | None = None

    def __bool__(self) -> bool:
        return bool(self._given)

    def _compile(self, release: Release) -> conditions.MatchConditions:
        return conditions.MatchConditions(
            self._given,
            admission.AdmissionCompiler(release, params=False, composed=False),
            ignore_failure=self._ignore,
        )

    async def match(
        self, attributes: Attributes, subject: VersionedObject, workers: WorkRunner, decide: Decide
    ) -> bool:
        """Whether to call the webhook. Raises 403 for an error that the failure policy does not
        ignore.
        """
        if self._compiled is None:
            release = attributes.resource.release
            self._compiled = await compute_in_worker(
                workers, attributes.ctx, lambda: self._compile(release)
            )
        compiled = self._compiled
        resource = attributes.resource
        given = conditions.AdmissionInput(
            subject.obj,
            subject.old,
            admission_request(attributes, subject.kind, own_kind(attributes, resource), resource),
            None,
            None,
            RequestAuthorizer(decide, attributes.ctx.user),
        )
        try:
            outcome = compiled.match(given, BriefBudget())
        except BriefBudgetSpentError:
            outcome = await compute_in_worker(
                workers, attributes.ctx, lambda: compiled.match(given, None)
            )
        if outcome.error:
            raise attributes.forbidden(outcome.error)
        return bool(outcome.value)
