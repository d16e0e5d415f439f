"""The admission handlers in Kubernetes' order: eviction, sysctls, exclusive
resources, predicates, node shutdown; then, before a pod
runs, the checks for what the machine and the runtime can enforce.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from transom.client.events import WARNING
from transom.kit.task_set import TaskSet
from transom.kit.versions import version_numbers
from transom.kubelet.admission import predicates, preemption
from transom.kubelet.admission.predicates import Failure, Insufficient
from transom.kubelet.admission.requests import PodRequests, requests_of_pod
from transom.kubelet.admission.sysctls import Sysctls
from transom.kubelet.base import KubeletContext
from transom.kubelet.failures import PodRejection
from transom.kubelet.interfaces import KillPod
from transom.kubelet.labels import is_critical, is_static
from transom.machinery.objects import Object
from transom.machinery.releases import Release
from transom.machinery.releases.kubelet import kubelet_has
from transom.machinery.resourcenames import resource_amount

_SPARE = 16
_OS_LABEL = "kubernetes.io/os"
# The API version of each docker release, which decides what docker can enforce.
_DOCKER_APIS = (
    ((20, 10), (1, 41)),
    ((19, 3), (1, 40)),
    ((18, 9), (1, 39)),
    ((18, 6), (1, 38)),
    ((18, 3), (1, 37)),
    ((17, 12), (1, 35)),
    ((17, 9), (1, 32)),
    ((17, 6), (1, 30)),
    ((17, 3), (1, 26)),
    ((1, 13), (1, 26)),
    ((1, 12), (1, 24)),
    ((1, 11), (1, 23)),
)


class PodAdmission:
    """`node` returns the node as last seen; `evicting` returns the eviction manager's rejection, or
    None; `shutdown` that of the node shutdown manager, `allocate` that of the container manager.
    Raises ValueError when the configuration
    allows sysctls that cannot be allowed.
    """

    __slots__ = (
        "_allocate",
        "_env",
        "_evicting",
        "_kill",
        "_killing",
        "_node",
        "_requested",
        "_shutdown",
        "_sysctls",
    )

    def __init__(
        self,
        env: KubeletContext,
        node: Callable[[], Object],
        kill: KillPod,
        evicting: Callable[[Object], PodRejection | None] = lambda pod: None,
        shutdown: Callable[[Object], PodRejection | None] = lambda pod: None,
        allocate: Callable[[Object], PodRejection | None] = lambda pod: None,
    ) -> None:
        self._env = env
        self._node = node
        self._kill = kill
        self._evicting = evicting
        self._shutdown = shutdown
        self._allocate = allocate
        self._sysctls = Sysctls(env.config.allowed_unsafe_sysctls, env.config.release)
        self._requested: dict[str, PodRequests] = {}  # by uid; a pod's requests never change
        self._killing = TaskSet()

    # ---- admission ----

    def admit(self, pod: Object, active_pods: Sequence[Object]) -> PodRejection | None:
        refusal = self._evicting(pod)
        if refusal is not None:
            return refusal
        problem = self._sysctls.problem(pod["spec"])
        if problem:
            return PodRejection("SysctlForbidden", problem)
        return (
            self._allocate(pod)
            or self._predicates(pod, active_pods)
            or self._unsupported(pod)
            or self._shutdown(pod)
        )

    def _unsupported(self, pod: Object) -> PodRejection | None:
        """Features of pods that the operating system lacks."""
        requested = pod["spec"].get("resources") or {}
        if requested.get("requests") or requested.get("limits"):
            problem = self._env.os.pod_resources_problem(self._env.config.release)
            if problem:
                return PodRejection("PodLevelResourcesNotSupported", problem)
        return None

    def admit_resize(self, pod: Object, active_pods: Sequence[Object]) -> PodRejection | None:
        """Whether the node can give the pod the resources of its spec."""
        problem = self._env.os.resize_problem() or self._exceeds_node(pod)
        if problem:
            return PodRejection("Infeasible", problem)
        others = [requests_of_pod(other) for other in active_pods]
        requested = requests_of_pod(pod)
        failures = predicates.check_predicates(pod, requested, others, self._node())
        if failures:
            return PodRejection(failures[0].reason, failures[0].message(self._env.config.release))
        self._requested[pod["metadata"]["uid"]] = requested
        return None

    def _exceeds_node(self, pod: Object) -> str:
        if not kubelet_has(Release(*self._env.config.release), "ResizeExceedsNode"):
            return ""
        if kubelet_has(Release(*self._env.config.release), "LargeResizesDeferred"):
            return ""
        allocatable = (self._node().get("status") or {}).get("allocatable") or {}
        requested = requests_of_pod(pod).resources
        for name in ("memory", "cpu"):
            capacity = resource_amount(name, allocatable.get(name, "0"))
            if requested.get(name, 0) > capacity:
                return (
                    f"Node didn't have enough capacity: {name}, requested: {requested[name]}, "
                    f"capacity: {capacity}"
                )
        return ""

    def _predicates(self, pod: Object, active_pods: Sequence[Object]) -> PodRejection | None:
        release = self._env.config.release
        if kubelet_has(release, "PodOsAdmission"):
            refusal = self._other_system(pod)
            if refusal is not None:
                return refusal
        if kubelet_has(release, "GroupsPolicyAdmission") and not self._supports_groups_policy(pod):
            return PodRejection(
                "SupplementalGroupsPolicyNotSupported",
                "SupplementalGroupsPolicy=Strict is not supported in this node",
            )
        uid = pod["metadata"]["uid"]
        others = [other for other in active_pods if other["metadata"]["uid"] != uid]
        failures = predicates.check_predicates(
            pod,
            self._ask(pod),
            [self._ask(other) for other in others],
            self._node(),
            taints=kubelet_has(release, "TaintAdmission") and not is_static(pod),
        )
        if len(self._requested) > 2 * len(active_pods) + _SPARE:
            self._forget(active_pods)
        if not failures:
            return None
        if is_critical(pod):
            return self._make_room(pod, others, failures)
        return PodRejection(failures[0].reason, failures[0].message(release))

    def _other_system(self, pod: Object) -> PodRejection | None:
        own = self._env.os.name
        if (pod["metadata"].get("labels") or {}).get(_OS_LABEL, own) != own:
            return PodRejection(
                "PodOSSelectorNodeLabelDoesNotMatch",
                "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
            )
        if (pod["spec"].get("os") or {}).get("name", own) != own:
            return PodRejection(
                "PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS"
            )
        return None

    def _supports_groups_policy(self, pod: Object) -> bool:
        context = pod["spec"].get("securityContext") or {}
        if context.get("supplementalGroupsPolicy") != "Strict":
            return True
        features = (self._node().get("status") or {}).get("features") or {}
        return bool(features.get("supplementalGroupsPolicy"))

    def _make_room(
        self, pod: Object, others: Sequence[Object], failures: Sequence[Failure]
    ) -> PodRejection | None:
        """A critical pod does not fail for lack of resources as long as less important pods can be
        preempted.
        """
        rest = [failure for failure in failures if not isinstance(failure, Insufficient)]
        if rest:
            return PodRejection(rest[0].reason, rest[0].message(self._env.config.release))
        try:
            chosen = preemption.pods_to_preempt(
                pod, others, [f for f in failures if isinstance(f, Insufficient)]
            )
        except preemption.NoVictims as problem:
            message = (
                f"Unexpected error while attempting to recover from admission failure: {problem}"
            )
            return PodRejection("UnexpectedAdmissionError", message)
        for victim in chosen:
            self._env.events.event(victim, WARNING, preemption.REASON, preemption.MESSAGE)
            self._killing.start(self._kill(victim, preemption.REASON, preemption.MESSAGE, None))
        return None

    def _ask(self, pod: Object) -> PodRequests:
        uid = pod["metadata"]["uid"]
        known = self._requested.get(uid)
        if known is None:
            known = self._requested[uid] = requests_of_pod(pod)
        return known

    def _forget(self, active_pods: Sequence[Object]) -> None:
        self._requested = {
            uid: self._requested[uid]
            for p in active_pods
            if (uid := p["metadata"]["uid"]) in self._requested
        }

    # ---- checks before a pod runs ----

    def can_run(self, pod: Object) -> PodRejection | None:
        if (pod.get("status") or {}).get("phase", "Pending") != "Pending":
            return None
        problem = self._env.os.apparmor_problem(pod, self._env.host, self._env.config.release)
        if problem:
            return PodRejection("AppArmor", f"Cannot enforce AppArmor: {problem}")
        return self._too_old(pod)

    def _too_old(self, pod: Object) -> PodRejection | None:
        runtime = self._env.runtime.version
        if runtime.name != "docker":
            return None
        for reason, needed, wanted in (
            ("NoNewPrivs", (1, 23), _no_new_privileges),
            ("ProcMount", (1, 38), _proc_mount),
        ):
            if wanted(pod):
                api = _docker_api(runtime.version)
                if api < needed:
                    return PodRejection(
                        reason,
                        (
                            f"Cannot enforce {reason}: docker runtime API version "
                            f'"{api[0]}.{api[1]}.0" must be greater '
                            f"than or equal to {needed[0]}.{needed[1]}"
                        ),
                    )
        return None


def _no_new_privileges(pod: Object) -> bool:
    return any(
        (c.get("securityContext") or {}).get("allowPrivilegeEscalation") is False
        for c in pod["spec"]["containers"]
    )


def _proc_mount(pod: Object) -> bool:
    kinds = ((c.get("securityContext") or {}).get("procMount") for c in pod["spec"]["containers"])
    return any(kind not in (None, "Default") for kind in kinds)


def _docker_api(version: str) -> tuple[int, int]:
    known = version_numbers(version)
    return next((api for since, api in _DOCKER_APIS if known >= since), (1, 22))
