"""A node, two pods, another node's pod and a client outside, as network namespaces with real
sockets.

Every namespace belongs to a process that ends when this one does, however it ends: nothing is left
behind, and no link leads to the machine's own network.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest

T = TypeVar("T")
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
TOOLS = ("nft", "ip", "unshare", "nsenter", "conntrack")
_CLONE_NEWNET = 0x40000000

needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or not all(shutil.which(tool, path=PATH) for tool in TOOLS),
    reason="builds network namespaces: needs root, nft, ip and conntrack",
)


class Namespace:
    """One network namespace, and a thread that lives in it: sockets made there stay there."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.holder = subprocess.Popen(
            ["unshare", "-n", "sh", "-c", "echo; exec cat"], stdin=-1, stdout=-1
        )
        assert self.holder.stdout is not None
        self.holder.stdout.readline()
        self._thread = ThreadPoolExecutor(1, initializer=self._enter)
        self._closing: list[socket.socket] = []
        self.run("ip link set lo up")

    def _enter(self) -> None:
        with open(f"/proc/{self.holder.pid}/ns/net") as handle:
            if ctypes.CDLL(None, use_errno=True).setns(handle.fileno(), _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")

    def run(self, command: str, text: str = "", *, check: bool = True) -> str:
        done = subprocess.run(
            ["nsenter", "-t", str(self.holder.pid), "-n", *command.split()],
            input=text,
            text=True,
            capture_output=True,
            check=False,
            env={**os.environ, "PATH": PATH},
        )
        assert not check or done.returncode == 0, f"{self.name}: {command}: {done.stderr}{text}"
        return done.stdout

    def inside(self, action: Callable[[], T]) -> T:
        return self._thread.submit(action).result(20)

    # ---- programs ----

    def serve(self, port: int, kind: socket.SocketKind = socket.SOCK_STREAM) -> None:
        """Answers everybody with this namespace's name and the client's address."""

        def bound() -> socket.socket:
            made = socket.socket(socket.AF_INET, kind)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind(("0.0.0.0", port))
            return made

        server = self.inside(bound)
        self._closing.append(server)
        if kind == socket.SOCK_STREAM:
            server.listen(64)
        threading.Thread(target=self._answer, args=(server, kind), daemon=True).start()

    def _answer(self, server: socket.socket, kind: socket.SocketKind) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                if kind == socket.SOCK_STREAM:
                    connection, peer = server.accept()
                    with connection:
                        connection.sendall(f"{self.name} {peer[0]}".encode())
                else:
                    _, peer = server.recvfrom(100)
                    if peer is None:  # shut down
                        return
                    server.sendto(f"{self.name} {peer[0]}".encode(), peer)

    def ask(
        self,
        address: str,
        port: int,
        *,
        udp: socket.socket | None = None,
        timeout: float = 5,
        source: str = "",
    ) -> str:
        """ "server client" as the server saw it, "refused", or "silence"."""

        def call() -> str:
            made = udp or socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            try:
                made.settimeout(timeout)
                if source:
                    made.bind((source, 0))
                made.connect((address, port))
                if udp is not None:
                    made.send(b"?")
                return made.recv(100).decode()
            except ConnectionRefusedError:
                return "refused"
            except TimeoutError:
                return "silence"
            finally:
                if udp is None:
                    made.close()

        return self.inside(call)

    def datagrams(self) -> socket.socket:
        made = self.inside(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        self._closing.append(made)
        return made

    def close(self) -> None:
        for open_socket in self._closing:
            with contextlib.suppress(OSError):
                open_socket.shutdown(socket.SHUT_RDWR)  # wakes the thread in accept
            open_socket.close()
        self._thread.shutdown()
        assert self.holder.stdin is not None
        self.holder.stdin.close()
        self.holder.wait(10)


QUIET = 0.4  # long enough for an answer inside one machine
"""Seconds to wait where no answer is expected."""


class Lab:
    """The node routes between its pods, the other node's pod, and the outside. Pods have their own
    link each.
    """

    NODE_IP, CLIENT = "172.18.0.2", "203.0.113.10"

    def __init__(self) -> None:
        self._made: list[Namespace] = []
        self.node = self._add("node")
        self.outside = self._add("outside")
        self.pods: dict[str, Namespace] = {}
        node = self.node
        for setting in (
            "net.ipv4.ip_forward=1",
            "net.ipv4.conf.all.route_localnet=1",
            "net.ipv4.conf.all.rp_filter=0",
        ):
            node.run(f"sysctl -qw {setting}")
        self._veth(self.outside, "eth0", "172.18.0.1/24", "172.18.0.2/24")
        self.outside.run("ip addr add 203.0.113.10/32 dev lo")
        # The world outside knows the way to services and external addresses, and none to pods.
        for destination in ("10.96.0.0/16", "198.51.100.0/24"):
            self.outside.run(f"ip route add {destination} via 172.18.0.2 src 203.0.113.10")
        node.run("ip route add default via 172.18.0.1")

    def pod(self, name: str, address: str) -> Namespace:
        pod = self.pods[name] = self._add(name)
        link = f"veth-{name}"
        self._veth(pod, link, f"{address}/32", "10.244.1.1/32")
        self.node.run(f"ip route add {address}/32 dev {link}")
        pod.run("ip route add 10.244.1.1/32 dev eth0")
        pod.run("ip route add default via 10.244.1.1")
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            pod.serve(8080, kind)
        return pod

    def load(self, script: str) -> None:
        self.node.run("nft -f -", script)

    def close(self) -> None:
        for namespace in reversed(self._made):
            namespace.close()

    def _add(self, name: str) -> Namespace:
        made = Namespace(name)
        self._made.append(made)
        return made

    def _veth(self, peer: Namespace, link: str, theirs: str, ours: str) -> None:
        self.node.run(f"ip link add {link} type veth peer name eth0 netns {peer.holder.pid}")
        self.node.run(f"ip addr add {ours} dev {link}")
        self.node.run(f"ip link set {link} up")
        peer.run(f"ip addr add {theirs} dev eth0")
        peer.run("ip link set eth0 up")
