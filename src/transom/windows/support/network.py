"""The pod network: setup, modes and plugins, flows, addresses, names."""

from __future__ import annotations

from typing import Final

from transom.windows.records import WindowsSupport

_S: Final = "Networking"
_M: Final = "Network modes"
_F: Final = "Network flows"

SUPPORT: Final = (
    WindowsSupport(
        "SUP-NET-001",
        "Networks are made by CNI plugins",
        "Without a CNI configuration a node is not ready.",
        "rule",
        checklist=("NET-01",),
        section=_S,
        topics=("CNI",),
    ),
    WindowsSupport(
        "SUP-NET-002",
        "Containers have virtual network cards",
        "Each is connected to a port of a Hyper-V switch.",
        "rule",
        checklist=("NET-02", "LNET-01"),
        section=_S,
        topics=("vNIC", "vSwitch"),
    ),
    WindowsSupport(
        "SUP-NET-003",
        "HCS and HNS",
        "The host compute service manages containers, the host networking service manages their "
        "networks.",
        "rule",
        checklist=("NET-03", "NET-04"),
        section=_S,
        topics=("HCS", "HNS"),
    ),
    WindowsSupport(
        "SUP-NET-004",
        "HNS objects",
        "Networks and switches, endpoints, namespaces, and policies: encapsulation, load "
        "balancing, ACLs, NAT.",
        checklist=("NET-05", "NET-06", "NET-07", "NET-08"),
        section=_S,
        topics=("HNS",),
    ),
    WindowsSupport(
        "SUP-NET-005",
        "Settings are in the registry",
        "Addresses, routes and DNS are set through HNS in the container's context, not by files.",
        "rule",
        checklist=("LNET-02", "LNET-04"),
        section=_S,
        topics=("registry", "DNS"),
    ),
    WindowsSupport(
        "SUP-NET-006",
        "Five network modes",
        "l2bridge, l2tunnel, overlay, transparent, NAT; plugins are external.",
        checklist=("NET-09",),
        section=_M,
    ),
    WindowsSupport(
        "SUP-NET-007",
        "One solution for both systems",
        "The network of a mixed cluster must suit Linux and Windows nodes.",
        "rule",
        checklist=("NET-10",),
        section=_M,
    ),
    WindowsSupport(
        "SUP-NET-008",
        "l2bridge",
        "Containers are on the underlay; their MAC addresses are rewritten to the host's, their "
        "IP addresses by OutBoundNAT for destinations outside.",
        checklist=("NET-11", "NET-12", "NET-14"),
        networks=("l2bridge",),
        section=_M,
        note="The documentation of 1.14 says that the IP address stays.",
    ),
    WindowsSupport(
        "SUP-NET-009",
        "l2bridge plugins",
        "win-bridge, azure-cni, and flannel's host-gateway, which uses win-bridge.",
        checklist=("NET-13",),
        networks=("l2bridge",),
        section=_M,
        topics=("win-bridge", "azure-cni", "flannel"),
    ),
    WindowsSupport(
        "SUP-NET-010",
        "l2tunnel",
        "Azure only: all packets go to the virtualization host, where policies apply.",
        checklist=("NET-16", "NET-17", "NET-18"),
        networks=("l2tunnel",),
        section=_M,
        topics=("azure-cni", "vNET"),
    ),
    WindowsSupport(
        "SUP-NET-011",
        "overlay",
        "Networks with separate subnets over VXLAN; isolated from the underlay, and addresses can "
        "repeat in networks with different VNIDs.",
        checklist=("NET-20", "NET-21", "NET-23", "NET-24"),
        networks=("overlay",),
        stage="alpha",
        section=_M,
        topics=("vxlan",),
    ),
    WindowsSupport(
        "SUP-NET-012",
        "overlay plugins",
        "win-overlay, and flannel's VXLAN, which uses it.",
        checklist=("NET-22",),
        networks=("overlay",),
        stage="alpha",
        section=_M,
        topics=("win-overlay", "flannel"),
    ),
    WindowsSupport(
        "SUP-NET-013",
        "overlay between subnets",
        "Nodes need not be in one L2 segment.",
        checklist=("NET-26",),
        networks=("overlay",),
        stage="alpha",
        section=_M,
    ),
    WindowsSupport(
        "SUP-NET-014",
        "transparent",
        "For ovn-kubernetes: an external switch; packets to other hosts go through GENEVE or "
        "STT tunnels by the controller's metadata; NAT to the outside.",
        checklist=("NET-27", "NET-28", "NET-29", "NET-30", "NET-31"),
        networks=("transparent",),
        enable="ovn-kubernetes, deployed by ansible",
        section=_M,
        topics=("ovn",),
    ),
    WindowsSupport(
        "SUP-NET-015",
        "ovn-kubernetes",
        "Provides policies as distributed ACLs, its own IPAM, load balancing without "
        "kube-proxy, NAT without iptables or netsh.",
        checklist=("NET-32", "NET-33", "NET-34", "NET-35"),
        networks=("transparent",),
        section=_M,
        topics=("ovn", "NetworkPolicy"),
    ),
    WindowsSupport(
        "SUP-NET-016",
        "NAT",
        (
            "Not used in clusters: an internal switch, WinNAT's DHCP and DNS, the host's MAC and IP "
            "address."
        ),
        "rule",
        checklist=("NET-37", "NET-38", "NET-39"),
        networks=("nat",),
        section=_M,
        topics=("WinNAT",),
    ),
    WindowsSupport(
        "SUP-NET-017",
        "flannel",
        "A meta plugin: host-gateway delegates to win-bridge (stable), VXLAN to win-overlay "
        "(alpha); flanneld leases a subnet for the node and makes the HNS network.",
        checklist=("NET-40", "NET-41", "NET-42"),
        section=_M,
        topics=("flanneld", "host-gw", "vxlan"),
    ),
    WindowsSupport(
        "SUP-NET-018",
        "flannel's configuration",
        "cni.conf (1.14: net-conf.json) and flanneld's subnet.env together; the "
        "node's subnet goes to the IPAM plugin.",
        "rule",
        checklist=("NET-43", "NET-44"),
        section=_M,
        topics=("cni.conf", "subnet.env"),
    ),
    WindowsSupport(
        "SUP-NET-019",
        "Pod to pod by address",
        "TCP and UDP, on the same node and between nodes.",
        checklist=("FLOW-01",),
        section=_F,
    ),
    WindowsSupport(
        "SUP-NET-020", "Pod to pod by name", "TCP and UDP.", checklist=("FLOW-02",), section=_F
    ),
    WindowsSupport(
        "SUP-NET-021",
        "Pod to Service by address",
        "TCP and UDP.",
        checklist=("FLOW-03",),
        section=_F,
    ),
    WindowsSupport(
        "SUP-NET-022",
        "Pod to Service by bare name",
        "If there is no dot in it, in the same namespace.",
        checklist=("FLOW-04",),
        section=_F,
        topics=("PQDN",),
    ),
    WindowsSupport(
        "SUP-NET-023",
        "Pod to Service by full name",
        "NAME.NAMESPACE.svc.cluster.local.",
        checklist=("FLOW-05",),
        section=_F,
        topics=("FQDN",),
    ),
    WindowsSupport(
        "SUP-NET-024",
        "Pod to outside by address",
        "TCP and UDP.",
        checklist=("FLOW-06",),
        section=_F,
    ),
    WindowsSupport(
        "SUP-NET-025", "Pod to outside by name", "TCP and UDP.", checklist=("FLOW-07",), section=_F
    ),
    WindowsSupport(
        "SUP-NET-026",
        "Node to pod",
        "With flannel's VXLAN only to the pods of the same node.",
        checklist=("FLOW-08",),
        section=_F,
    ),
    WindowsSupport(
        "SUP-NET-027", "Pod to node", "TCP and UDP.", checklist=("FLOW-09",), section=_F
    ),
    WindowsSupport(
        "SUP-NET-028",
        "ICMP inside the network",
        "ping from pod to pod works.",
        checklist=("LNET-15",),
        section=_F,
        topics=("ping",),
    ),
    WindowsSupport(
        "SUP-NET-029",
        "TCP and UDP to the outside",
        "Work without limits; test with curl instead of ping.",
        checklist=("LNET-16", "LNET-18", "TRB-74"),
        section=_F,
        topics=("curl", "ping"),
    ),
    WindowsSupport(
        "SUP-NET-030",
        "IPAM host-local",
        "Addresses from the node's range.",
        checklist=("IPAM-01",),
        section="IPAM",
    ),
    WindowsSupport(
        "SUP-NET-031",
        "IPAM of HNS",
        "What is used when no IPAM is set.",
        "default",
        checklist=("IPAM-02",),
        section="IPAM",
    ),
    WindowsSupport(
        "SUP-NET-032",
        "IPAM azure-vnet-ipam",
        "With azure-cni only.",
        checklist=("IPAM-03",),
        section="IPAM",
    ),
    WindowsSupport(
        "SUP-NET-033",
        "Port forwarding",
        "`kubectl port-forward` works from 1.15 on, by wincat.exe in the pause image.",
        checklist=("LNET-19", "TRB-114"),
        since=(1, 15),
        section=_S,
        topics=("port-forward", "wincat"),
    ),
    WindowsSupport(
        "SUP-NET-034",
        "Names a Windows pod resolves",
        "Full names, and short names with the suffix of its namespace: in default both kubernetes and "
        "kubernetes.default.svc.cluster.local.",
        checklist=("DNS-05", "DNS-06", "DNS-07"),
        section="DNS",
        topics=("suffix",),
    ),
    WindowsSupport(
        "SUP-NET-035",
        "Linux pods have a search list",
        "The resolver tries every suffix of the list.",
        "rule",
        checklist=("DNS-03",),
        section="DNS",
        topics=("search", "ndots"),
    ),
    WindowsSupport(
        "SUP-NET-036",
        "Ask names by Resolve-DNSName",
        "Windows has several resolvers that differ; use this one.",
        "procedure",
        checklist=("DNS-09",),
        since=(1, 17),
        section="DNS",
        topics=("nslookup",),
    ),
)
