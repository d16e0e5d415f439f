"""Services on Windows nodes, and their settings with the releases and builds that they need."""

from __future__ import annotations

from typing import Final

from transom.windows.records import WindowsSupport

_S: Final = "Load balancing and Services"
_DSR: Final = '--feature-gates="WinDSR=true" --enable-dsr=true'

SUPPORT: Final = (
    WindowsSupport(
        "SUP-SVC-001",
        "Services across operating systems",
        "A Service selects pods of both operating systems, and pods of both can use it.",
        checklist=("SVC-01",),
        section="Compute",
    ),
    WindowsSupport(
        "SUP-SVC-002",
        "Service environment variables",
        "NAME_SERVICE_HOST and NAME_SERVICE_PORT are set.",
        checklist=("SVC-02",),
        section="Compute",
        topics=("env",),
    ),
    WindowsSupport(
        "SUP-SVC-003",
        "NodePort",
        "Reachable from other nodes and from outside.",
        checklist=("SVC-03", "SVC-08", "TRB-83"),
        section="Networking",
    ),
    WindowsSupport(
        "SUP-SVC-004",
        "ClusterIP",
        "Reachable from pods.",
        checklist=("SVC-04", "SVC-09"),
        section="Networking",
    ),
    WindowsSupport(
        "SUP-SVC-005",
        "LoadBalancer",
        "Its address reaches Windows pods.",
        checklist=("SVC-05", "SVC-10"),
        section="Networking",
    ),
    WindowsSupport(
        "SUP-SVC-006",
        "ExternalName",
        "A name that points to another.",
        checklist=("SVC-06", "SVC-11"),
        section="Networking",
        topics=("CNAME",),
    ),
    WindowsSupport(
        "SUP-SVC-007",
        "Headless services",
        "DNS returns the addresses of the pods; there is no load balancer.",
        checklist=("SVC-07",),
        section="Compute",
    ),
    WindowsSupport(
        "SUP-SVC-008",
        "Session affinity",
        "Connections of one client go to one pod.",
        checklist=("LB-01",),
        since=(1, 20),
        builds=(19551, None),
        enable='service.spec.sessionAffinity: "ClientIP"',
        section=_S,
        topics=("sessionAffinity",),
        note="One version of the documentation says 1.19.",
    ),
    WindowsSupport(
        "SUP-SVC-009",
        "Direct server return (DSR)",
        (
            "Addresses are rewritten at the pod's switch port; a backend sees the client pod's "
            "own address."
        ),
        checklist=("LB-03",),
        since=(1, 20),
        builds=(17763, None),
        enable=f"kube-proxy {_DSR}",
        stage="alpha",
        section=_S,
        topics=("DSR", "WinDSR"),
    ),
    WindowsSupport(
        "SUP-SVC-010",
        "Preserve-destination",
        "A backend sees the address of the Service as destination.",
        checklist=("LB-06",),
        since=(1, 20),
        builds=(18362, None),
        needs=("dsr",),
        enable=f'service annotation "preserve-destination": "true", and kube-proxy {_DSR}',
        section=_S,
        topics=("DSR",),
    ),
    WindowsSupport(
        "SUP-SVC-011",
        "Client address preservation",
        "A backend sees the outside client's own address.",
        checklist=("LB-12",),
        since=(1, 20),
        builds=(17763, None),
        needs=("dsr",),
        enable=f'service.spec.externalTrafficPolicy: "Local", and kube-proxy {_DSR}',
        section=_S,
        topics=("externalTrafficPolicy", "client IP"),
    ),
    WindowsSupport(
        "SUP-SVC-012",
        "Dual stack",
        "Pods and nodes have an IPv4 and an IPv6 address; each Service has one family.",
        checklist=("LB-10", "DS-01", "IP6-02"),
        since=(1, 19),
        builds=(19041, None),
        patches=((19041, 610),),
        networks=("l2bridge",),
        enable="feature gate IPv6DualStack",
        stage="alpha",
        section="IPv4/IPv6 dual-stack",
        topics=("IPv6", "dual stack"),
        note="One version of the documentation requires Insider build 19603.",
    ),
)
