"""Limits of container runtimes on Windows."""

from __future__ import annotations

from typing import Final

from transom.windows.records import WindowsLimit

LIMITS: Final = (
    WindowsLimit(
        id="WIN-RUN-001",
        title="Docker is the only runtime before 1.18",
        statement="containerd on Windows is alpha in 1.18, beta in 1.19 and stable in 1.20.",
        effect="rejected",
        remedy="Use Docker EE.",
        checklist=("RT-08",),
        until=(1, 17),
        runtimes=("containerd",),
        section="Container runtime",
        topics=("containerd", "docker"),
    ),
    WindowsLimit(
        id="WIN-RUN-002",
        title="containerd before 1.4.0 is too old",
        statement="Windows nodes need containerd 1.4.0 or later.",
        effect="degraded",
        remedy="Install containerd 1.4.0 or later.",
        until=(1, 25),
        checklist=("RT-06",),
        since=(1, 18),
        runtimes=("containerd",),
        section="CRI-ContainerD",
        topics=("containerd",),
    ),
    WindowsLimit(
        id="WIN-RUN-003",
        title="Docker knows no runtime handlers",
        statement="A RuntimeClass whose handler is not docker cannot be used on a node with Docker.",
        effect="fails",
        remedy="Use containerd, or a RuntimeClass with the handler docker.",
        runtimes=("docker",),
        check="runtime-handler",
        severity="error",
        reason="FailedCreatePodSandBox",
        message='RuntimeHandler "{handler}" not supported',
        section="Container runtime",
        topics=("RuntimeClass", "handler"),
    ),
    WindowsLimit(
        id="WIN-RUN-004",
        title="Docker is gone from the kubelet",
        statement="Kubernetes 1.24 removed dockershim.",
        effect="rejected",
        remedy="Use containerd.",
        since=(1, 24),
        runtimes=("docker",),
        section="Container runtime",
        topics=("docker", "dockershim"),
    ),
)
