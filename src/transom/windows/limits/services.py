"""Limits of Services in kube-proxy and the host networking service of a Windows node."""

from __future__ import annotations

from typing import Final

from transom.windows.records import RecordField, WindowsLimit

_PRESERVE: Final = RecordField(
    "metadata.annotations['preserve-destination']", "is", "true", kind="Service"
)
_LOCAL: Final = RecordField("spec.externalTrafficPolicy", "is", "Local", kind="Service")
_AFFINITY: Final = RecordField("spec.sessionAffinity", "is", "ClientIP", kind="Service")

LIMITS: Final = (
    WindowsLimit(
        id="WIN-SVC-001",
        title="A Service has at most 64 backends",
        statement="The host networking service rejects a load balancer with more than 64 "
        "destinations: the Service then has no load balancer on Windows nodes.",
        effect="fails",
        remedy="Split the Service, or use at most 64 pods.",
        checklist=("LNET-08",),
        networks=("l2bridge", "l2tunnel", "overlay"),
        check="service-backends",
        severity="error",
        message="Unable to initialize VFP LB rule: invalid number of destinations.",
        section="Networking",
        topics=("backends", "endpoints", "64"),
    ),
    WindowsLimit(
        id="WIN-SVC-002",
        title="Session affinity needs a later Windows",
        statement=(
            "ClientIP affinity needs build 19551 or later; on older builds, connections go to all "
            "pods."
        ),
        effect="ignored",
        remedy="Use nodes of Windows Server 2022, or keep sessions outside the pods.",
        checklist=("LB-02",),
        since=(1, 20),
        builds=(0, 19550),
        fields=(_AFFINITY,),
        severity="warning",
        message="Session Affinity is not supported on this version of Windows.",
        section="Load balancing and Services",
        topics=("sessionAffinity",),
    ),
    WindowsLimit(
        id="WIN-SVC-003",
        title="Session affinity needs 1.20",
        statement="kube-proxy on Windows supports ClientIP affinity from 1.20.",
        effect="ignored",
        remedy="Upgrade, or keep sessions outside the pods.",
        checklist=("LB-02",),
        until=(1, 19),
        fields=(_AFFINITY,),
        severity="warning",
        section="Load balancing and Services",
        note="The code exists from 1.19, as one version of the documentation says.",
        topics=("sessionAffinity",),
    ),
    WindowsLimit(
        id="WIN-SVC-004",
        title="The timeout of session affinity is ignored",
        statement="Windows has no timeout for session affinity.",
        effect="ignored",
        remedy="Drop timeoutSeconds.",
        checklist=("LNET-20",),
        fields=(
            RecordField(
                "spec.sessionAffinityConfig.clientIP.timeoutSeconds", "not", 10800, kind="Service"
            ),
        ),
        severity="warning",
        fix="drop",
        section="Session affinity",
        topics=("sessionAffinityConfig", "timeoutSeconds"),
    ),
    WindowsLimit(
        id="WIN-SVC-005",
        title="externalTrafficPolicy Local is supported with DSR only",
        statement="It is supported if kube-proxy uses direct server return (DSR). Otherwise "
        "kube-proxy enables DSR only for the NodePorts and external addresses of such a Service, "
        "if the platform supports it.",
        effect="degraded",
        remedy="Start kube-proxy with --feature-gates=WinDSR=true --enable-dsr=true.",
        checklist=("LNET-11", "LB-15"),
        since=(1, 20),
        lifted_by=("dsr",),
        fields=(_LOCAL,),
        severity="warning",
        section="Networking",
        note=(
            "The documentation says that the client address is not preserved without DSR; the code "
            "of kube-proxy preserves it."
        ),
        topics=("externalTrafficPolicy", "DSR", "client IP"),
    ),
    WindowsLimit(
        id="WIN-SVC-006",
        title="externalTrafficPolicy Local is ignored before 1.20",
        statement="Local traffic policy and client addresses are not kept on Windows nodes.",
        effect="ignored",
        remedy="Use Cluster, or upgrade.",
        checklist=("LNET-11", "LB-14"),
        until=(1, 19),
        fields=(_LOCAL,),
        severity="warning",
        section="Networking",
        topics=("externalTrafficPolicy", "client IP"),
    ),
    WindowsLimit(
        id="WIN-SVC-007",
        title="DSR needs its feature gate",
        statement="kube-proxy rejects --enable-dsr without --feature-gates=WinDSR=true.",
        effect="rejected",
        remedy="Give both.",
        checklist=("LB-05",),
        until=(1, 32),
        lifted_by=("WinDSR",),
        message="WinDSR feature gate not enabled",
        section="Load balancing and Services",
        topics=("DSR", "WinDSR", "kube-proxy"),
    ),
    WindowsLimit(
        id="WIN-SVC-008",
        title="DSR needs 1.20 and Windows Server 2019",
        statement="Direct server return needs Kubernetes 1.20 and Windows Server 2019 or later.",
        effect="rejected",
        remedy="Upgrade.",
        checklist=("LB-04", "LNET-11"),
        until=(1, 19),
        message="platform does not support feature Direct Server Return (DSR)",
        section="Load balancing and Services",
        note=(
            "The Korean translation says 1.15 and version 2004; the documentation of 1.14 says "
            "that it is not supported."
        ),
        topics=("DSR",),
    ),
    WindowsLimit(
        id="WIN-SVC-009",
        title="preserve-destination is supported with DSR only",
        statement="The annotation is supported if kube-proxy uses direct server return (DSR). "
        "Otherwise kube-proxy enables DSR only for the load balancer addresses of such a Service; "
        "NodePorts only stay on the node.",
        effect="degraded",
        remedy="Start kube-proxy with --feature-gates=WinDSR=true --enable-dsr=true.",
        checklist=("LB-09",),
        since=(1, 20),
        lifted_by=("dsr",),
        fields=(_PRESERVE,),
        severity="warning",
        section="Load balancing and Services",
        note="The documentation says that the annotation alone has no effect.",
        topics=("preserve-destination", "DSR"),
    ),
    WindowsLimit(
        id="WIN-SVC-010",
        title="preserve-destination needs Windows Server, version 1903",
        statement="Windows Server 2019 still translates the destination. The annotation only turns "
        "off forwarding between nodes.",
        effect="degraded",
        remedy="Use nodes of build 18362 or later.",
        checklist=("LB-08",),
        since=(1, 20),
        builds=(0, 18361),
        fields=(_PRESERVE,),
        severity="warning",
        section="Load balancing and Services",
        topics=("preserve-destination",),
    ),
    WindowsLimit(
        id="WIN-SVC-011",
        title="preserve-destination needs 1.20",
        statement="kube-proxy supports the annotation from 1.20.",
        effect="ignored",
        remedy="Drop it, or upgrade.",
        checklist=("LB-08",),
        until=(1, 19),
        fields=(_PRESERVE,),
        severity="warning",
        section="Load balancing and Services",
        note="The code exists from 1.15, as one version of the documentation says.",
        topics=("preserve-destination",),
    ),
    WindowsLimit(
        id="WIN-SVC-012",
        title="Nodes without a local backend do not forward",
        statement="preserve-destination and externalTrafficPolicy Local turn off forwarding "
        "between nodes: only nodes with a pod of the Service respond.",
        effect="degraded",
        remedy="Let the load balancer use the health check port, or run a pod on every node.",
        checklist=("LB-07", "LB-13"),
        section="Load balancing and Services",
        topics=("preserve-destination", "externalTrafficPolicy"),
    ),
    WindowsLimit(
        id="WIN-SVC-013",
        title="loadBalancerSourceRanges are ignored",
        statement="kube-proxy on Windows does not restrict the clients of a load balancer.",
        effect="ignored",
        remedy="Restrict clients at the load balancer or with a NetworkPolicy.",
        fields=(RecordField("spec.loadBalancerSourceRanges", kind="Service"),),
        severity="warning",
        section="Load balancing and Services",
        topics=("source ranges",),
    ),
    WindowsLimit(
        id="WIN-SVC-014",
        title="topologyKeys are ignored",
        statement="kube-proxy on Windows does not prefer endpoints by topology.",
        effect="ignored",
        remedy="Drop them.",
        until=(1, 21),
        fields=(RecordField("spec.topologyKeys", kind="Service"),),
        severity="info",
        section="Load balancing and Services",
        topics=("topology",),
    ),
    WindowsLimit(
        id="WIN-SVC-015",
        title="A named target port must be the same in all pods",
        statement=("kube-proxy on Windows uses the port number of the first pod for all pods."),
        effect="degraded",
        remedy="Use a number, or the same port in all pods.",
        check="named-target-port",
        severity="info",
        section="Load balancing and Services",
        topics=("targetPort",),
    ),
    WindowsLimit(
        id="WIN-SVC-016",
        title="Dual-stack Services are not supported",
        statement="In a dual-stack cluster, only single-family Services are supported. kube-proxy "
        "treats a dual-stack Service as two: each IP family has its own proxier.",
        effect="degraded",
        remedy="Make one Service for each family.",
        checklist=("IP6-02",),
        since=(1, 20),
        networks=("l2bridge", "l2tunnel"),
        builds=(19041, None),
        fields=(RecordField("spec.ipFamilyPolicy", "is", "RequireDualStack", kind="Service"),),
        severity="warning",
        section="IPv6 networking",
        topics=("dual stack", "ipFamilyPolicy"),
    ),
)
