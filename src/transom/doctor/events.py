"""Problems that components report only in Warning events: the reason, its cause and its remedy.

Events are history: only recent ones about existing objects count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from transom.doctor.findings import DoctorFinding
from transom.doctor.snapshot import (
    ClusterSnapshot,
    Object,
    event_message,
    event_time,
    key_of_object,
    name_of_object,
    place_of_object,
    time_of,
)

_RECENT: Final = 180.0
# Reported once about what an object is and stays: true until it is created again.
LASTING: Final = (
    "InvalidEnvironmentVariableNames",
    "UnknownTimeZone",
    "UnparseableSchedule",
    "InvalidSchedule",
)
REASONS: Final[Mapping[str, tuple[str, str]]] = {
    # Nodes
    "ImageGCFailed": (
        "cannot free disk space by removing images",
        "Give the node more disk, or remove images and containers.",
    ),
    "FreeDiskSpaceFailed": (
        "cannot free enough disk space by removing images",
        "Give the node more disk, or remove pods whose images are large.",
    ),
    "InvalidDiskCapacity": ("reports a disk of size 0", "Check the disk of the node."),
    "ContainerGCFailed": (
        "cannot remove dead containers",
        "Look at the kubelet's log and at the runtime.",
    ),
    "MissingClusterDNS": (
        "does not know the cluster's DNS server",
        "Start its kubelet with --cluster-dns.",
    ),
    "CheckLimitsForResolvConf": (
        "has a resolv.conf with too many search domains",
        "Shorten the list of search domains there.",
    ),
    "EvictionThresholdMet": (
        "runs out of a resource and evicts pods",
        "Free memory or disk on the node.",
    ),
    "OwnerRefInvalidNamespace": (
        "is owned by an object of a namespace",
        "Correct its ownerReferences.",
    ),
    # Newer releases
    "TopologyAwareHintsDisabled": (
        "has no topology hints, so its traffic does not stay in the zone of the client",
        "Label the nodes with topology.kubernetes.io/zone and run enough ready endpoints in each zone,"
        " or remove the annotation service.kubernetes.io/topology-mode.",
    ),
    "UnknownTimeZone": (
        "its time zone is unknown, so it starts no Job",
        "Set spec.timeZone to a name of the IANA time zone database, for example Europe/Berlin.",
    ),
    "UnparseableSchedule": (
        "its schedule cannot be parsed, so it starts no Job",
        "Correct spec.schedule.",
    ),
    "InvalidSchedule": (
        "its schedule is not valid, so it starts no Job",
        "Correct spec.schedule.",
    ),
    "TooManyMissedTimes": (
        "missed more than 100 start times",
        "Set or shorten spec.startingDeadlineSeconds, and check the clock of the control plane.",
    ),
    "UnmanagedPods": (
        "selects pods that no controller with a scale owns",
        "Create the pods with a Deployment, ReplicaSet or StatefulSet, or use an integer minAvailable.",
    ),
    "FailedPrepareDynamicResources": (
        "the devices of its ResourceClaims cannot be prepared",
        "Check that the DRA driver of the DeviceClass runs on the node, and its log.",
    ),
    "FailedResourceClaimCreation": (
        "its ResourceClaim cannot be created",
        "Create the ResourceClaimTemplate that the pod names, or correct it.",
    ),
    # Services and endpoints
    "SyncLoadBalancerFailed": (
        "its load balancer cannot be created",
        "Correct what the message names; the controller tries again.",
    ),
    "UnAvailableLoadBalancer": (
        "no node can take its load balancer's traffic",
        "Add nodes, or start them.",
    ),
    "FailedToUpdateEndpointSlices": (
        "its EndpointSlices cannot be written",
        "Check that the API server accepts writes.",
    ),
    "FailedToCreateEndpoint": (
        "its Endpoints cannot be created",
        "Check that the API server accepts writes, and webhooks.",
    ),
    "FailedToUpdateEndpoint": (
        "its Endpoints cannot be updated",
        "Check that the API server accepts writes, and webhooks.",
    ),
    "InvalidIPAddress": (
        "an address of its Endpoints is not valid",
        "Correct the address in the Endpoints.",
    ),
    "TooManyAddressesToMirror": (
        "its Endpoints have more than 1000 addresses: the rest is not mirrored",
        "Use several EndpointSlices instead of Endpoints.",
    ),
    # Workloads, autoscalers and budgets
    "SelectingAll": (
        "its selector selects all pods, so that the controller does nothing",
        "Give it a selector with labels.",
    ),
    "FailedDelete": (
        "cannot delete a pod or Job",
        "Remove what prevents the deletion: webhooks, finalizers.",
    ),
    "FailedUpdate": ("cannot update a pod", "Correct what the message names."),
    "FailedDaemonPod": (
        "its pod on a node fails and is replaced",
        "Read the log of its pods: kubectl logs.",
    ),
    "RecreatingFailedPod": (
        "a pod of it fails and is replaced",
        "Read the log of its pods: kubectl logs.",
    ),
    "FailedNeedsStart": (
        "the CronJob cannot decide whether to start a Job",
        "Correct spec.schedule; after too many missed starts set spec.startingDeadlineSeconds.",
    ),
    "MissSchedule": ("a start was missed", "Raise spec.startingDeadlineSeconds."),
    "UnexpectedJob": ("a Job of it is not in its list of active Jobs", "Delete the Job."),
    "FailedGet": ("the CronJob cannot read its Job", "Check that the API server accepts requests."),
    "TooManyActivePods": (
        "more pods of the Job run than it wants",
        "Delete pods that are not needed.",
    ),
    "TooManySucceededPods": (
        "more pods of the Job have succeeded than it wants",
        "Delete pods that are not needed.",
    ),
    "NoPods": ("the budget cannot read its pods", "Correct spec.selector."),
    "CalculateExpectedPodCountFailed": (
        "the budget cannot count its pods",
        "Let its pods belong to a controller that can be scaled, or use a number for minAvailable.",
    ),
    "NoControllerRef": (
        "pods of the budget have no controller",
        "Use an integer minAvailable, or pods of a controller.",
    ),
    "NoControllers": (
        "pods of the budget have no controller that can be scaled",
        "Use an integer minAvailable, or pods of a controller.",
    ),
    "MultiplePodDisruptionBudgets": (
        "several PodDisruptionBudgets select it",
        "Let one budget select it.",
    ),
    "NotDeleted": ("it was to be evicted, and still runs", "Delete it again."),
    "FailedUpdateStatus": (
        "its status cannot be written",
        "Check that the API server accepts writes.",
    ),
    "ReplicaSetCreateError": (
        "its ReplicaSet cannot be created",
        "Correct what the message names in the template.",
    ),
    "DeploymentRollbackRevisionNotFound": (
        "the revision to roll back to does not exist",
        "See kubectl rollout history.",
    ),
    "DeploymentRollbackTemplateUnchanged": (
        "the rollback changes nothing",
        "See kubectl rollout history.",
    ),
    "ResizeDeferred": (
        "its resize waits: the node has too little left now",
        "Wait, free resources on the node, or ask for less.",
    ),
    "ResizeInfeasible": (
        "the node can never give it what the resize asks for",
        "Ask for less, or create the pod again on a larger node.",
    ),
    "ResizeError": (
        "its containers could not be resized",
        "Correct what the message names, and resize it again.",
    ),
    # Claims and volumes
    "VolumeMismatch": (
        "claim and volume do not fit",
        "Correct size, access modes and class of the claim or the volume.",
    ),
    "FailedBinding": ("it cannot be bound", "Create a volume that fits, or correct the claim."),
    "ClaimLost": (
        "its volume was deleted",
        "Restore the volume, or delete the claim and create it again.",
    ),
    "ClaimMisbound": (
        "its volume is bound to another claim",
        "Delete the claim and create it again.",
    ),
    "ProvisioningFailed": (
        "no volume could be created for it",
        "Read the provisioner's message, and its log.",
    ),
    "ProvisioningCleanupFailed": (
        "a volume that is not needed could not be removed",
        "Remove it at the provider.",
    ),
    "ExternalExpanding": (
        "it is to be resized by a driver that does not answer",
        "Install or start the driver's resizer.",
    ),
    "VolumeResizeFailed": (
        "it cannot be resized",
        "Correct what the message names; on Windows, recreate the pod that uses it.",
    ),
    "FileSystemResizeFailed": (
        "its file system cannot be resized",
        "Recreate the pod that uses it.",
    ),
    "VolumeUnknownReclaimPolicy": (
        "its reclaim policy is unknown",
        "Use Retain, Delete or Recycle.",
    ),
    "VolumeFailedDelete": (
        "the provider's disk could not be deleted",
        "Remove it at the provider, then delete the volume.",
    ),
    "VolumeFailedRecycle": ("it could not be recycled", "Delete the volume, or use Retain."),
    "VolumeUnknownPlugin": ("no plugin can delete it", "Install the driver, or use Retain."),
    # Pods
    "AlreadyMountedVolume": (
        "a volume that two pods mount with different groups is mounted already",
        "Give the pods the same fsGroup, or volumes of their own.",
    ),
    "DNSConfigForming": (
        "its DNS configuration has too many search domains or name servers: some are left out",
        "Shorten spec.dnsConfig, or the node's resolv.conf.",
    ),
    "InvalidEnvironmentVariableNames": (
        "keys of a ConfigMap or Secret are not valid names of variables, and are left out",
        "Rename the keys, or name the variables in env.",
    ),
    "ExceededGracePeriod": (
        "it did not end within its grace period, and was killed",
        (
            "Let its containers end at SIGTERM (Windows: CTRL_SHUTDOWN_EVENT), or raise "
            "terminationGracePeriodSeconds."
        ),
    ),
    "LifecycleHTTPFallback": (
        "a hook asks with HTTPS, and its server answers with HTTP",
        "Remove scheme: HTTPS from the hook's httpGet, or let the container serve TLS on this port.",
    ),
    "FailedPreStopHook": ("its preStop hook fails", "Correct the container's preStop hook."),
    "FailedKillPod": (
        "its kubelet cannot end it",
        "Read the kubelet's log on its node; check the runtime and the network plugin there.",
    ),
    "FailedValidation": ("the static pod is not valid", "Correct its manifest on the node."),
    "ProbeWarning": (
        "a probe is redirected to another host, which counts as success",
        "Let the probe's path answer without a redirect to another host.",
    ),
    "FailedRescale": (
        "it cannot change the replicas of its target",
        "Allow the autoscaler to update the target's scale, and check webhooks.",
    ),
    "Preempting": (
        "it was stopped to make room for a critical pod",
        "Add nodes, or lower requests; its controller creates another.",
    ),
}
# Warning -> the events that show that a later attempt succeeded.
_SUCCESS: Final[Mapping[str, tuple[str, ...]]] = {
    "ProvisioningFailed": ("ProvisioningSucceeded",),
    "FailedBinding": ("ProvisioningSucceeded",),
    "VolumeResizeFailed": ("VolumeResizeSuccessful", "FileSystemResizeSuccessful"),
    "FileSystemResizeFailed": ("FileSystemResizeSuccessful",),
    "SyncLoadBalancerFailed": ("EnsuredLoadBalancer",),
    "UnAvailableLoadBalancer": ("EnsuredLoadBalancer",),
}
# Kinds whose events are examined, by plural.
KINDS: Final = {
    "Node": "nodes",
    "Pod": "pods",
    "Service": "services",
    "Endpoints": "endpoints",
    "Deployment": "deployments",
    "ReplicaSet": "replicasets",
    "ReplicationController": "replicationcontrollers",
    "StatefulSet": "statefulsets",
    "DaemonSet": "daemonsets",
    "Job": "jobs",
    "CronJob": "cronjobs",
    "PodDisruptionBudget": "poddisruptionbudgets",
    "HorizontalPodAutoscaler": "horizontalpodautoscalers",
    "PersistentVolumeClaim": "persistentvolumeclaims",
    "PersistentVolume": "persistentvolumes",
}
_BROKEN: Final = (
    "Pending",
    "Lost",
    "Failed",
)  # phases of claims and volumes that have their own checks


def check_events(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    for kind, plural in KINDS.items():
        for obj in s.of(plural):
            if (
                plural.startswith("persistentvolume")
                and (obj.get("status") or {}).get("phase") in _BROKEN
            ):
                continue
            if kind == "Node":  # kubelets use the name of a node as its uid
                obj = {"metadata": {"name": name_of_object(obj)}}
            yield from _reported(s, kind, obj, kind)
    for service in s.of("services"):  # Endpoints that could not be created: their Service exists
        if key_of_object(service) not in s.endpoints:
            namespace, called = key_of_object(service)
            missing = {"metadata": {"name": called, "namespace": namespace}}
            yield from _reported(s, "Endpoints", missing, "Service")


def _holds(s: ClusterSnapshot, obj: Object, event: Object) -> bool:
    """Whether an event is still true."""
    if s.now - event_time(event) < _RECENT:
        return True
    return event["reason"] in LASTING and event_time(event) >= _last_change(obj)


def _succeeded(s: ClusterSnapshot, kind: str, obj: Object, event: Object) -> bool:
    """Whether what an event reports as failed has succeeded since."""
    later = _SUCCESS.get(str(event.get("reason")), ())
    return any(
        one.get("reason") in later and event_time(one) >= event_time(event)
        for one in s.events_of(kind, obj)
    )


def _last_change(obj: Object) -> float:
    """When a client last changed an object."""
    return max(
        (
            time_of(str(entry.get("time") or ""))
            for entry in obj["metadata"].get("managedFields") or ()
            if not entry.get("subresource") and entry.get("manager") != "kubelet"
        ),
        default=0.0,
    )


def _reported(s: ClusterSnapshot, kind: str, obj: Object, shown: str) -> Iterator[DoctorFinding]:
    """The newest event of each reason about an object, reported for the kind `shown`."""
    reported: set[str] = set()
    for event in s.warnings_of(kind, obj, *REASONS):
        reason = str(event.get("reason"))
        if reason not in reported and _holds(s, obj, event) and not _succeeded(s, kind, obj, event):
            reported.add(reason)
            cause, remedy = REASONS[reason]
            yield DoctorFinding(
                "warning",
                f"{cause} ({reason}: {event_message(event)})",
                (place_of_object(shown.lower(), obj),),
                f"{shown} {'/'.join(filter(None, key_of_object(obj)))} may not work as asked.",
                remedy,
            )
