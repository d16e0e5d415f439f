"""Applies plans to namespaces, with as few messages to the kernel as the difference needs.

Runs in the thread of a `NamespaceVisitor`. Depends on plans, not on stacks. What the kernel rejects
is reported, and retried the next time the plan of that namespace is applied.
"""

from __future__ import annotations

import errno
import itertools
import os
import threading
from collections.abc import Iterable, Mapping

from transom.network.kernel import firewall, netlink, stale
from transom.network.kernel.arrange import (
    NamespaceContent,
    Step,
    arrange_devices,
    take_index,
    undo_nothing,
)
from transom.network.kernel.namespaces import NamespaceVisitor, NetworkNamespaceHandle
from transom.network.kernel.plan import UNDERLAY, UNDERLAY_BRIDGE, PlannedDevice, StackPlan
from transom.network.nft_text import nft_difference

_GONE_GROUP = 0x676F6E65
_GONE = (errno.ENOENT, errno.ESRCH, errno.ENODEV, errno.EADDRNOTAVAIL)
_SYSCTLS = {
    "net/ipv4/conf/all/rp_filter": "0",
    "net/ipv4/conf/default/rp_filter": "0",
    "net/ipv4/conf/all/send_redirects": "0",
    "net/ipv4/conf/default/send_redirects": "0",
    "net/ipv4/conf/all/promote_secondaries": "1",
    # every unreachable destination is reported, without a rate limit
    "net/ipv4/icmp_ratelimit": "0",
    "net/ipv6/icmp/ratelimit": "0",
    "net/ipv4/ping_group_range": "0 2147483647",
    "net/ipv4/ip_unprivileged_port_start": "0",
    "net/ipv6/conf/all/disable_ipv6": "0",
    "net/ipv6/conf/default/disable_ipv6": "0",
    "net/ipv6/conf/default/accept_dad": "0",
    "net/ipv6/conf/default/accept_ra": "0",
    "net/bridge/bridge-nf-call-iptables": "0",
    "net/bridge/bridge-nf-call-ip6tables": "0",
}
"""For every namespace, because it may have inherited the machine's own settings."""


class Applier:
    def __init__(self, visitor: NamespaceVisitor, sweeper: NamespaceVisitor) -> None:
        self._visitor = visitor
        self._sweeper = sweeper
        self._plans: dict[str, StackPlan] = {}
        self._made: dict[str, NamespaceContent] = {}
        self._lock = threading.Lock()
        self._numbers = itertools.count(2)
        self.problems: list[str] = []  # of the last call
        # stack -> path of an existing namespace to use, because processes run in it
        self.adopted: dict[str, str] = {}

    def namespace(self, stack: str, visitor: NamespaceVisitor) -> NetworkNamespaceHandle:
        """Creates it if it does not exist. Call it only in the visitor's thread, which may differ
        from the applier's.
        """
        with self._lock:
            made = self._made.get(stack)
            if made is None:
                made = self._made[stack] = NamespaceContent(
                    self._found(stack, visitor) or visitor.create(), self._numbers
                )
                for path, value in _SYSCTLS.items():
                    _write(path, value)
                netlink.send_netlink([netlink.set_link_up(1, "lo")])
        return made.namespace

    def _found(self, stack: str, visitor: NamespaceVisitor) -> NetworkNamespaceHandle | None:
        path = self.adopted.pop(stack, "")
        if not path:
            return None
        try:
            found = NetworkNamespaceHandle(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        except OSError:  # its processes have ended in the meantime
            return None
        visitor.enter(found)
        return found

    def apply(self, changes: Mapping[str, StackPlan | None]) -> list[str]:
        """New plans by stack, None for a removed stack. Returns what failed."""
        self.problems = []
        touched = set(changes)
        for stack, plan in changes.items():
            self._plug(stack, plan, touched)
            if plan is None:
                self._plans.pop(stack, None)
                self._remove(stack, touched)
            else:
                self._plans[stack] = plan
                self.namespace(stack, self._visitor)
        for stack in list(touched):
            self._delete_stale_devices(stack, touched)
        for stack in list(touched):
            self._make_devices(stack, touched)
        for stack in touched:
            self._arrange(stack)
        return self.problems

    def close(self) -> None:
        """Everything is removed with the namespaces."""
        for made in self._made.values():
            made.namespace.close()
        self._made.clear()
        self._plans.clear()

    # ---- devices ----

    def _plug(self, stack: str, plan: StackPlan | None, touched: set[str]) -> None:
        """The underlay has a port for each device that connects to it."""
        underlay = self._plans.get(UNDERLAY)
        if underlay is None:
            underlay = self._plans[UNDERLAY] = StackPlan(
                devices={UNDERLAY_BRIDGE: PlannedDevice("bridge")}
            )
            self.namespace(UNDERLAY, self._visitor)
            touched.add(UNDERLAY)
        old = self._plans.get(stack)
        before = {} if old is None else _plugs(stack, old)
        now = {} if plan is None else _plugs(stack, plan)
        if before != now:
            touched.add(UNDERLAY)
            for name in before.keys() - now.keys():
                underlay.devices.pop(name, None)
            underlay.devices.update(now)

    def _remove(self, stack: str, touched: set[str]) -> None:
        """Removing a namespace removes its content, but sockets may keep it alive, so veth pairs
        are deleted at the far end.
        """
        made = self._made.get(stack)
        if made is None:
            return
        for name, device in list(made.devices.items()):
            far = self._made.get(device.peer[0]) if device.kind == "veth" else None
            if far is not None and device.peer[1] in far.devices:
                self._delete_devices(device.peer[0], [device.peer[1]], touched)
                touched.add(device.peer[0])
            made.lost_device(name)
        with self._lock:
            del self._made[stack]
        made.namespace.close()

    def _delete_stale_devices(self, stack: str, touched: set[str]) -> None:
        made, plan = self._made.get(stack), self._plans.get(stack)
        if made is None or plan is None:
            return
        unwanted = [
            name
            for name, device in made.devices.items()
            if (wanted := plan.devices.get(name)) is None
            or wanted.creation_key != device.creation_key
        ]
        self._delete_devices(stack, unwanted, touched)

    def _delete_devices(self, stack: str, names: Iterable[str], touched: set[str]) -> None:
        """Renames them immediately and deletes them a little later, because the kernel takes tens
        of milliseconds to remove a device.
        """
        made = self._made[stack]
        steps: list[Step] = []
        for name in names:
            device, index = made.devices[name], made.indexes[name]
            steps += [
                (netlink.set_link_down(index, name), undo_nothing),
                (netlink.set_link_aside(index, name, _GONE_GROUP), undo_nothing),
            ]
            made.lost_device(name)
            far = self._made.get(device.peer[0]) if device.kind == "veth" else None
            if far is not None and device.peer[1] in far.devices:
                far.lost_device(device.peer[1])
                touched.add(device.peer[0])
        if steps:
            self._send(stack, steps)
            self._sweeper.inside(made.namespace, _sweep)

    def _make_devices(self, stack: str, touched: set[str]) -> None:
        made, plan = self._made.get(stack), self._plans.get(stack)
        if made is None or plan is None:
            return
        steps: list[Step] = []
        for name, device in plan.devices.items():
            if name in made.devices:
                continue
            if device.kind == "veth":
                step = self._pair(stack, name, device, touched)
                if step is not None:
                    steps.append(step)
                continue
            index = take_index(made, name, device)
            if device.kind == "bridge":
                message = netlink.add_bridge(index, name, device.mac, device.mtu)
            else:
                message = netlink.add_vxlan(
                    index,
                    name,
                    device.mac,
                    device.mtu,
                    vni=device.vni,
                    port=device.port,
                    local=device.local,
                )
            steps.append((message, lambda name=name: made.lost_device(name)))  # type: ignore[misc]
        self._send(stack, steps)

    def _pair(self, stack: str, name: str, device: PlannedDevice, touched: set[str]) -> Step | None:
        """Creates both ends together, as soon as both are wanted."""
        far_stack, far_name = device.peer
        far_plan, far_made = self._plans.get(far_stack), self._made.get(far_stack)
        far = far_plan.devices.get(far_name) if far_plan is not None else None
        if far is None or far_made is None or far.peer != (stack, name):
            return None
        made = self._made[stack]
        message = netlink.add_veth(
            netlink.VethEnd(
                made.namespace.descriptor,
                take_index(made, name, device),
                name,
                device.mac,
                device.mtu,
            ),
            netlink.VethEnd(
                far_made.namespace.descriptor,
                take_index(far_made, far_name, far),
                far_name,
                far.mac,
                far.mtu,
            ),
        )
        touched.add(far_stack)

        def undo() -> None:
            made.lost_device(name)
            far_made.lost_device(far_name)

        return message, undo

    # ---- other settings of a namespace ----

    def _arrange(self, stack: str) -> None:
        made, plan = self._made.get(stack), self._plans.get(stack)
        if made is None or plan is None:
            return
        self._send(stack, arrange_devices(made, plan))
        if made.sysctls != plan.sysctls:
            self._visitor.enter(made.namespace)
            for path, value in plan.sysctls.items():
                if made.sysctls.get(path) != value:
                    _write(path, value)
            made.sysctls = dict(plan.sysctls)
        if made.tables != plan.tables:
            self._tables(stack, made, plan)

    def _tables(self, stack: str, made: NamespaceContent, plan: StackPlan) -> None:
        self._visitor.enter(made.namespace)
        for key in made.tables.keys() | plan.tables.keys():
            old, new = made.tables.get(key), plan.tables.get(key)
            if old is new:
                continue
            text = nft_difference(old, new)
            try:
                if text:
                    firewall.run_nft(text)
            except firewall.FirewallError as error:
                self.problems.append(f"{stack}: table {key}: {error}")
                continue
            if new is None:
                del made.tables[key]
            else:
                made.tables[key] = new
            lost = stale.lost_targets(old, new)
            if lost:
                stale.forget_connections(lost)

    def _send(self, stack: str, steps: list[Step]) -> None:
        if not steps:
            return
        self._visitor.enter(self._made[stack].namespace)
        undo = {id(message): back for message, back in steps}
        for refused in netlink.send_netlink([message for message, _ in steps]):
            undo[id(refused.message)]()
            if refused.error not in _GONE or not refused.message.removes:
                self.problems.append(f"{stack or 'underlay'}: {netlink.refusal_reason(refused)}")


def _plugs(stack: str, plan: StackPlan) -> dict[str, PlannedDevice]:
    return {
        device.peer[1]: PlannedDevice(
            "veth", mtu=device.mtu, master=UNDERLAY_BRIDGE, peer=(stack, name)
        )
        for name, device in plan.devices.items()
        if device.kind == "veth" and device.peer[0] == UNDERLAY
    }


def _sweep() -> None:
    # nothing to delete: an earlier deletion included it
    netlink.send_netlink([netlink.delete_group(_GONE_GROUP)])


def _write(path: str, value: str) -> None:
    """Writes a setting of the thread's namespace. Settings that this kernel does not have are not
    needed either.
    """
    try:
        with open(f"/proc/sys/{path}", "w") as file:
            file.write(value)
    except FileNotFoundError:
        return
