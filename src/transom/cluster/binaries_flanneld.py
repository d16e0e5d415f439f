"""flanneld.exe: from a command line to flannel's agent on a machine of the fleet, or to the words with which it refuses."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Container
from typing import TYPE_CHECKING, Final

from transom.cluster.binaries_client import refused
from transom.cluster.binaries_start import UNUSED, BadKubeconfig, Ended, Running, Start, failed
from transom.cluster.flags import flanneld as flags
from transom.cluster.flags.golang import FlagError, Kind
from transom.cluster.flags.klog import Logging
from transom.cluster.nodelog import ERROR, WARNING, NodeLog
from transom.hosts.windows.hns import HnsError
from transom.kubelet.os_windows import RULES
from transom.network.cni import flannelconf
from transom.network.cni.flannelconf import FlannelError

if TYPE_CHECKING:
    from transom.cluster.nodenet import NodeNet
    from transom.network.cni.flanneld import Flanneld
    from transom.network.stacks import Link

_VERSION: Final = "v0.13.0"
_BEGIN: Final = "Failed to create SubnetManager: "
_PATIENCE: Final = 600.0  # seconds until Nodes must have been heard of
_NO_POD: Final = "env variables POD_NAME and POD_NAMESPACE must be set"
_INSIDE: Final = "Neither --kubeconfig nor --master was specified.  Using the inClusterConfig.  This might not work."
_NOT_MATCHED: Final = "Failed to find interface to use that matches the interfaces and/or regexes provided"
_ETCD: Final = (
    "Couldn't fetch network config: client: etcd cluster is unavailable or misconfigured; error #0: dial tcp {address}: "
    "connectex: No connection could be made because the target machine actively refused it."
)


def start(given: Start, others: Callable[[], bool]) -> Running:
    """A second one on the machine does what the first did, which goes on when the second ends, if it still runs (`others`).
    Raises Ended."""
    try:
        said = flags.parse(given.argv).texts
        parsed = flags.parse([*_from_environment(given, said), *given.argv])
        wanted = flags.wanted(parsed)
    except FlagError as problem:
        given.say(f"{problem}\nUsage: {given.program} [OPTION]...\n{_usage()}")
        raise Ended(0) from None  # its usage ends it, whatever the reason
    if wanted.version:
        given.say(_VERSION + "\n")
        raise Ended(0)
    log = given.log(Logging(verbosity=wanted.verbosity))
    if wanted.unused:
        log.line(WARNING, "main.go:214", UNUSED % " ".join(f"--{name}" for name in wanted.unused))
    net = given.machine.network
    if net.plugin != "flannel":
        failed(log, "main.go:214", f"simulated: the network of this node is made by {net.plugin}, not by flannel")
    interface = _interface(net, log, wanted)
    if not wanted.kube_subnet_manager:
        log.info("main.go:244", f"Created subnet manager: Etcd Local Manager with Previous Subnet: None ({wanted.etcd})")
        return Running(lambda: _without_etcd(given, log, wanted), log)
    server = _server(given, log, wanted)
    if not given.reaches(server):
        return Running(lambda: _unheard(given, log, server), log)
    before = net.agent
    agent, cidr, node = _subnet_manager(given, net, log, wanted, interface)
    _register(net, log, agent, cidr, wanted)

    def close() -> None:
        if net.agent is agent:
            net.stop_agent()
            if before is not None and others():
                net.use_agent(before)

    given.fleet.announce(given.machine, node)
    return Running(lambda: _life(log), log, close=close)


def _from_environment(given: Start, said: Container[str]) -> list[str]:
    """Each flag that was not given has a variable."""
    found = {n: given.variable("FLANNELD_" + n.upper().replace("-", "_")) for n in flags.TABLE if n not in said}
    return [f"-{name}={value}" for name, value in found.items() if value]


def _usage() -> str:
    def shown(kind: Kind) -> str:
        return f" {kind.shown}" if kind.shown else ""

    return "".join(f"  -{name}{shown(kind)}\n" for name, kind in sorted(flags.TABLE.items()))


# ---- interfaces ------------------------------------------------------------------------------------------------------


def _interface(net: NodeNet, log: NodeLog, wanted: flags.Wanted) -> str:
    """Of those that were named, the first that is there."""
    for named in wanted.interfaces:
        log.info("main.go:494", f"Searching for interface using {named}")
        agent = net.flanneld(interface=named, log=lambda text: log.info("main.go:222", text))
        try:
            link = agent.link()
        except FlannelError as problem:
            if str(problem) != _NOT_MATCHED:
                failed(log, "main.go:289", f"Error fetching backend: {problem}")
            continue
        return _use(log, link, net.address)
    for pattern in wanted.patterns:
        found = _matching(net, pattern)
        if found is not None:
            return _use(log, found, net.address)
        listed = ", ".join(f"{link.name}:{_first(link)}" for link in net.stack.links.values())
        why = f"Could not match pattern {pattern} to any of the available network interfaces ({listed})"
        log.info("main.go:230", f"Could not find valid interface matching {pattern}: {why}")
    if wanted.interfaces or wanted.patterns:
        failed(log, "main.go:237", _NOT_MATCHED)
    log.info("main.go:543", "Determining IP address of default interface")
    return net.address


def _use(log: NodeLog, link: Link, address: str) -> str:
    log.info("main.go:556", f"Using interface with name {link.name} and address {_first(link)}")
    log.info("main.go:573", f"Defaulting external address to interface address ({address})")
    return link.name


def _matching(net: NodeNet, pattern: str) -> Link | None:
    try:
        wanted = re.compile(pattern)
    except re.error:
        return None
    links = [link for link in net.stack.links.values() if link.addresses]
    by_address = next((link for link in links if wanted.search(_first(link))), None)
    return by_address or next((link for link in links if wanted.search(link.name)), None)


def _first(link: Link) -> str:
    return str(link.addresses[0].ip) if link.addresses else "<nil>"


# ---- leases ----------------------------------------------------------------------------------------------------------


def _server(given: Start, log: NodeLog, wanted: flags.Wanted) -> str:
    begin = f"{_BEGIN}fail to create kubernetes config: "
    if not wanted.kubeconfig:
        log.line(WARNING, "client_config.go:541", _INSIDE)
        failed(log, "main.go:243", f"{begin}invalid configuration: no configuration has been provided")
    try:
        return given.server(wanted.kubeconfig)
    except BadKubeconfig as problem:
        failed(log, "main.go:243", f"{begin}{problem}")


def _subnet_manager(
    given: Start, net: NodeNet, log: NodeLog, wanted: flags.Wanted, interface: str
) -> tuple[Flanneld, str, str]:
    node = given.variable("NODE_NAME")
    if not node:
        failed(log, "main.go:243", _BEGIN + _NO_POD)
    try:
        conf = flannelconf.parse(given.files.read(given.path(wanted.net_conf)))
    except OSError as error:
        failed(log, "main.go:243", f"{_BEGIN}failed to read net conf: {RULES.file_error('open', wanted.net_conf, error)}")
    except FlannelError as error:
        failed(log, "main.go:243", f"{_BEGIN}{error}")
    log.info("kube.go:116", "Waiting 10m0s for node controller to sync")
    log.info("kube.go:299", "Starting kube subnet manager")
    log.info("kube.go:123", "Node controller sync successful")
    log.info("main.go:244", f"Created subnet manager: Kubernetes Subnet Manager - {node}")
    log.info("main.go:386", f"Found network config - Backend type: {conf.backend}")
    own = given.machine.kubelet
    if node in given.fleet.names() - {given.machine.spec.name, own.env.config.node_name if own is not None else ""}:
        failed(log, "main.go:289", f"simulated: NODE_NAME is {node}, which is another machine of this cluster")
    cidr = given.fleet.pod_cidr(node)
    if cidr is None:
        failed(log, "main.go:289", f'Error registering network: failed to acquire lease: node "{node}" not found')
    agent = net.flanneld(
        interface=interface if interface in net.stack.links else "", masquerade=wanted.masquerade,
        log=lambda text: log.info("flanneld.go:90", text), conf=conf, subnet_file=wanted.subnet_file,
    )  # fmt: skip
    return agent, cidr, node


def _register(net: NodeNet, log: NodeLog, agent: Flanneld, cidr: str, wanted: flags.Wanted) -> None:
    try:
        agent.start(net.subnets([part for part in cidr.split(",") if part]))
    except (FlannelError, HnsError) as problem:
        failed(log, "main.go:289", f"Error registering network: {problem}")
    net.use_agent(agent)
    net.network_made(cidr)
    log.info("main.go:317", f"Wrote subnet file to {wanted.subnet_file}")
    log.info("main.go:321", "Running backend.")


async def _life(log: NodeLog) -> int:
    log.info("main.go:342", "Waiting for all goroutines to exit")
    await asyncio.Event().wait()
    return 0


async def _unheard(given: Start, log: NodeLog, server: str) -> int:
    log.info("kube.go:116", "Waiting 10m0s for node controller to sync")
    url = f"Get {server}/api/v1/nodes?limit=500&resourceVersion=0: {refused(server)}"
    log.line(ERROR, "reflector.go:201", f"Failed to list *v1.Node: {url}")
    await given.machine.host.clock.sleep(_PATIENCE)
    late = "error waiting for nodeController to sync state: timed out waiting for the condition"
    log.line(ERROR, "main.go:243", _BEGIN + late)
    return 1


async def _without_etcd(given: Start, log: NodeLog, wanted: flags.Wanted) -> int:
    """It tries for ever."""
    address = wanted.etcd.split(",")[0].partition("//")[2]
    while True:
        log.line(ERROR, "main.go:382", _ETCD.format(address=address))
        given.say("timed out\n")
        await given.machine.host.clock.sleep(1.0)
