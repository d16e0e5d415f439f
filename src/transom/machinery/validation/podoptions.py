"""What the validation of pods depends on besides the pod: the release, its features, and whether
the spec is that of a pod or of a template.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, Final

from transom.kit.named_tuple import NamedTuple
from transom.machinery.podutil import visit_containers
from transom.machinery.releases import DEFAULT, Release, has_tables
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.releases.features import FeatureSet
from transom.machinery.validation.rules import Errors, RulesFactory, Update, ValidationRules


class PodOptions(NamedTuple):
    release: Release = DEFAULT
    newer: bool = False  # a release with tables
    checks_disks: bool = True  # several pods may only read a cloud disk
    in_pod: bool = False  # the spec of a pod, not of a template
    common_first: bool = False  # rules of all containers run before those of regular containers
    forbids_init_hooks: bool = (
        False  # hooks and probes of init containers are forbidden, not invalid
    )
    checks_host_ports: bool = False  # host ports are those that must equal the container's
    requires_grace: bool = False
    checks_volume_devices: bool = False  # with user namespaces
    checks_host_sysctls: bool = False
    sysctl_slashes: bool = False
    checks_token_path: bool = False
    counts_sources: bool = False
    image_paths: bool = False  # a part of an image volume may be mounted
    indexes_aliases: bool = False  # paths of host aliases have indexes
    checks_huge_pages: bool = False  # huge pages are counted in whole pages
    names_limit: bool = False  # errors of requests show the limit
    checks_spread_selector: bool = False
    checks_deletion_cost: bool = False
    checks_claim_requests: bool = False
    gates_block_node: bool = False
    checks_init_resize: bool = False
    unmasked_needs_users: bool = False
    apparmor_fields: bool = False
    unset_grace: bool = False  # a negative grace period may become 1
    lists_fields: bool = False  # errors list the changeable fields without spaces
    old_first: bool = False  # differences show the stored spec first
    checks_qos: bool = False
    checks_generation: bool = False
    checks_debug_states: bool = False
    checks_host_ips: bool = False
    free_node_affinity: bool = False  # gated pods may narrow their required node affinity
    relaxed_env: bool = False
    relaxed_searches: bool = False
    long_searches: bool = False
    env_files: bool = False
    sleep_zero: bool = False
    restart_rules: bool = False
    restart_all: bool = False
    sidecar_resize: bool = False
    pod_level: bool = False
    pod_level_resize: bool = False
    names_pod_level_gate: bool = False
    memory_may_shrink: bool = False
    init_resize: bool = False
    host_network_users: bool = False  # user namespaces with the host's network
    merges_label_keys: bool = False
    merges_spread_keys: bool = False
    compares_tolerations: bool = False  # Lt and Gt are known operators
    comparing_tolerations: bool = False  # and allowed
    shows_toleration_value: bool = False
    checks_node_values: bool = False
    clears_nomination: bool = False
    strict_addresses: bool = False
    features: FeatureSet = FeatureSet(DEFAULT)


BASE_OPTIONS = PodOptions()


@lru_cache(maxsize=16)
def pod_options(features: FeatureSet) -> PodOptions:
    """The options for templates; those of 1.20 and older do not depend on features."""
    release = features.release
    if not has_tables(release):
        return BASE_OPTIONS
    enabled = features.enabled
    return PodOptions(
        release=release,
        newer=True,
        checks_disks=not has_behaviour(release, "DisksUnchecked"),
        common_first=has_behaviour(release, "CommonContainerRules"),
        forbids_init_hooks=has_behaviour(release, "InitContainerHooksForbidden"),
        checks_host_ports=has_behaviour(release, "HostPortErrors"),
        requires_grace=has_behaviour(release, "GracePeriodRequired"),
        checks_volume_devices=has_behaviour(release, "UserNamespaceVolumeDevices"),
        checks_host_sysctls=has_behaviour(release, "HostSysctls"),
        sysctl_slashes=has_behaviour(release, "SysctlSlashes"),
        checks_token_path=has_behaviour(release, "LocalTokenPaths"),
        image_paths=has_behaviour(release, "ImageVolumePaths"),
        counts_sources=has_behaviour(release, "OneProjectedSource"),
        indexes_aliases=has_behaviour(release, "HostAliasIndexes"),
        checks_huge_pages=True,
        names_limit=has_behaviour(release, "LimitsInErrors"),
        checks_spread_selector=has_behaviour(release, "SpreadSelectorChecked"),
        checks_deletion_cost=enabled("PodDeletionCost"),
        checks_claim_requests=has_behaviour(release, "ClaimRequests"),
        gates_block_node=has_behaviour(release, "SchedulingGates"),
        checks_init_resize=has_behaviour(release, "InitResizePolicies"),
        unmasked_needs_users=has_behaviour(release, "UnmaskedProcMount"),
        apparmor_fields=has_behaviour(release, "AppArmorFields"),
        unset_grace=has_behaviour(release, "NegativeGracePeriods"),
        lists_fields=has_behaviour(release, "UpdatableFieldsList"),
        old_first=has_behaviour(release, "OldSpecFirst"),
        checks_qos=has_behaviour(release, "ImmutableQos"),
        checks_generation=has_behaviour(release, "PodGeneration"),
        checks_debug_states=has_behaviour(release, "EphemeralContainerStates"),
        checks_host_ips=has_behaviour(release, "HostIPs"),
        free_node_affinity=has_behaviour(release, "GatedNodeAffinity"),
        relaxed_env=enabled("RelaxedEnvironmentVariableValidation"),
        relaxed_searches=enabled("RelaxedDNSSearchValidation"),
        long_searches=enabled("ExpandedDNSConfig"),
        env_files=enabled("EnvFiles"),
        sleep_zero=enabled("PodLifecycleSleepActionAllowZero"),
        restart_rules=enabled("ContainerRestartRules"),
        restart_all=enabled("RestartAllContainersOnContainerExits"),
        sidecar_resize=enabled("InPlacePodVerticalScaling"),
        pod_level=enabled("PodLevelResources"),
        pod_level_resize=enabled("InPlacePodLevelResourcesVerticalScaling"),
        names_pod_level_gate=has_behaviour(release, "PodLevelResizeErrors"),
        memory_may_shrink=has_behaviour(release, "MemoryLimitsShrink"),
        init_resize=enabled("InPlacePodVerticalScalingInitContainers"),
        host_network_users=enabled("UserNamespacesHostNetworkSupport"),
        merges_label_keys=enabled("MatchLabelKeysInPodAffinity"),
        merges_spread_keys=enabled("MatchLabelKeysInPodTopologySpreadSelectorMerge"),
        compares_tolerations=has_behaviour(release, "ComparingTolerations"),
        shows_toleration_value=has_behaviour(release, "TolerationValueInErrors"),
        checks_node_values=has_behaviour(release, "NodeAffinityValues"),
        comparing_tolerations=enabled("TaintTolerationComparisonOperators"),
        clears_nomination=enabled("ClearingNominatedNodeNameAfterBinding"),
        strict_addresses=enabled("StrictIPCIDRValidation"),
        features=features,
    )


# Specs and containers without these fields use nothing that only stored specs may keep.
_EXEMPTING: Final = frozenset(("hostUsers", "initContainers"))
_EXEMPTING_IN_CONTAINERS: Final = frozenset(("lifecycle", "restartPolicy", "restartPolicyRules"))


def update_options(options: PodOptions, old: dict[str, Any]) -> PodOptions:
    """The options for a change of a spec: what the stored spec already uses stays allowed."""
    if not options.newer:
        return options
    containers = visit_containers(old)
    if (
        _EXEMPTING.isdisjoint(old)
        and not (old.get("securityContext") or {}).get("sysctls")
        and all(_EXEMPTING_IN_CONTAINERS.isdisjoint(c) for c in containers)
    ):
        return options
    kept: dict[str, Any] = {}
    if old.get("hostUsers") is False and any(c.get("volumeDevices") for c in containers):
        kept["checks_volume_devices"] = False
    if any("restartPolicyRules" in c for c in containers) or any(
        "restartPolicy" in c for c in old.get("containers") or ()
    ):
        kept["restart_rules"] = True
    if any(
        (hook or {}).get("sleep", {}).get("seconds", 1) == 0
        for c in containers
        for name, hook in (c.get("lifecycle") or {}).items()
        if name != "stopSignal"
    ):
        kept["sleep_zero"] = True
    if (old.get("securityContext") or {}).get("sysctls") and (
        old.get("hostNetwork") or old.get("hostIPC")
    ):
        kept["checks_host_sysctls"] = False
    if any(
        policy.get("restartPolicy") == "RestartContainer"
        for c in old.get("initContainers") or ()
        if c.get("restartPolicy") != "Always"
        for policy in c.get("resizePolicy") or ()
    ):
        kept["checks_init_resize"] = False
    return options._replace(**kept) if kept else options


def template_rules(
    create: Callable[..., Errors],
    update: Callable[..., Errors],
    status_update: Update | None = None,
) -> RulesFactory:
    """The rules of a workload, whose checks of its pod template take `options`."""

    def rules(features: FeatureSet) -> ValidationRules:
        options = pod_options(features)
        return ValidationRules(
            partial(create, options=options), partial(update, options=options), status_update
        )

    return rules
