"""Limits of the pod network: reachability, and missing features of network plugins on Windows."""

from __future__ import annotations

from typing import Final

from transom.windows.records import RecordField, WindowsLimit

_PING: Final = r"(^|[\s;&|\"'\\/])ping(\.exe)?(\s|$)"

LIMITS: Final = (
    WindowsLimit(
        id="WIN-NET-001",
        title="ping to addresses outside the pod network gets no reply",
        statement="The Windows data plane cannot translate ICMP packets, so replies from outside "
        "the pod network never arrive. TCP and UDP work, and so does ICMP inside the pod "
        "network.",
        effect="fails",
        remedy="Test with curl instead of ping.",
        checklist=("LNET-14", "LNET-17", "TRB-73"),
        networks=("l2bridge", "l2tunnel", "overlay"),
        fields=tuple(
            RecordField(f"spec.containers[*].{place}[*]", "matches", _PING)
            for place in (
                "command",
                "args",
                "livenessProbe.exec.command",
                "readinessProbe.exec.command",
                "startupProbe.exec.command",
                "lifecycle.postStart.exec.command",
            )
        ),
        severity="info",
        section="Networking",
        topics=("ICMP", "ping"),
    ),
    WindowsLimit(
        id="WIN-NET-002",
        title="A Windows node cannot reach service addresses",
        statement=(
            "Load balancing rules are on the switch ports of pods; the node itself has none. Pods "
            "can reach services."
        ),
        effect="fails",
        remedy="Connect to the service from a pod, or to a pod by its IP address.",
        checklist=("LNET-07", "TRB-100"),
        networks=("l2bridge", "l2tunnel", "overlay"),
        section="Networking",
        topics=("ClusterIP", "VIP", "node"),
    ),
    WindowsLimit(
        id="WIN-NET-003",
        title="A Windows node cannot reach its own NodePorts",
        statement=(
            "A NodePort is reachable from other nodes and from outside the cluster, but not from "
            "the node itself."
        ),
        effect="fails",
        remedy="Try it from another machine.",
        checklist=("LNET-06", "TRB-82"),
        section="Networking",
        topics=("NodePort", "localhost"),
    ),
    WindowsLimit(
        id="WIN-NET-004",
        title="win-bridge has no CNI 0.4.0",
        statement="The plugin does not implement CHECK, so it does not support version 0.4.0 of the CNI specification.",
        effect="fails",
        remedy='Set "cniVersion": "0.2.0" or "0.3.0".',
        checklist=("CNI-01",),
        networks=("l2bridge", "l2tunnel"),
        reason="FailedCreatePodSandBox",
        section="CNI plugins",
        topics=("CNI", "win-bridge", "cniVersion"),
    ),
    WindowsLimit(
        id="WIN-NET-005",
        title="win-overlay has no CNI 0.4.0",
        statement="The plugin does not implement CHECK, so it does not support version 0.4.0 of the CNI specification.",
        effect="fails",
        remedy='Set "cniVersion": "0.2.0" or "0.3.0".',
        checklist=("CNI-02",),
        networks=("overlay",),
        reason="FailedCreatePodSandBox",
        section="CNI plugins",
        topics=("CNI", "win-overlay", "cniVersion"),
    ),
    WindowsLimit(
        id="WIN-NET-006",
        title="With flannel's VXLAN nodes cannot reach pods of other nodes",
        statement="By design, a node can reach only its own pods.",
        effect="fails",
        remedy="Use host-gateway mode, or connect through a Service from a pod.",
        checklist=("CNI-03",),
        networks=("overlay",),
        section="CNI plugins",
        topics=("flannel", "vxlan"),
    ),
    WindowsLimit(
        id="WIN-NET-007",
        title="With flannel's VXLAN a node needs flannel 0.12.0 to reach its own pods",
        statement="With older versions of flannel, a node cannot reach its own pods.",
        effect="fails",
        remedy="Use flannel 0.12.0 or later.",
        checklist=("CNI-04",),
        networks=("overlay",),
        section="CNI plugins",
        topics=("flannel", "vxlan"),
    ),
    WindowsLimit(
        id="WIN-NET-008",
        title="flannel's VXLAN needs VNI 4096",
        statement=(
            "flannel on Windows needs VNI 4096 (the code accepts 4096 or more), and Linux nodes "
            "must use the same VNI."
        ),
        effect="rejected",
        remedy='Set "VNI": 4096 in net-conf.json for all nodes.',
        checklist=("CNI-05", "CNI-07"),
        networks=("overlay",),
        check="flannel-backend",
        severity="error",
        message=(
            "invalid VXLAN backend config. VNI [{vni}] must be greater than or equal to 4096 on "
            "Windows"
        ),
        section="CNI plugins",
        topics=("flannel", "vxlan", "VNI"),
    ),
    WindowsLimit(
        id="WIN-NET-009",
        title="flannel's VXLAN needs port 4789",
        statement="VXLAN on Windows uses UDP port 4789; Linux nodes must use the same port.",
        effect="rejected",
        remedy='Set "Port": 4789 in net-conf.json for all nodes.',
        checklist=("CNI-06",),
        networks=("overlay",),
        check="flannel-backend",
        severity="error",
        message="invalid VXLAN backend config. Port [{port}] is not supported on Windows. "
        "Omit the setting to default to port 4789",
        section="CNI plugins",
        topics=("flannel", "vxlan", "port"),
    ),
    WindowsLimit(
        id="WIN-NET-010",
        title="Overlay networks need KB4489899 on Windows Server 2019",
        statement="Without that update (revision 379 of build 17763) overlay networks do not work.",
        effect="fails",
        remedy="Update the node.",
        checklist=("NET-25",),
        builds=(17763, 17763),
        patches=((17763, 379),),
        networks=("overlay",),
        reason="FailedCreatePodSandBox",
        section="Network modes",
        topics=("overlay", "KB4489899"),
    ),
    WindowsLimit(
        id="WIN-NET-011",
        title="kube-proxy on overlay networks needs KB4482887 on Windows Server 2019",
        statement=(
            "Without that update (revision 348 of build 17763) kube-proxy does not work on an "
            "overlay network."
        ),
        effect="fails",
        remedy="Update the node.",
        checklist=("LNET-10",),
        builds=(17763, 17763),
        patches=((17763, 348),),
        networks=("overlay",),
        section="Networking",
        topics=("overlay", "kube-proxy", "KB4482887"),
    ),
    WindowsLimit(
        id="WIN-NET-012",
        title="NAT mode is not for clusters",
        statement="NAT networks are internal to one machine and not supported in Kubernetes.",
        effect="rejected",
        remedy="Choose l2bridge, l2tunnel, overlay or transparent.",
        checklist=("NET-36",),
        networks=("nat",),
        section="Network modes",
        topics=("nat", "WinNAT"),
    ),
    WindowsLimit(
        id="WIN-NET-013",
        title="Overlay pods have no IPv6",
        statement=(
            "win-overlay assigns IPv4 addresses only; dual stack is not supported on overlay "
            "networks."
        ),
        effect="rejected",
        remedy="Use l2bridge for dual stack.",
        checklist=("LNET-12", "LNET-13", "DS-03"),
        networks=("overlay",),
        fields=(
            RecordField(
                "spec.ipFamilyPolicy",
                "one-of",
                ("PreferDualStack", "RequireDualStack"),
                kind="Service",
            ),
            RecordField("spec.ipFamilies[*]", "is", "IPv6", kind="Service"),
        ),
        severity="warning",
        message="win-overlay doesn't support IPv6 now",
        section="Networking",
        topics=("IPv6", "dual stack", "overlay"),
    ),
    WindowsLimit(
        id="WIN-NET-014",
        title="No IPv6 before 1.19",
        statement=(
            "Before 1.19, Windows containers have no IPv6 on l2bridge and l2tunnel networks either."
        ),
        effect="ignored",
        remedy="Use IPv4.",
        checklist=("LNET-12", "LB-11"),
        until=(1, 18),
        networks=("l2bridge", "l2tunnel"),
        fields=(RecordField("spec.ipFamily", "is", "IPv6", kind="Service"),),
        severity="warning",
        section="Networking",
        topics=("IPv6",),
    ),
    WindowsLimit(
        id="WIN-NET-015",
        title="IPv6 needs Windows Server, version 2004",
        statement=(
            "IPv6 in pods needs build 19041, revision 610, or later. Pods on older nodes have IPv4 "
            "only."
        ),
        effect="ignored",
        remedy="Use nodes of build 19041 or later.",
        checklist=("DS-02", "LB-11"),
        since=(1, 19),
        builds=(0, 19041),
        patches=((19041, 610),),
        networks=("l2bridge", "l2tunnel"),
        fields=(
            RecordField(
                "spec.ipFamilyPolicy",
                "one-of",
                ("PreferDualStack", "RequireDualStack"),
                kind="Service",
            ),
            RecordField("spec.ipFamilies[*]", "is", "IPv6", kind="Service"),
        ),
        severity="warning",
        section="IPv4/IPv6 dual-stack",
        topics=("IPv6", "dual stack"),
    ),
    WindowsLimit(
        id="WIN-NET-016",
        title="IPv6-only clusters cannot have Windows nodes",
        statement="Single-stack IPv6 is not supported on Windows.",
        effect="rejected",
        remedy="Use IPv4, or dual stack on l2bridge.",
        checklist=("IP6-01",),
        section="IPv6 networking",
        topics=("IPv6",),
    ),
    WindowsLimit(
        id="WIN-NET-017",
        title="win-bridge needs routes between nodes",
        statement="win-bridge does not encapsulate packets: the underlay must route pod subnets to "
        "their nodes (user-defined routes; Kubernetes 1.14 requires nodes in one L2 segment).",
        effect="fails",
        remedy="Set up routes, or use an overlay network.",
        checklist=("NET-15",),
        networks=("l2bridge",),
        section="Network modes",
        topics=("win-bridge", "UDR", "routes"),
    ),
    WindowsLimit(
        id="WIN-NET-018",
        title="External addresses in the ExceptionList are unreachable",
        statement="Packets to destinations in the exceptions of OutBoundNAT keep the address of "
        "the pod; an external address that is listed there cannot reply.",
        effect="fails",
        remedy="Keep only the subnets of pods, services and nodes in the ExceptionList of cni.conf.",
        checklist=("TRB-77", "TRB-78"),
        networks=("l2bridge", "overlay"),
        section="Troubleshooting",
        topics=("ExceptionList", "OutBoundNAT", "SNAT"),
    ),
    WindowsLimit(
        id="WIN-NET-019",
        title="Overlay networks are not stable",
        statement="Overlay networking is alpha; its support in kube-proxy is beta from 1.20 "
        "(feature gate WinOverlay, off by default before).",
        effect="degraded",
        remedy="Prefer l2bridge, or set --feature-gates=WinOverlay=true where it is off.",
        checklist=("NET-19", "LNET-09", "TRB-67"),
        until=(1, 33),
        networks=("overlay",),
        message="WinOverlay feature gate not enabled",
        section="Network modes",
        topics=("overlay", "WinOverlay"),
    ),
)
