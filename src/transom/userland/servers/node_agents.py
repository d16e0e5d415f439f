"""The images of agents that run on nodes as DaemonSets: kube-proxy, flannel and csi-proxy in
HostProcess containers, and Calico.

A node has its pod network from the start. The agents use that network: kube-proxy and flanneld of
the node do their work, whatever the name of the network in the manifest.
"""

from __future__ import annotations

import ntpath
import posixpath
from collections.abc import Sequence
from typing import Any, Final

from transom.machines.windows.csi_proxy import install_csi_proxy
from transom.userland.api import Program, ProgramContext
from transom.userland.servers.base import ServerProgram
from transom.userland.servers.http import ProgramHttpRequest, ProgramHttpResponse
from transom.userland.subprogram import run_below

_POD_NETWORKS: Final = ("L2Bridge", "L2Tunnel", "Overlay", "Transparent")
_KUBECONFIGS: Final = (  # where the published manifests mount the ConfigMap kube-proxy
    r"C:\hpc\mounts\var\lib\kube-proxy\kubeconfig.conf",
    r"C:\hpc\var\lib\kube-proxy\kubeconfig.conf",
)
_NET_CONF: Final = r"C:\hpc\mounts\kube-flannel\net-conf.json"
_CALICO: Final = r"C:\CalicoWindows"
_CALICO_FILES: Final = (r"\calico-node.exe", r"\config.ps1", r"\cni\calico.exe")
_POLL: Final = 1.0
_COMPONENT_WORDS: Final = 2  # calico component NAME


class _Agent:
    """A program in a HostProcess container that runs a program of its node."""

    def __init__(self, context: ProgramContext) -> None:
        self.context = context
        self.server = ServerProgram(context)

    def mounted(self, paths: Sequence[str]) -> str:
        """The first of the paths that exists, below the mount point of the container; "" if none
        does.
        """
        point = self.context.env.get("CONTAINER_SANDBOX_MOUNT_POINT", "C:\\hpc").rstrip("\\")
        for path in paths:
            here = path.replace("C:\\hpc", point, 1)
            if self.context.files.exists(here):
                return here
        return ""

    def fail(self, text: str) -> Program:
        self.server.err(text)
        self.server.exit(1)
        return self.server

    async def pod_network(self, name: str) -> dict[str, Any]:
        """The HNS network of a name, else the pod network of the node. Waits until there is one."""
        node = self.context.node
        assert node is not None and node.windows is not None
        reported = False
        while True:
            networks = node.windows.hns.list("network")
            for network in networks:
                if network.get("Name", "").lower() == name.lower():
                    return network
            for network in networks:
                if network.get("Type") in _POD_NETWORKS and network.get("Name") != "External":
                    self.server.out(
                        f"simulated: the pod network of this node is {network.get('Name')}, "
                        f"not {name}"
                    )
                    return network
            if not reported:
                self.server.out(f"Waiting for the HNS network {name}")
                reported = True
            await self.context.clock.sleep(_POLL)

    async def run_node_program(self, argv: Sequence[str], **variables: str) -> None:
        self.server.out(f"Starting {' '.join(argv)}")
        code = await run_below(self.context, argv, variables, self.context.terminal.out)
        self.server.exit(code)

    def in_host_process(self) -> bool:
        node = self.context.node
        return node is not None and node.windows is not None


def windows_kube_proxy(context: ProgramContext) -> Program:
    """`sigwindowstools/kube-proxy`: waits for the pod network, then runs the node's kube-proxy."""
    agent = _Agent(context)
    if not agent.in_host_process():
        return agent.fail("kube-proxy needs a HostProcess container")
    if not agent.mounted(_KUBECONFIGS):
        return agent.fail(f"Cannot find path '{_KUBECONFIGS[-1]}' because it does not exist.")
    env = context.env
    name = env.get("KUBE_NETWORK") or context.image.options.get("network", "Calico")
    host = env.get("NODE_NAME") or env.get("NODENAME") or context.network.hostname

    async def main() -> None:
        network = await agent.pod_network(name)
        argv = [
            r"C:\k\kube-proxy.exe",
            "--v=4",
            f"--hostname-override={host}",
            "--proxy-mode=kernelspace",
            r"--kubeconfig=C:\k\config",
        ]
        await agent.run_node_program(argv, KUBE_NETWORK=str(network["Name"]))

    agent.server.spawn(main())
    return agent.server


def windows_flannel(context: ProgramContext) -> Program:
    """`sigwindowstools/flannel`: runs the node's flanneld beside the one that runs as a service."""
    agent = _Agent(context)
    if not agent.in_host_process():
        return agent.fail("flanneld needs a HostProcess container")
    if not agent.mounted([_NET_CONF]):
        return agent.fail(f"Cannot find path '{_NET_CONF}' because it does not exist.")

    async def main() -> None:
        network = await agent.pod_network("flannel.4096")
        address = next(iter(context.network.ips), "")
        argv = [
            r"C:\flannel\flanneld.exe",
            r"--kubeconfig-file=C:\k\config",
            f"--iface={address}",
            "--ip-masq=1",
            "--kube-subnet-mgr=1",
        ]
        agent.server.out(f"flanneld manages the network {network['Name']}")
        await agent.run_node_program(argv, NODE_NAME=context.network.hostname)

    agent.server.spawn(main())
    return agent.server


def csi_proxy(context: ProgramContext) -> Program:
    """csi-proxy as a HostProcess container: the node has its named pipes while it runs."""
    agent = _Agent(context)
    if not agent.in_host_process():
        return agent.fail("csi-proxy needs a HostProcess container")
    node = context.node
    assert node is not None
    files = node.mounts
    install_csi_proxy(files, True)
    agent.server.at_end(lambda: install_csi_proxy(files, False))
    agent.server.out("Starting CSI-Proxy Server ...")
    return agent.server


def node_agent(context: ProgramContext) -> Program:
    """Images of Calico and flannel that have nothing to do here. Their commands that install or
    check something end at once.
    """
    windows = context.os == "windows"
    server, argv = ServerProgram(context), context.argv
    words = " ".join(argv).lower()
    base = (ntpath if windows else posixpath).basename(argv[0]).lower().removesuffix(".exe")
    if "install" in words or base == "cp":
        if windows:
            _install_calico(context)
        server.out(f"{context.image.name} is simulated: nothing to install")
        server.exit(0)
    elif _ends_at_once(base, argv[1:]):
        server.exit(0)
    else:
        server.out(f"{context.image.name} is simulated: the node's own agents manage its network")
        _serve_health(context, server)
    return server


def _ends_at_once(program: str, arguments: Sequence[str]) -> bool:
    """Whether it checks, prepares or ends something. In current releases Calico has one program:
    `calico component kube-controllers` runs until it is stopped, with one more word or a flag, as
    in `calico component node health --felix-live`, it ends.
    """
    if program == "calico":
        return len(arguments) > _COMPONENT_WORDS
    return program in ("calico-node", "check-status", "calico-ipam") and bool(arguments)


def _serve_health(context: ProgramContext, server: ServerProgram) -> None:
    """flanneld's `--healthz-port`."""
    given = (word.partition("=") for word in context.argv)
    port = next((value for name, _, value in given if name.lstrip("-") == "healthz-port"), "0")

    async def healthy(_: ProgramHttpRequest) -> ProgramHttpResponse:
        return ProgramHttpResponse(200, b"ok")

    if port.isdigit() and int(port):
        try:
            server.serve(int(port), healthy)
        except OSError as problem:
            server.err(f"Start healthz server error. {problem}")


def _install_calico(context: ProgramContext) -> None:
    node = context.node
    files = node.mounts if node is not None else context.files
    files.mkdir(_CALICO + r"\cni")
    for name in _CALICO_FILES:
        files.write(_CALICO + name, b"MZ")
