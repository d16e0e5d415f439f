"""The first release of kubelet behaviour that no feature gate of the tables controls.

The releases are those of the kubelet's source at Kubernetes' tags.
"""

from __future__ import annotations

from typing import Final, Literal

from transom.machinery.releases.release import Release

KubeletBehaviour = Literal[
    "AnyVariableNames",
    "BestEffortMemoryPolicy",
    "CpusAsAllocated",
    "CriticalPodsWithoutSwap",
    "LimitsSwap",
    "MemoryReservationPolicy",
    "NoSwapByDefault",
    "OptionalThrottling",
    "ShortSwapError",
    "SwapStatus",
    "ThrottlesAboveRequest",
    "CanonicalHeaders",
    "CgroupsIgnoredOnWindows",
    "ColonInContainerEvents",
    "CredentialCacheTypes",
    "CredentialProvidersV1",
    "CredentialProvidersV1Beta1",
    "EligibleImageSpace",
    "InitContainersOfPodCgroups",
    "InsufficientDiskText",
    "ProbeErrorsWithState",
    "CreatedContainersWait",
    "FailedPodsAreUnready",
    "GraceBeforeHooks",
    "HashesNameAndImage",
    "LostContainersRestart",
    "LostInitContainersCompleted",
    "BackOffNamesContainer",
    "HookErrorsHidden",
    "ImageSizeOfPulls",
    "PlainHookReasons",
    "PodResourcesByMethod",
    "PodResourcesGet",
    "PodResourcesMemory",
    "PodResourcesWithoutGates",
    "PullErrorsKept",
    "PullRecordsV1Beta1",
    "RejectedPods",
    "WaitingTimeOfPulls",
    "RejectedQos",
    "RetriesAfterBackOff",
    "ResizeExceedsNode",
    "LargeResizesDeferred",
    "ResizeEvents",
    "AuthorizedSubresources",
    "ClaimsV1",
    "EvictedStatus",
    "ShutdownFieldNames",
    "ShutdownGroups",
    "ShutdownTexts",
    "ShutdownUnmounts",
    "TerminalPhases",
    "FlagErrorsLogged",
    "FlagErrorsReturned",
    "FlagErrorsWithoutUsage",
    "ThreeOlderKubelets",
    "UncheckedAppArmor",
    "UnnamedContainerEvents",
    "PodOsAdmission",
    "GroupsPolicyAdmission",
    "TaintAdmission",
    "PredicateMessages",
    "AllowlistedSysctls",
    "ResizesBesideStaticPolicy",
    "TopologyErrorsNameFlags",
    "CpuManagerOptionStages",
    "TopologyManagerWithoutGate",
    "LowerCaseTopologyErrors",
    "QuotaPeriodErrorsNameFlag",
    "QuotaPeriodInMilliseconds",
    "ContainerRuntimeNetworkText",
    "ReadyWithoutAppArmor",
    "NonRootErrorsNamePod",
    "WindowsBuildLabel",
    "WindowsBootId",
    "WindowsMemoryPressure",
    "WindowsSubPathsUnlocked",
    "WindowsPodResourcesRejected",
    "WindowsUserNames",
    "WithoutHyperVAnnotation",
    "WindowsCpuMaximumOnly",
    "ProbeTimeoutsReported",
    "ProbeJitterAtStartOnly",
    "ConfigReservedMemory",
    "ConfigMemorySwap",
    "ConfigRegisterWithTaints",
    "ConfigParallelPulls",
    "ConfigPodLogsDir",
    "ConfigSingleProcessOomKill",
    "ConfigUserNamespaces",
    "ServingWithoutEncipherment",
    "SandboxEventInfinitive",
    "DualStackNodeIps",
    "WindowsPriorityClass",
]

_SINCE: Final[dict[KubeletBehaviour, Release]] = {
    # Keys of config maps and secrets become variables whatever characters they have.
    "AnyVariableNames": Release(1, 30),
    # The memory manager has a policy for Windows, and does not use a NUMA node both alone and
    # together with others.
    "BestEffortMemoryPolicy": Release(1, 32),
    # A container on Windows runs on the CPUs of the CPU manager, whatever NUMA nodes it has.
    "CpusAsAllocated": Release(1, 37),
    "CriticalPodsWithoutSwap": Release(1, 31),
    # The kubelet limits the swap of every container, also without the gate NodeSwap.
    "LimitsSwap": Release(1, 28),
    # The field memoryReservationPolicy defines which memory is protected.
    "MemoryReservationPolicy": Release(1, 36),
    # The swap behaviour NoSwap replaces UnlimitedSwap and is the default.
    "NoSwapByDefault": Release(1, 30),
    # Without the field memoryThrottlingFactor, memory.high is not set.
    "OptionalThrottling": Release(1, 37),
    # The error of a kubelet that does not start because of swap does not show /proc/swaps.
    "ShortSwapError": Release(1, 31),
    # The status of a node has the size of its swap.
    "SwapStatus": Release(1, 33),
    # memory.high is a value between the request and the limit, not a part of the limit.
    "ThrottlesAboveRequest": Release(1, 27),
    # The kubelet reads resource claims in the version v1, and calls drivers in v1 or v1beta1.
    "ClaimsV1": Release(1, 34),
    # The names of HTTP headers of probes and hooks are written in Go's canonical form.
    "CanonicalHeaders": Release(1, 28),
    # The configuration of credential providers that receive tokens has a cacheType.
    "CredentialCacheTypes": Release(1, 34),
    "CredentialProvidersV1": Release(1, 26),
    "CredentialProvidersV1Beta1": Release(1, 24),
    # Kubelets of Windows nodes ignore settings of cgroups, earlier they refused to start.
    "CgroupsIgnoredOnWindows": Release(1, 31),
    # Events about a full disk count the images that can be removed.
    "EligibleImageSpace": Release(1, 26),
    # A pod as a whole has a limit if its init containers have one, too.
    "InitContainersOfPodCgroups": Release(1, 23),
    # Events about a full disk show how full it is.
    "InsufficientDiskText": Release(1, 35),
    # Events about probes that could not run name the resulting state.
    "ProbeErrorsWithState": Release(1, 33),
    # Events name a container as in "Created container: web".
    "ColonInContainerEvents": Release(1, 29),
    # A container that was created and did not start is waiting, earlier it was terminated.
    "CreatedContainersWait": Release(1, 22),
    # The conditions of failed pods have the reason PodFailed.
    "FailedPodsAreUnready": Release(1, 22),
    # The grace period with which a pod is evicted replaces its own before preStop hooks run.
    "GraceBeforeHooks": Release(1, 28),
    # Only a change of its name or image restarts a container.
    "HashesNameAndImage": Release(1, 31),
    # A container that the runtime no longer has was terminated, also in pods that stay.
    "LostContainersRestart": Release(1, 22),
    # Init containers that the runtime no longer has are completed if regular containers exist.
    "LostInitContainersCompleted": Release(1, 36),
    # Events of BackOff name the container and the pod.
    "BackOffNamesContainer": Release(1, 26),
    # Events about failed hooks do not show the error.
    "HookErrorsHidden": Release(1, 26),
    "ImageSizeOfPulls": Release(1, 30),
    # The reason of a container whose postStart hook failed has no error text.
    "PlainHookReasons": Release(1, 22),
    # The pod resources API has GetAllocatableResources, and metrics by method.
    "PodResourcesByMethod": Release(1, 21),
    "PodResourcesGet": Release(1, 27),
    "PodResourcesMemory": Release(1, 22),
    "PodResourcesWithoutGates": Release(1, 28),
    # The message of ImagePullBackOff has the last error.
    "PullErrorsKept": Release(1, 32),
    # Messages of pods that a kubelet rejects begin with "Pod was rejected: ".
    "RejectedPods": Release(1, 26),
    # Records of pulled images are stored in the version v1beta1, earlier v1alpha1.
    "PullRecordsV1Beta1": Release(1, 35),
    "WaitingTimeOfPulls": Release(1, 25),
    # The status of rejected pods keeps the QoS class.
    "RejectedQos": Release(1, 32),
    # A pod whose container backs off is synced when the back-off ends, earlier every ten seconds.
    "RetriesAfterBackOff": Release(1, 35),
    # Requests beyond the node's capacity make a resize infeasible.
    "ResizeExceedsNode": Release(1, 33),
    # Requests beyond the node's capacity only defer a resize.
    "LargeResizesDeferred": Release(1, 36),
    # Resizes have events.
    "ResizeEvents": Release(1, 35),
    # Errors of a kubelet's authorization list all subresources that would allow a request.
    "AuthorizedSubresources": Release(1, 32),
    # The status of evicted pods keeps containers and conditions.
    "EvictedStatus": Release(1, 22),
    # Errors of a configuration spell fields as in "shutdownGracePeriod".
    "ShutdownFieldNames": Release(1, 24),
    # A node shutdown goes by priority: a group starts when the one before it has ended. Has an event.
    "ShutdownGroups": Release(1, 23),
    # Pods that end with their node have the reason Terminated, earlier Shutdown.
    "ShutdownTexts": Release(1, 22),
    # A node shutdown waits until the volumes of a group are unmounted.
    "ShutdownUnmounts": Release(1, 32),
    # Deleted pods end as Succeeded or Failed.
    "TerminalPhases": Release(1, 27),
    # An invalid command line ends the kubelet with code 1 and a structured line, earlier with 255.
    "FlagErrorsLogged": Release(1, 21),
    # The kubelet's command returns the error of an invalid command line.
    "FlagErrorsReturned": Release(1, 24),
    # The error of an invalid command line is logged without the list of all flags.
    "FlagErrorsWithoutUsage": Release(1, 25),
    # Kubelets may be three minor versions older than the API server, earlier two.
    "ThreeOlderKubelets": Release(1, 28),
    # The runtime, not the kubelet, finds out whether an AppArmor profile is loaded.
    "UncheckedAppArmor": Release(1, 24),
    # Events do not name the container: "Container created".
    "UnnamedContainerEvents": Release(1, 35),
    # Pods for another operating system than the node's are rejected.
    "PodOsAdmission": Release(1, 24),
    # Pods with supplementalGroupsPolicy Strict are rejected on nodes without the feature.
    "GroupsPolicyAdmission": Release(1, 33),
    # Pods that do not tolerate the NoExecute taints of the node are rejected.
    "TaintAdmission": Release(1, 24),
    # Messages of failed predicates say why.
    "PredicateMessages": Release(1, 31),
    # Forbidden sysctls are not allowlisted, earlier not whitelisted.
    "AllowlistedSysctls": Release(1, 23),
    # Guaranteed pods may be resized where a manager has the static policy, except for its resource.
    "ResizesBesideStaticPolicy": Release(1, 34),
    # Errors of the topology manager's settings name the flag and the possible values.
    "TopologyErrorsNameFlags": Release(1, 24),
    # Options of the CPU manager's policy have stages.
    "CpuManagerOptionStages": Release(1, 23),
    # The topology manager has no feature gate of its own.
    "TopologyManagerWithoutGate": Release(1, 27),
    # Errors of its options begin with "topology manager policy".
    "LowerCaseTopologyErrors": Release(1, 33),
    # Errors of cpuCFSQuotaPeriod name the flag.
    "QuotaPeriodErrorsNameFlag": Release(1, 24),
    # cpuCFSQuotaPeriod is at least a millisecond, earlier a microsecond.
    "QuotaPeriodInMilliseconds": Release(1, 26),
    # "container runtime network not ready", earlier "runtime network not ready".
    "ContainerRuntimeNetworkText": Release(1, 21),
    # The condition Ready does not mention AppArmor.
    "ReadyWithoutAppArmor": Release(1, 30),
    # Errors of runAsNonRoot name the pod and the container.
    "NonRootErrorsNamePod": Release(1, 20),
    # Windows nodes have the label node.kubernetes.io/windows-build.
    "WindowsBuildLabel": Release(1, 17),
    # Windows nodes report a boot id.
    "WindowsBootId": Release(1, 24),
    # Windows nodes evict pods when memory runs short: the committed part of physical memory and page
    # file. More of it is reserved.
    "WindowsMemoryPressure": Release(1, 31),
    # On Windows, the kubelet does not keep sub-paths of volumes open.
    "WindowsSubPathsUnlocked": Release(1, 37),
    # On Windows, pods with resources of the pod as a whole are rejected.
    "WindowsPodResourcesRejected": Release(1, 34),
    # runAsUserName has an effect.
    "WindowsUserNames": Release(1, 16),
    # Hyper-V isolation by annotation has no effect.
    "WithoutHyperVAnnotation": Release(1, 17),
    # On Windows, CPU limits are maxima only, earlier weights too.
    "WindowsCpuMaximumOnly": Release(1, 18),
    # The event of an exec probe that takes too long has the command.
    "ProbeTimeoutsReported": Release(1, 23),
    # Only the first probes after the kubelet's start are spread over their period.
    "ProbeJitterAtStartOnly": Release(1, 21),
    # The kubelet's configuration has memoryManagerPolicy and reservedMemory.
    "ConfigReservedMemory": Release(1, 21),
    # The kubelet's configuration has memorySwap and memoryThrottlingFactor.
    "ConfigMemorySwap": Release(1, 22),
    # The kubelet's configuration has registerWithTaints.
    "ConfigRegisterWithTaints": Release(1, 23),
    # The kubelet's configuration has maxParallelImagePulls.
    "ConfigParallelPulls": Release(1, 27),
    # The kubelet's configuration has podLogsDir.
    "ConfigPodLogsDir": Release(1, 30),
    # The kubelet's configuration has singleProcessOOMKill.
    "ConfigSingleProcessOomKill": Release(1, 32),
    # The kubelet's configuration has userNamespaces.
    "ConfigUserNamespaces": Release(1, 33),
    # Requests for serving certificates do not name key encipherment.
    "ServingWithoutEncipherment": Release(1, 25),
    # "Failed to create pod sandbox", earlier "Failed create pod sandbox".
    "SandboxEventInfinitive": Release(1, 17),
    # A node may have an IPv4 and an IPv6 address.
    "DualStackNodeIps": Release(1, 20),
    # The flag --windows-priorityclass exists.
    "WindowsPriorityClass": Release(1, 19),
}


# The pause image of kubeadm and of the kubelet on Linux.
_LINUX_PAUSE: Final = (
    (Release(1, 36), "registry.k8s.io/pause:3.10.2"),
    (Release(1, 34), "registry.k8s.io/pause:3.10.1"),
    (Release(1, 31), "registry.k8s.io/pause:3.10"),
    (Release(1, 26), "registry.k8s.io/pause:3.9"),
    (Release(1, 25), "registry.k8s.io/pause:3.8"),
    (Release(1, 24), "k8s.gcr.io/pause:3.7"),
    (Release(1, 23), "k8s.gcr.io/pause:3.6"),
    (Release(1, 22), "k8s.gcr.io/pause:3.5"),
    (Release(1, 21), "k8s.gcr.io/pause:3.4.1"),
)
_FIRST_LINUX_PAUSE: Final = "k8s.gcr.io/pause:3.2"


def linux_pause_image(release: Release) -> str:
    return next((image for since, image in _LINUX_PAUSE if release >= since), _FIRST_LINUX_PAUSE)


def kubelet_has(release: tuple[int, int], name: KubeletBehaviour) -> bool:
    return release >= _SINCE[name]


def oldest_kubelet(release: Release) -> int:
    """How many minor versions older than the API server a kubelet may be."""
    return 3 if kubelet_has(release, "ThreeOlderKubelets") else 2
