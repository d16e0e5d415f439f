"""Pods: binding to a node, eviction within disruption budgets."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING

from transom.apiserver.core.attributes import (
    AdmissionInterface,
    admit_subresource,
    subresource_attributes,
)
from transom.apiserver.core.bodies import begin_write, check_namespace, decode_action, read_media
from transom.apiserver.core.call import ApiCall, DocumentResult
from transom.apiserver.core.context import RequestContext
from transom.apiserver.core.deletion import check_preconditions
from transom.apiserver.core.offload import compute_in_worker
from transom.apiserver.core.resource_versions import precondition_failed
from transom.apiserver.core.resources import Resource, ResourceRegistry
from transom.apiserver.core.storage import Storage
from transom.kit.clock import rfc3339
from transom.kit.lazy import lazy_import
from transom.machinery import errors, field, podutil, selectors
from transom.machinery.errors import ApiError, GroupResource
from transom.machinery.gofmt import go_sprint
from transom.machinery.kinds import GVK
from transom.machinery.objects import Object, copy_object, with_metadata
from transom.machinery.releases import Release
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.releases.features import is_enabled
from transom.machinery.validation.binding import validate_binding
from transom.machinery.validation.options import validate_delete_options

if TYPE_CHECKING:
    from transom.machinery.releases import texts
else:
    texts = lazy_import("transom.machinery.releases.texts")

BINDING = GVK("", "v1", "Binding")
EVICTION, EVICTION_V1 = GVK("policy", "v1beta1", "Eviction"), GVK("policy", "v1", "Eviction")
_MAX_DISRUPTED_PODS = 2000
_OVER_BUDGET = "Cannot evict pod as it would violate the pod's disruption budget."


def _created() -> DocumentResult:
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return DocumentResult({**status, "code": 201}, 201)


class PodSubresources:
    """binding (also the resource `bindings`) and eviction."""

    def __init__(
        self, storage: Storage, admission: AdmissionInterface, resources: ResourceRegistry
    ) -> None:
        self._storage = storage
        self._admission = admission
        self._pods = resources.require("", "v1", "pods")
        self._budgets = resources.require("policy", "v1", "poddisruptionbudgets")

    async def _read(self, call: ApiCall, gvk: GVK, also: Collection[GVK] = ()) -> Object:
        options = begin_write(call, "CreateOptions")
        media = read_media(call)
        read = partial(decode_action, call, options, media, gvk, also)
        obj = read() if not call.ctx.large else await self._storage.compute(call.ctx, read)
        if has_behaviour(call.res.release, "ApplyErrorsNameObject"):
            check_namespace(call.res, obj, call.info.namespace)
        return obj

    async def bind(self, call: ApiCall) -> DocumentResult:
        attributes = subresource_attributes(call, await self._read(call, BINDING))
        await self._admission.admit(attributes)
        binding = attributes.obj
        assert binding is not None
        name = call.info.name or binding["metadata"].get("name", "")
        if call.info.name and binding["metadata"].get("name", "") != call.info.name:
            raise errors.bad_request("name in URL does not match name in Binding object")
        problems = validate_binding(binding)
        if problems:
            raise ApiError(500, "", field.aggregate_text(problems))
        pods = self._pods
        await self._admission.validate(attributes)
        if not name:
            raise errors.bad_request("Name parameter required.")

        def transform(pod: Object | None) -> Object:
            assert pod is not None
            self._check_binding(call, binding, pod)
            return bound_pod(pod, binding, call.ctx.now, self._storage.release)

        def keep(*_args: object) -> None:
            """A binding changes only its own fields: no strategy, no validation of the pod."""

        await self._storage.update(
            call.ctx,
            pods,
            call.info.namespace,
            name,
            transform,
            subresource="binding",
            prepare=keep,
            reread=True,
            checked=False,
        )
        return _created()

    def _check_binding(self, call: ApiCall, binding: Object, pod: Object) -> None:
        """A binding may be for one pod only, or for one state of it."""
        if not has_behaviour(self._storage.release, "BindingPreconditions"):
            return
        wanted, meta = binding["metadata"], pod["metadata"]
        key = f"pods/{meta['namespace']}/{meta['name']}"
        for field_name, what in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
            given, actual = wanted.get(field_name), meta.get(field_name, "")
            if given and given != actual:
                raise precondition_failed(
                    self._pods, key, meta["name"], what, given, actual, call.ctx.dry_run
                )

    async def _selects(
        self, ctx: RequestContext, budget: Object, pod: Object, empty_selects_all: bool
    ) -> bool:
        selector = (budget.get("spec") or {}).get("selector")
        # policy/v1beta1: an empty selector selects nothing
        if selector is None or (not selector and not empty_selects_all):
            return False
        build = partial(selectors.owner_selector, budget)
        if selectors.takes_long_to_compile(selector):
            built = await compute_in_worker(self._storage.workers, ctx, build)
        else:
            built = build()
        return built.matches(pod["metadata"].get("labels"))

    async def evict(self, call: ApiCall) -> DocumentResult:
        eviction = await self._read(call, EVICTION, also=(EVICTION_V1,))
        name, namespace = call.info.name, call.info.namespace
        if eviction["metadata"].get("name", "") != name:
            raise errors.bad_request("name in URL does not match name in Eviction object")
        await admit_subresource(self._admission, call, eviction)
        options = _delete_options(call, eviction)
        dry_run = call.ctx.dry_run = bool(options.get("dryRun"))
        storage = self._storage
        pods = self._pods
        pod = storage.decode(pods, storage.get(pods, namespace, name))
        if not _needs_budget(pod):
            await self._mark_and_delete(call, pod, options)
            return _created()
        budgets_resource = self._budgets
        nothing_selects_all = has_behaviour(storage.release, "EmptyBudgetSelectorMatches")
        budgets = [
            b
            for b in await storage.load_objects(call.ctx, budgets_resource, namespace)
            if await self._selects(call.ctx, b, pod, nothing_selects_all)
        ]
        if len(budgets) > 1:
            raise ApiError(
                500,
                "",
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
            )
        given_version = (options.get("preconditions") or {}).get("resourceVersion")
        pinned = False
        if budgets:
            status = budgets[0].get("status") or {}
            ready = (podutil.find_condition(pod, "Ready") or {}).get("status") == "True"
            enough = status.get("currentHealthy", 0) >= status.get("desiredHealthy", 0) > 0
            if not ready and (enough or self._always_allows(budgets[0])):
                # An unready pod may be evicted without counting, if it is still the pod that was
                # checked.
                pinned = True
                options["preconditions"] = {
                    "resourceVersion": pod["metadata"]["resourceVersion"],
                    **(options.get("preconditions") or {}),
                }
            else:
                await self._take_from_budget(
                    call, budgets_resource, namespace, budgets[0]["metadata"]["name"], name, dry_run
                )
        try:
            await self._mark_and_delete(call, pod, options)
        except ApiError as problem:
            if problem.reason == "Conflict" and pinned and given_version is None:
                raise _still_processing(budgets[0]["metadata"]["name"]) from None
            raise
        return _created()

    def _always_allows(self, budget: Object) -> bool:
        """Whether the budget does not protect pods that are not ready."""
        return budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow" and is_enabled(
            self._storage.release, "PDBUnhealthyPodEvictionPolicy"
        )

    async def _mark_and_delete(self, call: ApiCall, pod: Object, options: Object) -> None:
        """Deletes the pod, with a condition that says why."""
        if is_enabled(self._storage.release, "PodDisruptionConditions") and not call.ctx.dry_run:

            def transform(current: Object | None) -> Object:
                assert current is not None
                check_preconditions(self._pods, call.info.name, options, current)
                return with_disruption_target(current, call.ctx.now)

            def keep(*_args: object) -> None:
                """Only the condition changes."""

            record, _ = await self._storage.update(
                call.ctx,
                self._pods,
                call.info.namespace,
                call.info.name,
                transform,
                subresource="status",
                prepare=keep,
                reread=True,
                checked=False,
            )
            if (options.get("preconditions") or {}).get("resourceVersion") is not None:
                written = self._storage.decode(self._pods, record)
                version = written["metadata"]["resourceVersion"]
                preconditions = {**options["preconditions"], "resourceVersion": version}
                options = {**options, "preconditions": preconditions}
        await self._delete(call, self._pods, options)

    async def _delete(self, call: ApiCall, pods: Resource, options: Object) -> None:
        problems = validate_delete_options(options)
        if problems:
            worded = texts.in_release(self._storage.release, problems)
            raise errors.invalid(GroupResource("meta.k8s.io", "DeleteOptions"), "", worded)
        await self._storage.delete(
            call.ctx, pods, call.info.namespace, call.info.name, options, admitted=True
        )

    async def _take_from_budget(
        self, call: ApiCall, res: Resource, namespace: str, budget: str, pod: str, dry_run: bool
    ) -> None:
        """Counts one disruption, or rejects it. The update is retried if the budget changed in the
        meantime.
        """
        ctx = call.ctx

        def transform(current: Object | None) -> Object:
            assert current is not None
            status = current.get("status") or {}
            meta = current["metadata"]
            where = GroupResource("policy", "poddisruptionbudget")
            if status.get("observedGeneration", 0) < meta.get("generation", 0):
                raise _still_processing(budget)
            allowed = status.get("disruptionsAllowed", 0)
            if allowed < 0:
                raise errors.forbidden(where, budget, "pdb disruptions allowed is negative")
            if len(status.get("disruptedPods") or ()) > _MAX_DISRUPTED_PODS:
                raise errors.forbidden(
                    where,
                    budget,
                    "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
                )
            if allowed == 0:
                raise _over_budget(budget, status)
            new = copy_object(current)
            new["status"]["disruptionsAllowed"] = allowed - 1
            new["status"]["disruptedPods"] = {
                **(status.get("disruptedPods") or {}),
                pod: rfc3339(ctx.now),
            }
            return new

        before, ctx.dry_run = ctx.dry_run, dry_run
        try:
            await self._storage.update(
                ctx, res, namespace, budget, transform, subresource="status", reread=True
            )
        finally:
            ctx.dry_run = before


def bound_pod(pod: Object, binding: Object, now: float, release: Release) -> Object:
    node, annotations = binding["target"]["name"], binding["metadata"].get("annotations") or {}
    name = pod["metadata"]["name"]
    where = GroupResource("", "pods/binding")
    if pod["metadata"].get("deletionTimestamp"):
        raise errors.conflict(
            where, name, f"pod {name} is being deleted, cannot be assigned to a host"
        )
    current = pod["spec"].get("nodeName", "")
    if current:
        raise errors.conflict(where, name, f'pod {name} is already assigned to node "{current}"')
    if has_behaviour(release, "SchedulingGates") and pod["spec"].get("schedulingGates"):
        raise errors.conflict(where, name, f"pod {name} has non-empty .spec.schedulingGates")
    new = with_metadata(
        pod, annotations={**(pod["metadata"].get("annotations") or {}), **annotations} or None
    )
    labels = binding["metadata"].get("labels")
    if labels and is_enabled(release, "PodTopologyLabelsAdmission"):
        new = with_metadata(new, labels={**(pod["metadata"].get("labels") or {}), **labels})
    new["spec"] = {**pod["spec"], "nodeName": node}
    status = dict(pod.get("status") or {})
    if is_enabled(release, "ClearingNominatedNodeNameAfterBinding"):
        status.pop("nominatedNodeName", None)
    condition: Object = {
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": rfc3339(now),
    }
    before = podutil.find_condition(pod, "PodScheduled")
    if before is not None and before.get("status") == "True":
        condition["lastTransitionTime"] = before.get("lastTransitionTime")
    others = [c for c in status.get("conditions") or () if c.get("type") != "PodScheduled"]
    if before is None:
        status["conditions"] = [*others, condition]
    else:
        status["conditions"] = [condition if c is before else c for c in status["conditions"]]
    new["status"] = status
    return new


def with_disruption_target(pod: Object, now: float) -> Object:
    condition: Object = {
        "type": "DisruptionTarget",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": rfc3339(now),
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    }
    status = dict(pod.get("status") or {})
    others = [c for c in status.get("conditions") or () if c.get("type") != "DisruptionTarget"]
    status["conditions"] = [*others, condition]
    return {**pod, "status": status}


def _delete_options(call: ApiCall, eviction: Object) -> Object:
    """The delete options. A dry run may be requested in the query or in the body, but not
    inconsistently.
    """
    options = dict(eviction.get("deleteOptions") or {})
    requested, inside = ["All"] if call.ctx.dry_run else [], options.get("dryRun") or []
    if requested and inside and requested != inside:
        raise ApiError(
            500,
            "",
            (
                f"Non-matching dry-run options in request and content: {go_sprint(requested)} and "
                f"{go_sprint(inside)}"
            ),
        )
    if requested or inside:
        options["dryRun"] = inside or requested
    return options


def _needs_budget(pod: Object) -> bool:
    phase = (pod.get("status") or {}).get("phase")
    return phase not in ("Succeeded", "Failed", "Pending") and not pod["metadata"].get(
        "deletionTimestamp"
    )


def _still_processing(budget: str) -> ApiError:
    return errors.too_many_requests(
        _OVER_BUDGET,
        10,
        {
            "causes": [
                {
                    "reason": "DisruptionBudget",
                    "message": f"The disruption budget {budget} is still being processed by the server.",
                }
            ],
            "retryAfterSeconds": 10,
        },
    )


def _over_budget(budget: str, status: Object) -> ApiError:
    wanted, healthy = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
    message = (
        f"The disruption budget {budget} needs {wanted} healthy pods and has {healthy} currently"
    )
    return errors.too_many_requests(
        _OVER_BUDGET, 0, {"causes": [{"reason": "DisruptionBudget", "message": message}]}
    )
