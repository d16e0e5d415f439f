"""What the Job controller of a release can do."""

from __future__ import annotations

from transom.kit.named_tuple import NamedTuple
from transom.machinery.objects import Object
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.releases.features import FeatureSet

JOB_CONTROLLER_NAME = "kubernetes.io/job-controller"


class JobFeatures(NamedTuple):
    """`interim_conditions`: FailureTarget and SuccessCriteriaMet stand before Failed and Complete,
    which wait for terminating pods.
    """

    ready: bool
    index_label: bool
    per_index: bool
    success_policy: bool
    replacement: bool
    managed_by: bool
    interim_conditions: bool
    resets_start: bool  # a suspended Job loses its start time

    def only_replaces_failed(self, job: Object) -> bool:
        """Whether a terminating pod is not replaced before it has ended."""
        spec = job["spec"]
        if self.replacement and spec.get("podReplacementPolicy") == "Failed":
            return True
        return spec.get("podFailurePolicy") is not None

    def has_backoff_per_index(self, job: Object) -> bool:
        return self.per_index and job["spec"].get("backoffLimitPerIndex") is not None

    def is_managed_elsewhere(self, job: Object) -> bool:
        manager = job["spec"].get("managedBy")
        return self.managed_by and manager is not None and manager != JOB_CONTROLLER_NAME


def job_features(features: FeatureSet) -> JobFeatures:
    on = features.enabled
    replacement, managed_by = on("JobPodReplacementPolicy"), on("JobManagedBy")
    return JobFeatures(
        ready=on("JobReadyPods"),
        index_label=on("PodIndexLabel"),
        per_index=on("JobBackoffLimitPerIndex"),
        success_policy=on("JobSuccessPolicy"),
        replacement=replacement,
        managed_by=managed_by,
        interim_conditions=has_behaviour(features.release, "JobInterimConditions")
        and (replacement or managed_by),
        resets_start=on("MutableSchedulingDirectivesForSuspendedJobs"),
    )
