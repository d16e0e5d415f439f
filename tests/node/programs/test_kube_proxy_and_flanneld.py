"""kube-proxy.exe and flanneld.exe of a Windows node by their command lines: errors, effects, and
what remains when they stop.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.node.programs.simulated_node import NodeTestCluster, simulated_cluster
from tests.simulation.loop import VIRTUAL_LOOP

from transom.client.resources import NODES, PODS
from transom.machinery.releases import Release
from transom.node import spec as specs
from transom.node.network_settings import NetworkSettings


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL_LOOP


OVERLAY = NetworkSettings(mode="overlay")
DSR = 1  # of a load balancer's flags
ENV = r"C:\run\flannel\subnet.env"


@pytest.fixture(autouse=True)
def data_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


# ---- kube-proxy ----


@pytest.mark.windows("TRB-57", "TRB-60", "TRB-62")
async def test_load_balancers_stay_unchanged_without_kube_proxy() -> None:
    async with simulated_cluster() as cluster:
        await cluster.runs("a")
        old = await cluster.service("a")
        await cluster.clock.sleep(3)
        await cluster.stop("kube-proxy")
        assert cluster.balancers(old)  # although they were not read before
        await cluster.runs("b")
        new = await cluster.service("b")
        await cluster.clock.sleep(60)
        assert cluster.balancers(old) and not cluster.balancers(new)
        cluster.files.mkdir(r"C:\logs")
        printed = await cluster.relaunch("kube-proxy", r"--log-dir=C:\logs")
        await cluster.clock.sleep(3)
        assert cluster.balancers(old) and cluster.balancers(new)
        content = cluster.files.read(r"C:\logs\kube-proxy.exe.INFO").decode()
        assert "Using Kernelspace Proxier." in content and 'FLAG: --v="4"' in content
        # only from four on
        assert f"Hns LoadBalancer resource created for cluster resources {new}" in content
        assert "LoadBalancer" not in printed.text
        await cluster.relaunch("kube-proxy", r"--log-dir=C:\logs", "--v=2")
        await cluster.clock.sleep(3)
        assert "LoadBalancer" not in cluster.files.read(r"C:\logs\kube-proxy.exe.INFO").decode()


@pytest.mark.windows("TRB-89")
async def test_programs_started_at_boot_write_to_an_attached_terminal() -> None:
    async with simulated_cluster() as cluster:
        cluster.balancers("")
        assert await cluster.binaries.log("kube-proxy")
        await cluster.runs("a")
        ip = await cluster.service("a")
        await cluster.clock.sleep(3)
        assert cluster.balancers(ip)
        assert (
            "Waiting for the Network to be created"
            in (await cluster.binaries.log("flanneld")).decode()
        )
        assert (
            f"created for cluster resources {ip}"
            in cluster.files.read(r"C:\k\kube-proxy.exe.INFO").decode()
        )


async def test_a_reboot_ends_a_program_started_by_hand() -> None:
    async with simulated_cluster() as cluster:
        tracker = cluster.net.shared.endpoints
        printed = await cluster.relaunch("kube-proxy")
        await cluster.clock.sleep(1)
        assert tracker.listeners
        by_hand = cluster.net.proxier
        await cluster.pool.reboot("w")
        assert await printed.end() == 1
        await cluster.until(lambda: cluster.pool.is_ready("w"))
        assert (
            not tracker.listeners
            and cluster.net.proxier is not by_hand
            and cluster.net.proxier is not None
        )
        assert cluster.binaries.running("kube-proxy") is not None


@pytest.mark.windows("TRB-58")
async def test_other_modes_make_no_load_balancers() -> None:
    async with simulated_cluster() as cluster:
        await cluster.runs("a")
        ip = await cluster.service("a")
        for mode in ("userspace", ""):
            await cluster.stop("kube-proxy")
            for each in list(cluster.net.hns.loadbalancers):
                cluster.net.hns.delete("loadbalancer", each)
            printed = await cluster.relaunch(
                "kube-proxy", f"--proxy-mode={mode}", "--logtostderr=true"
            )
            await cluster.clock.sleep(5)
            assert "Using userspace Proxier." in printed.text and not cluster.balancers(ip)
        await cluster.relaunch("kube-proxy")
        await cluster.clock.sleep(5)
        assert cluster.balancers(ip)


@pytest.mark.windows("W-SVC-01")
async def test_the_user_space_mode_ends_with_1_25() -> None:
    async with simulated_cluster(release=Release(1, 26)) as cluster:
        await cluster.stop("kube-proxy")
        refused = await cluster.relaunch("kube-proxy", "--proxy-mode=userspace")
        assert "must be kernelspace or blank" in refused.text
        printed = await cluster.relaunch("kube-proxy", "--proxy-mode=")
        await cluster.clock.sleep(1)
        assert "Using Kernelspace Proxier." in printed.text


@pytest.mark.parametrize(("minor", "has_flags"), [(20, True), (25, True), (26, False), (36, False)])
async def test_klogs_flags_for_files_end_with_1_25(minor: int, has_flags: bool) -> None:
    """A kube-proxy without them starts without them, and its service keeps its output in a file."""
    async with simulated_cluster(release=Release(1, minor)) as cluster:
        usual = cluster.binaries.usual("kube-proxy")[1]
        assert ("--logtostderr=false" in usual) is has_flags
        assert cluster.files.exists(r"C:\var\logs\kube-proxy.log") is not has_flags
        started = await cluster.relaunch("kube-proxy", "--one-output=true")
        refused = "Error: unknown flag: --one-output" in started.text
        assert refused is not has_flags


@pytest.mark.windows("W-SVC-16", "SUP-SVC-116")
@pytest.mark.parametrize(("minor", "service"), [(30, False), (31, True), (36, True)])
async def test_the_configuration_file_can_make_it_a_service(minor: int, service: bool) -> None:
    async with simulated_cluster(release=Release(1, minor)) as cluster:
        await cluster.stop("kube-proxy")
        text = (
            "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"
            "windowsRunAsService: true\nmode: kernelspace\nwinkernel: {networkName: cbr0}\n"
            "clientConnection: {kubeconfig: 'c:\\k\\config'}\n"
        )
        cluster.files.write("C:\\k\\proxy.yaml", text.encode())
        printed = await cluster.launch("kube-proxy", "--config=C:\\k\\proxy.yaml")
        assert printed.process.service is service


@pytest.mark.windows("W-SVC-17", "WIN-SVC-117")
async def test_masquerade_all_changes_nothing() -> None:
    async with simulated_cluster() as cluster:
        await cluster.runs("a")
        ip = await cluster.service("a")
        await cluster.relaunch("kube-proxy")
        await cluster.clock.sleep(5)
        usual = cluster.balancers(ip)
        await cluster.stop("kube-proxy")
        await cluster.relaunch("kube-proxy", "--masquerade-all=true")
        await cluster.clock.sleep(5)
        kept = ("Policies", "PortMappings", "FrontendVIPs", "Flags")
        assert usual and [{key: one.get(key) for key in kept} for one in usual] == [
            {key: one.get(key) for key in kept} for one in cluster.balancers(ip)
        ]


@pytest.mark.windows("TRB-61")
@pytest.mark.parametrize("dsr", [False, True])
async def test_direct_server_return(dsr: bool) -> None:
    async with simulated_cluster(build=19041) as cluster:
        await cluster.runs("a")
        ip = await cluster.service("a")
        await cluster.relaunch(
            "kube-proxy",
            f"--enable-dsr={str(dsr).lower()}",
            f"--feature-gates=WinDSR={str(dsr).lower()}",
            without="enable-dsr",
        )
        await cluster.clock.sleep(5)
        (found,) = cluster.balancers(ip)
        assert bool(found.get("Flags", 0) & DSR) is dsr


REFUSED: Sequence[tuple[tuple[str, ...], str, int]] = (
    (("--nope",), "Error: unknown flag: --nope", 1),
    (("run",), '"kube-proxy" does not take any arguments, got ["run"]', 1),
    (("--proxy-mode=fast",), 'Invalid value: "fast": must be kernelspace,userspace or blank', 255),
    (
        ("--feature-gates=WinUnderlay=true",),
        "failed complete: unrecognized feature gate: WinUnderlay",
        255,
    ),
    (
        (r"--kubeconfig=c:\k\nope",),
        r"CreateFile c:\k\nope: The system cannot find the file specified.",
        1,
    ),
    (("--enable-dsr=true",), "unable to create proxier: WinDSR feature gate not enabled", 1),
    (
        (r"--config=C:\k\proxy.yaml",),
        r"failed complete: open C:\k\proxy.yaml: The system cannot find the file specified.",
        255,
    ),
)


async def test_what_kube_proxy_refuses() -> None:
    async with simulated_cluster() as cluster:
        for more, text, code in REFUSED:
            printed = await cluster.relaunch("kube-proxy", *more)
            assert await printed.end() == code and text in printed.text, printed.text


@pytest.mark.windows("TRB-56", "TRB-59", "TRB-60")
async def test_the_printed_line_has_no_kubeconfig() -> None:
    async with simulated_cluster() as cluster:
        await cluster.stop("kube-proxy")
        line = (
            r"--v=4 --proxy-mode=kernelspace --hostname-override=w--kubeconfig=c:\k\config "
            r"--enable-dsr=false --log-dir=C:\k"
        )
        printed = await cluster.launch("kube-proxy", *line.split(), KUBE_NETWORK="cbr0")
        assert await printed.end() == 1
        assert (
            "Neither kubeconfig file nor master URL was specified. Falling back to "
            "in-cluster config."
        ) in printed.text
        assert "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT must be defined" in printed.text
        printed = await cluster.launch(
            "kube-proxy", *line.replace("w--", "w --").split(), KUBE_NETWORK="cbr0"
        )
        assert not printed.process.ended


@pytest.mark.windows("TRB-25", "TRB-60")
async def test_a_kubeconfig_that_leads_nowhere() -> None:
    async with simulated_cluster() as cluster:
        usual = cluster.files.read(r"C:\k\config").decode()
        cluster.files.write(
            r"C:\k\other", usual.replace("172.20.0.2:6443", "10.1.1.1:6443").encode()
        )
        await cluster.runs("a")
        printed = await cluster.relaunch("kube-proxy", r"--kubeconfig=C:\k\other")
        ip = await cluster.service("a")
        await cluster.clock.sleep(60)
        assert not cluster.balancers(ip) and not printed.process.ended
        assert (
            'failed to list *v1.Service: Get "https://10.1.1.1:6443/api/v1/services?'
            in printed.text
        )
        printed = await cluster.relaunch("flanneld", r"--kubeconfig-file=C:\k\other")
        assert not printed.process.ended
        await cluster.clock.sleep(601)
        assert (
            await printed.end() == 1
            and "error waiting for nodeController to sync state" in printed.text
        )


@pytest.mark.windows("TRB-63", "TRB-68")
async def test_the_network_given_to_kube_proxy() -> None:
    async with simulated_cluster() as cluster:
        await cluster.stop("kube-proxy")
        usual = cluster.binaries.usual("kube-proxy")[1]
        printed = await cluster.launch("kube-proxy", *usual)
        assert await printed.end() == 1
        assert "Environment variable KUBE_NETWORK and network-flag not initialized" in printed.text
        printed = await cluster.launch(
            "kube-proxy", *usual, "--network-name=later", "--logtostderr=true"
        )
        await cluster.clock.sleep(30)
        assert (
            not printed.process.ended
            and "Unable to find HNS Network specified by later." in printed.text
        )
        await printed.process.stop()
        # names of variables are written anyhow
        printed = await cluster.launch("kube-proxy", *usual, kube_network="cbr0")
        await cluster.clock.sleep(5)
        assert not printed.process.ended


@pytest.mark.windows("TRB-66", "TRB-67", "TRB-68", "TRB-69")
async def test_overlay_networks_need_the_gate_and_a_source_vip() -> None:
    async with simulated_cluster(OVERLAY) as cluster:
        await cluster.runs("a")
        ip = await cluster.service("a")
        for without, more, text in (
            ("source-vip", (), "source-vip flag not set"),
            ("", ("--feature-gates=WinOverlay=false",), "WinOverlay feature gate not enabled"),
        ):
            printed = await cluster.relaunch("kube-proxy", *more, without=without)
            assert await printed.end() == 1 and f"unable to create proxier: {text}" in printed.text
        line = cluster.binaries.usual("kube-proxy")[1]
        assert "--network-name=vxlan0" in line and "--feature-gates=WinOverlay=true" in line
        printed = await cluster.relaunch("kube-proxy")
        await cluster.clock.sleep(20)
        assert not printed.process.ended and cluster.balancers(ip)


@pytest.mark.windows("TRB-59", "TRB-84", "TRB-85")
@pytest.mark.parametrize(("name", "stays"), [("w", True), ("other", False)])
async def test_an_old_kube_proxy_with_another_name_deletes_the_pods_endpoints(
    name: str, stays: bool
) -> None:
    async with simulated_cluster(kubelet_version="v1.18.20") as cluster:
        address = (await cluster.runs("a"))["status"]["podIP"]
        ip = await cluster.service("a")
        await cluster.relaunch(
            "kube-proxy", f"--hostname-override={name}", without="hostname-override"
        )
        await cluster.clock.sleep(5)
        assert cluster.balancers(ip)
        labels = {"metadata": {"labels": {"app": "none"}}}
        await cluster.client.patch(PODS, "default", "a", labels, "application/merge-patch+json")
        await cluster.clock.sleep(5)
        assert (
            any(address in str(endpoint) for endpoint in cluster.net.hns.endpoints.values())
            is stays
        )


# ---- flanneld ----


@pytest.mark.windows("TRB-27", "TRB-28", "TRB-92", "TRB-94", "TRB-96", "TRB-97", "TRB-98", "TRB-99")
async def test_routes_stay_without_flanneld_and_a_restarted_one_updates_them() -> None:
    async with simulated_cluster() as cluster:
        before = cluster.routes()
        await cluster.stop("flanneld")
        cluster.pool.add(
            specs.complete_specs(
                cluster.pool.cluster.settings, [specs.NodeSpec("m")], cluster.pool.numbers()
            )
        )
        await cluster.until(lambda: cluster.pool.is_ready("m"))
        assert cluster.routes() == before
        cluster.files.remove(ENV)
        await cluster.pod("p")
        missing = "open /run/flannel/subnet.env: The system cannot find the file specified."
        await cluster.until(lambda: _recorded(cluster, "FailedCreatePodSandBox", missing))
        printed = await cluster.relaunch("flanneld", "--ip-masq=0", without="ip-masq")
        assert (
            "Wrote subnet file to /run/flannel/subnet.env" in printed.text
            and not printed.process.ended
        )
        cidr = (await cluster.node())["spec"]["podCIDR"]
        first = cidr.replace(".0/", ".1/")
        lines = [
            "FLANNEL_NETWORK=10.244.0.0/16",
            f"FLANNEL_SUBNET={first}",
            "FLANNEL_MTU=1500",
            "FLANNEL_IPMASQ={}",
        ]
        assert cluster.files.read(ENV).decode().splitlines() == [
            line.format("false") for line in lines
        ]
        await cluster.relaunch("flanneld")
        assert cluster.files.read(ENV).decode().splitlines() == [
            line.format("true") for line in lines
        ]
        assert cluster.pool.cluster.pod_cidr("m") in cluster.routes()
        await cluster.until(lambda: _running(cluster, "p"))


@pytest.mark.windows("TRB-95", "TRB-97")
async def test_subnet_env_of_the_master_with_another_subnet() -> None:
    """The subnet must be the one that the node's network has: HNS gives no address of another
    one.
    """

    async with simulated_cluster() as cluster:
        await cluster.stop("flanneld")
        cluster.files.remove(ENV)
        own = (await cluster.node())["spec"]["podCIDR"].replace(".0/", ".1/")
        master = cluster.pool.node("l").machine.files.read("/run/flannel/subnet.env").decode()
        for number, subnet in enumerate(("10.244.44.1/24", own)):
            changed = [
                f"FLANNEL_SUBNET={subnet}" if "SUBNET" in line else line
                for line in master.splitlines()
            ]
            cluster.files.write(ENV, "\n".join(changed).encode())
            await cluster.pod(f"p{number}")
            if subnet != own:
                await cluster.until(
                    lambda: _recorded(
                        cluster,
                        "FailedCreatePodSandBox",
                        "An address provided is invalid or reserved.",
                    )
                )
        await cluster.until(lambda: _running(cluster, "p1"))
        address = (await cluster.client.get(PODS, "default", "p1"))["status"]["podIP"]
        assert address.startswith(own.rpartition(".")[0] + ".")


async def _recorded(cluster: NodeTestCluster, reason: str, text: str) -> bool:
    return any(text in message for message in await cluster.events(reason))


async def _running(cluster: NodeTestCluster, name: str) -> bool:
    return bool(
        (await cluster.client.get(PODS, "default", name))["status"].get("phase") == "Running"
    )


@pytest.mark.windows("TRB-25", "TRB-26", "TRB-29", "TRB-91")
async def test_what_flanneld_refuses() -> None:
    async with simulated_cluster() as cluster:
        await cluster.stop("flanneld")
        usual = cluster.binaries.usual("flanneld")[1]
        for argv, environment, code, text in (
            (
                [*usual, r"--kubeconfig-file=c:\k\nope"],
                {"NODE_NAME": "w"},
                1,
                (
                    r"Failed to create SubnetManager: fail to create kubernetes config: "
                    r"CreateFile c:\k\nope: The system cannot find"
                ),
            ),
            (
                [usual[0], "--iface=10.9.9.9", *usual[2:]],
                {"NODE_NAME": "w"},
                1,
                "error looking up interface 10.9.9.9: no interface with given IP found",
            ),
            (
                [usual[0], "--iface=Ethernet 9", *usual[2:]],
                {"NODE_NAME": "w"},
                1,
                "route ip+net: no such network interface",
            ),
            (
                usual,
                {},
                1,
                (
                    "Failed to create SubnetManager: env variables POD_NAME and POD_NAMESPACE "
                    "must be set"
                ),
            ),
            (
                usual,
                {"NODE_NAME": "nobody"},
                1,
                'Error registering network: failed to acquire lease: node "nobody" not found',
            ),
            ([*usual, "--nope"], {"NODE_NAME": "w"}, 0, "flag provided but not defined: -nope"),
            (
                [*usual, "--net-config-path=/etc/nope.json"],
                {"NODE_NAME": "w"},
                1,
                (
                    "failed to read net conf: open /etc/nope.json: The system cannot find the "
                    "file specified."
                ),
            ),
        ):
            printed = await cluster.launch("flanneld", *argv, **environment)
            assert await printed.end() == code and text in printed.text, printed.text
        printed = await cluster.launch("flanneld", *usual, node_name="w")
        assert not printed.process.ended
        node = await cluster.client.get(NODES, "", "w")
        assert (
            node["metadata"]["annotations"]["flannel.alpha.coreos.com/public-ip"]
            == cluster.net.address
        )


@pytest.mark.windows("TRB-89", "TRB-90", "TRB-91", "TRB-92")
@pytest.mark.parametrize("network", [NetworkSettings(), OVERLAY])
async def test_an_address_that_comes_late_keeps_flanneld_waiting(network: NetworkSettings) -> None:
    async with simulated_cluster(network) as cluster:
        hns = cluster.net.hns
        await cluster.stop("flanneld")
        for made in list(hns.networks):
            hns.delete("network", made)
        hns.faults.switch("late-management-address", True)
        printed = await cluster.relaunch("flanneld")
        assert await printed.end() == 1 and "Waiting for the Network to be created" in printed.text
        assert (
            "Error registering network: " in printed.text
            and "failed to get management IP" in printed.text
        )
        hns.faults.switch("late-management-address", False)
        printed = await cluster.relaunch("flanneld")
        assert not printed.process.ended, printed.text
        await cluster.runs("p")


async def test_without_kube_subnet_mgr_it_looks_for_etcd() -> None:
    async with simulated_cluster() as cluster:
        await cluster.stop("flanneld")
        printed = await cluster.launch("flanneld", f"--iface={cluster.net.address}", NODE_NAME="w")
        await cluster.clock.sleep(3)
        assert (
            printed.text.count("etcd cluster is unavailable or misconfigured") > 2
            and not printed.process.ended
        )
        await printed.process.stop()


async def test_a_second_flanneld_leaves_the_first_when_it_ends() -> None:
    async with simulated_cluster() as cluster:
        printed = await cluster.launch(
            "flanneld", *cluster.binaries.usual("flanneld")[1], NODE_NAME="w"
        )
        assert cluster.binaries.running("flanneld") is printed.process
        await printed.process.stop()
        assert cluster.binaries.running("flanneld") is not None and cluster.net.agent is not None
        await cluster.stop("flanneld")
        assert cluster.net.agent is None


async def test_a_second_kube_proxy_continues_when_the_first_ends() -> None:
    async with simulated_cluster() as cluster:
        await cluster.runs("a")
        first = cluster.binaries.running("kube-proxy")
        assert first is not None
        printed = await cluster.launch(
            "kube-proxy", *cluster.binaries.usual("kube-proxy")[1], KUBE_NETWORK="cbr0"
        )
        second = await cluster.service("a")
        await cluster.clock.sleep(3)
        assert cluster.balancers(second)
        before = cluster.net.proxier
        await first.stop()
        await cluster.clock.sleep(1)
        assert cluster.net.proxier is not None and cluster.net.proxier is not before
        third = await cluster.service("b")
        await cluster.clock.sleep(5)
        assert cluster.balancers(second) and not cluster.balancers(third)  # it has no endpoints
        await printed.process.stop()
        assert cluster.net.proxier is None


async def test_where_flannel_is_not_the_network() -> None:
    async with simulated_cluster(NetworkSettings(plugin="win-bridge")) as cluster:
        assert cluster.binaries.running("flanneld") is None
        printed = await cluster.launch(
            "flanneld", *cluster.binaries.usual("flanneld")[1], NODE_NAME="w"
        )
        assert (
            await printed.end() == 1
            and "simulated: the network of this node is made by win-bridge" in printed.text
        )


@pytest.mark.windows("TRB-86", "TRB-87", "TRB-88")
async def test_a_node_that_joins_again_has_the_source_vip_of_before() -> None:
    async with simulated_cluster(OVERLAY) as cluster:
        await cluster.runs("a", "l")
        ip = await cluster.service("a")
        before = cluster.pool.cluster.pod_cidr("w")
        for binary in ("kubelet", "flanneld"):
            await cluster.stop(binary)
        await cluster.client.delete(NODES, "", "w")
        await cluster.relaunch("kubelet")
        await cluster.until(lambda: cluster.pool.cluster.pod_cidr("w"))
        now = cluster.pool.cluster.pod_cidr("w")
        assert now != before
        await cluster.relaunch("flanneld")
        printed = await cluster.relaunch("kube-proxy", "--logtostderr=true")
        await cluster.clock.sleep(20)
        assert (
            _vip(cluster, before)
            and "Source Vip endpoint creation failed" in printed.text
            and not cluster.balancers(ip)
        )
        for file in ("SourceVip.json", "SourceVipRequest.json"):
            cluster.files.remove(f"C:\\k\\{file}")
        assert _vip(cluster, now)
        await cluster.relaunch("kube-proxy")
        await cluster.clock.sleep(20)
        assert cluster.balancers(ip)


def _vip(cluster: NodeTestCluster, cidr: str | None) -> bool:
    """Whether the source VIP of the usual line is of these addresses."""
    line = next(
        word for word in cluster.binaries.usual("kube-proxy")[1] if word.startswith("--source-vip=")
    )
    return ipaddress.ip_address(line.partition("=")[2]) in ipaddress.ip_network(str(cidr))


@pytest.mark.windows("CNI-04", "WIN-NET-007")
@pytest.mark.parametrize(
    ("version", "reached"), [("0.11.0", False), ("0.12.0", True), ("v0.13.0", True)]
)
async def test_old_flannel_lets_no_overlay_node_reach_its_own_pods(
    version: str, reached: bool
) -> None:
    async with simulated_cluster(
        NetworkSettings(mode="overlay", flannel_version=version)
    ) as cluster:
        printed = await cluster.launch("flanneld", "--version")
        assert printed.text == f"v{version.removeprefix('v')}\n"
        pod = await cluster.runs("a")
        [network] = [n for n in cluster.net.hns.networks.values() if n["Name"] == "vxlan0"]
        assert (
            any(policy["Type"] == "HostRoute" for policy in network.get("Policies") or ())
            is reached
        )
        answered = await cluster.pool.cluster.dataplane.echo(
            pod["status"]["podIP"], cluster.net.address, 1.0
        )  # type: ignore[attr-defined]
        assert answered is reached
        await cluster.relaunch("flanneld")  # the next one is of the same version
        [network] = [n for n in cluster.net.hns.networks.values() if n["Name"] == "vxlan0"]
        assert (
            any(policy["Type"] == "HostRoute" for policy in network.get("Policies") or ())
            is reached
        )


async def test_services_of_a_transparent_network_are_load_balancers_of_ovn() -> None:
    async with simulated_cluster(NetworkSettings(mode="transparent")) as cluster:
        await cluster.runs("a", "l")
        address = await cluster.service("a")
        database = cluster.net.shared.ovn
        assert database is not None

        def known() -> bool:
            cluster.net.sync()
            return ("tcp", address, 80) in database.cluster_vips

        await cluster.until(known)
        assert cluster.net.programs == ("kubelet",)
        assert not cluster.balancers(address)  # of the host networking service
        own = database.switches[cluster.net.spec.name]
        assert own.management_port in cluster.net.stack.links
        assert own.management_port in [port.name for port in database.ports(own)]
