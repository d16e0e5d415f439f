"""The flanneld program: from its command line to flannel's agent on a node, or to the message with
which it exits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container
from typing import Final

from transom.kit.regexp import RegexpError, compile_regexp
from transom.machines.smallfiles import read_small_file
from transom.machines.windows.hns import HnsError
from transom.network.cni import flannelconf
from transom.network.cni.flannelconf import FlannelError
from transom.network.cni.flanneld import Flanneld
from transom.network.cni.plugin import CniError
from transom.network.stacks import NetworkLink
from transom.node.network import NodeNetwork
from transom.node.programs.flags import flanneld as flags
from transom.node.programs.flags.golang import FlagError, FlagKind
from transom.node.programs.flags.klog import KlogSettings
from transom.node.programs.log import ERROR, WARNING, ProgramLog
from transom.node.programs.logged_client import connection_refused_text
from transom.node.programs.start import (
    UNUSED,
    BadKubeconfig,
    ProgramExit,
    ProgramStart,
    StartedProgram,
    exit_failed,
)

_cluster_log = logging.getLogger("transom.network")

_BEGIN: Final = "Failed to create SubnetManager: "
_SYNC_SECONDS: Final = 600.0  # how long flanneld waits for its first list of Nodes
_NO_POD: Final = "env variables POD_NAME and POD_NAMESPACE must be set"
_IN_CLUSTER: Final = (
    "Neither --kubeconfig nor --master was specified.  Using the inClusterConfig.  This might not "
    "work."
)
_NOT_MATCHED: Final = (
    "Failed to find interface to use that matches the interfaces and/or regexes provided"
)
_ETCD: Final = (
    "Couldn't fetch network config: client: etcd cluster is unavailable or misconfigured; error "
    "#0: dial tcp {address}: connectex: No connection could be made because the target machine "
    "actively refused it."
)


def start_flanneld(start: ProgramStart, others: Callable[[], bool]) -> StartedProgram:
    """A second instance on the node does the same work as the first. When it ends, the first
    continues if it still runs (`others`). Raises ProgramExit.
    """
    try:
        texts = flags.parse_flanneld_flags(start.argv).texts
        parsed = flags.parse_flanneld_flags([*_from_environment(start, texts), *start.argv])
        given = flags.flanneld_flags(parsed)
    except FlagError as problem:
        start.print(f"{problem}\nUsage: {start.program} [OPTION]...\n{_usage()}")
        raise ProgramExit(0) from None  # it exits after printing its usage, whatever the reason
    network = start.node.network
    if given.version:
        start.print(f"v{network.shared.settings.flannel_version.removeprefix('v')}\n")
        raise ProgramExit(0)
    log = start.open_log(KlogSettings(verbosity=given.verbosity))
    if given.unused:
        unused = " ".join(f"--{name}" for name in given.unused)
        log.line(WARNING, "main.go:214", UNUSED % unused)
    if network.plugin != "flannel":
        text = f"simulated: the network of this node is made by {network.plugin}, not by flannel"
        exit_failed(log, "main.go:214", text)
    interface = _interface(network, log, given)
    if not given.kube_subnet_manager:
        manager = f"Etcd Local Manager with Previous Subnet: None ({given.etcd})"
        log.info("main.go:244", f"Created subnet manager: {manager}")
        return StartedProgram(log, lambda: _retry_etcd(start, log, given))
    server = _server(start, log, given)
    if not start.reaches(server):
        return StartedProgram(log, lambda: _wait_for_nodes(start, log, server), unreachable=server)
    before = network.agent
    agent, cidr, node = _subnet_manager(start, log, given, interface)
    _register(start, log, agent, cidr, given)

    def close() -> None:
        if network.agent is agent:
            network.stop_agent()
            if before is not None and others():
                network.use_agent(before)

    start.node.publish_network(node)
    return StartedProgram(
        log,
        None if start.at_boot else lambda: _run(log),
        close=close,
        attach=log.attach,
        server=server,
    )


def _from_environment(start: ProgramStart, given: Container[str]) -> list[str]:
    """Each flag that was not given can be set by an environment variable."""
    if start.at_boot:
        return []
    found = {
        name: start.variable("FLANNELD_" + name.upper().replace("-", "_"))
        for name in flags.TABLE
        if name not in given
    }
    return [f"-{name}={value}" for name, value in found.items() if value]


def _usage() -> str:
    def describe(kind: FlagKind) -> str:
        return f" {kind.shown}" if kind.shown else ""

    return "".join(f"  -{name}{describe(kind)}\n" for name, kind in sorted(flags.TABLE.items()))


# ---- interfaces ----


def _interface(network: NodeNetwork, log: ProgramLog, given: flags.FlanneldFlags) -> str:
    """The first of the given interfaces that exists."""
    for name in given.interfaces:
        log.info("main.go:494", f"Searching for interface using {name}")
        agent = network.flanneld(interface=name, log=lambda text: log.info("main.go:222", text))
        try:
            link = agent.link()
        except FlannelError as problem:
            if str(problem) != _NOT_MATCHED:
                exit_failed(log, "main.go:289", f"Error fetching backend: {problem}")
            continue
        return _use_interface(log, link, network.address)
    for pattern in given.patterns:
        found = _matching(network, pattern)
        if found is not None:
            return _use_interface(log, found, network.address)
        links = network.stack.links.values()
        listed = ", ".join(f"{link.name}:{_first_address(link)}" for link in links)
        reason = (
            f"Could not match pattern {pattern} to any of the available network interfaces "
            f"({listed})"
        )
        log.info("main.go:230", f"Could not find valid interface matching {pattern}: {reason}")
    if given.interfaces or given.patterns:
        exit_failed(log, "main.go:237", _NOT_MATCHED)
    log.info("main.go:543", "Determining IP address of default interface")
    return network.address


def _use_interface(log: ProgramLog, link: NetworkLink, address: str) -> str:
    found = f"name {link.name} and address {_first_address(link)}"
    log.info("main.go:556", f"Using interface with {found}")
    log.info("main.go:573", f"Defaulting external address to interface address ({address})")
    return link.name


def _matching(network: NodeNetwork, pattern: str) -> NetworkLink | None:
    try:
        compiled = compile_regexp(pattern)
    except RegexpError:
        return None
    links = [link for link in network.stack.links.values() if link.addresses]
    by_address = (link for link in links if compiled.match_string(_first_address(link)))
    by_name = (link for link in links if compiled.match_string(link.name))
    return next(by_address, None) or next(by_name, None)


def _first_address(link: NetworkLink) -> str:
    return str(link.addresses[0].ip) if link.addresses else "<nil>"


# ---- leases ----


def _server(start: ProgramStart, log: ProgramLog, given: flags.FlanneldFlags) -> str:
    begin = f"{_BEGIN}fail to create kubernetes config: "
    if not given.kubeconfig:
        log.line(WARNING, "client_config.go:541", _IN_CLUSTER)
        reason = "invalid configuration: no configuration has been provided"
        exit_failed(log, "main.go:243", f"{begin}{reason}")
    try:
        return start.server(given.kubeconfig)
    except BadKubeconfig as problem:
        exit_failed(log, "main.go:243", f"{begin}{problem}")


def _subnet_manager(
    start: ProgramStart, log: ProgramLog, given: flags.FlanneldFlags, interface: str
) -> tuple[Flanneld, str, str]:
    node = start.variable("NODE_NAME")
    if not node:
        exit_failed(log, "main.go:243", _BEGIN + _NO_POD)
    try:
        conf = flannelconf.parse_flannel_conf(
            read_small_file(start.files, start.path(given.net_conf))
        )
    except OSError as problem:
        reason = start.rules.file_error("open", given.net_conf, problem)
        exit_failed(log, "main.go:243", f"{_BEGIN}failed to read net conf: {reason}")
    except FlannelError as problem:
        exit_failed(log, "main.go:243", f"{_BEGIN}{problem}")
    log.info("kube.go:116", "Waiting 10m0s for node controller to sync")
    log.info("kube.go:299", "Starting kube subnet manager")
    log.info("kube.go:123", "Node controller sync successful")
    log.info("main.go:244", f"Created subnet manager: Kubernetes Subnet Manager - {node}")
    log.info("main.go:386", f"Found network config - Backend type: {conf.backend}")
    if start.node.is_other_node(node):
        text = f"simulated: NODE_NAME is {node}, which is another machine of this cluster"
        exit_failed(log, "main.go:289", text)
    cidr = start.node.cluster.pod_cidr(node)
    if cidr is None:
        reason = f'failed to acquire lease: node "{node}" not found'
        exit_failed(log, "main.go:289", f"Error registering network: {reason}")
    network = start.node.network
    agent = network.flanneld(
        interface=interface if interface in network.stack.links else "",
        masquerade=given.masquerade,
        log=_agent_log(start, log),
        conf=conf,
        subnet_file=given.subnet_file,
    )
    return agent, cidr, node


def _agent_log(start: ProgramStart, log: ProgramLog) -> Callable[[str], None]:
    """Logs of an agent that was started at boot also go to the cluster's log."""

    def write(text: str) -> None:
        if start.at_boot:
            _cluster_log.info("%s", text)
        log.info("flanneld.go:90", text)

    return write


def _register(
    start: ProgramStart, log: ProgramLog, agent: Flanneld, cidr: str, given: flags.FlanneldFlags
) -> None:
    network = start.node.network
    try:
        agent.start(network.subnets([part for part in cidr.split(",") if part]))
        network.use_agent(agent)
        network.network_made(cidr, at_boot=start.at_boot)
    except (FlannelError, HnsError, CniError) as problem:
        network.network_failed(str(problem), at_boot=start.at_boot)
        exit_failed(log, "main.go:289", f"Error registering network: {problem}")
    log.info("main.go:317", f"Wrote subnet file to {given.subnet_file}")
    log.info("main.go:321", "Running backend.")


# ---- running ----


async def _run(log: ProgramLog) -> int:
    log.info("main.go:342", "Waiting for all goroutines to exit")
    await asyncio.Event().wait()
    return 0


async def _wait_for_nodes(start: ProgramStart, log: ProgramLog, server: str) -> int:
    """No API server answers at the address in its kubeconfig."""
    log.info("kube.go:116", "Waiting 10m0s for node controller to sync")
    url = (
        f"Get {server}/api/v1/nodes?limit=500&resourceVersion=0: {connection_refused_text(server)}"
    )
    log.line(ERROR, "reflector.go:201", f"Failed to list *v1.Node: {url}")
    await start.node.machine.clock.sleep(_SYNC_SECONDS)
    reason = "timed out waiting for the condition"
    text = f"{_BEGIN}error waiting for nodeController to sync state: {reason}"
    log.line(ERROR, "main.go:243", text)
    return 1


async def _retry_etcd(start: ProgramStart, log: ProgramLog, given: flags.FlanneldFlags) -> int:
    """There is no etcd; flanneld retries forever."""
    address = given.etcd.split(",")[0].partition("//")[2]
    while True:
        log.line(ERROR, "main.go:382", _ETCD.format(address=address))
        start.print("timed out\n")
        await start.node.machine.clock.sleep(1.0)
