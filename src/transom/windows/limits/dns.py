"""Limits of name resolution in Windows containers."""

from __future__ import annotations

from typing import Final

from transom.windows.records import RecordField, WindowsLimit

LIMITS: Final = (
    WindowsLimit(
        id="WIN-DNS-001",
        title="ClusterFirstWithHostNet is not supported",
        statement=(
            "The policy is for pods on the host network, which Windows pods cannot use. It behaves "
            "like ClusterFirst."
        ),
        effect="ignored",
        remedy="Use ClusterFirst.",
        checklist=("DNS-01", "API-34"),
        fields=(RecordField("spec.dnsPolicy", "is", "ClusterFirstWithHostNet"),),
        severity="warning",
        fix="drop",
        section="DNS",
        topics=("dnsPolicy",),
    ),
    WindowsLimit(
        id="WIN-DNS-002",
        title="A name with a dot gets no suffix",
        statement="Windows treats every name with a dot as fully qualified. A service resolves by "
        "its short name in its own namespace and by its full name, but not by NAME.NAMESPACE or "
        "NAME.NAMESPACE.svc.",
        effect="fails",
        remedy="Use NAME.NAMESPACE.svc.cluster.local.",
        checklist=("DNS-02", "DNS-08"),
        check="dotted-names",
        severity="warning",
        section="DNS",
        topics=("PQDN", "FQDN", "ndots", "suffix"),
    ),
    WindowsLimit(
        id="WIN-DNS-003",
        title="Only one DNS suffix is used",
        statement=(
            "A Windows pod resolves short names only with the suffix of its namespace, not with a "
            "list of suffixes."
        ),
        effect="degraded",
        remedy="Write full names.",
        checklist=("DNS-04",),
        fields=(RecordField("spec.dnsConfig.searches", "longer", 1),),
        severity="warning",
        section="DNS",
        topics=("search", "dnsConfig", "suffix"),
    ),
    WindowsLimit(
        id="WIN-DNS-004",
        title="Resolver options are ignored",
        statement="ndots and other options belong to the Linux resolver.",
        effect="ignored",
        remedy="Drop them; write full names.",
        checklist=("DNS-02",),
        fields=(RecordField("spec.dnsConfig.options"),),
        severity="info",
        fix="drop",
        section="DNS",
        topics=("ndots", "dnsConfig"),
    ),
    WindowsLimit(
        id="WIN-DNS-005",
        title="resolv.conf has no effect",
        statement="Windows keeps DNS settings in the registry of each container; a file mounted "
        "from the node, or a change of the node's settings, has no effect in the pod.",
        effect="ignored",
        remedy="Use dnsConfig; CNI plugins pass it to the host networking service.",
        checklist=("LNET-03",),
        fields=(
            RecordField(
                "spec.containers[*].volumeMounts[*].mountPath",
                "matches",
                r"^/etc(/(resolv\.conf|hosts|nsswitch\.conf)?)?$",
            ),
        ),
        severity="warning",
        section="Networking",
        topics=("resolv.conf", "registry"),
    ),
)
