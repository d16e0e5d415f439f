"""nssm on a Windows machine, with the lines of the documents."""

from __future__ import annotations

import pytest
from tests.runtime.login.harness import Login

KUBELET = (
    "--hostname-override=win-1 --v=6 "
    "--pod-infra-container-image=mcr.microsoft.com/oss/kubernetes/pause:1.4.1 "
    '--resolv-conf="" --allow-privileged=true --enable-debugging-handlers --cluster-dns=10.96.0.10 '
    "--cluster-domain=cluster.local --kubeconfig=c:\\k\\config --hairpin-mode=promiscuous-bridge "
    "--image-pull-progress-deadline=20m --cgroups-per-qos=false  --log-dir=C:\\k "
    "--logtostderr=false "
    '--enforce-node-allocatable="" --network-plugin=cni --cni-bin-dir=c:\\k\\cni '
    "--cni-conf-dir=c:\\k\\cni\\config"
)
PROXY = (
    "--v=4 --proxy-mode=kernelspace --hostname-override=win-1 --kubeconfig=c:\\k\\config "
    "--enable-dsr=false"
)
CLEAR = (
    "foreach ($one in 'kube-proxy', 'kubelet', 'flanneld') { Stop-Service $one; sc.exe delete "
    "$one }"
)


async def _cleared() -> Login:
    login = Login()
    await login(CLEAR)
    return login


async def _all(login: Login, *lines: str) -> None:
    for line in lines:
        printed = await login(line)
        assert (printed.code, printed.err) == (0, ""), line


@pytest.mark.windows(
    "TRB-07",
    "TRB-15",
    "TRB-22",
    "TRB-23",
    "TRB-24",
    "TRB-30",
    "TRB-31",
    "SUP-TRB-004",
    "SUP-TRB-005",
)
async def test_flanneld_by_hand() -> None:
    login = await _cleared()
    parameters = "--kubeconfig-file=c:\\k\\config --iface=10.0.0.1 --ip-masq=1 --kube-subnet-mgr=1"
    installed = await login("nssm install flanneld C:\\flannel\\flanneld.exe")
    assert installed.out == 'Service "flanneld" installed successfully!\r\n'
    set_ = await login(f"nssm set flanneld AppParameters {parameters}")
    assert set_.out == 'Set parameter "AppParameters" for service "flanneld".\r\n'
    await _all(
        login,
        "nssm set flanneld AppEnvironmentExtra NODE_NAME=win-1",
        "nssm set flanneld AppDirectory C:\\flannel",
    )
    assert (await login("nssm get flanneld AppParameters")).out == parameters + "\r\n"
    assert (await login("nssm status flanneld")).out == "SERVICE_STOPPED\r\n"
    assert (
        await login("nssm start flanneld")
    ).out == "flanneld: START: The operation completed successfully.\r\n"
    assert (await login("nssm status flanneld")).out == "SERVICE_RUNNING\r\n"
    started = login.binaries.started[-1]
    assert (started.argv, started.directory) == (parameters.split(), "C:\\flannel")
    assert started.environment["NODE_NAME"] == "win-1"
    assert (await login('(Get-HnsNetwork | ? Name -ieq "cbr0").Type')).out == "L2Bridge\r\n"


@pytest.mark.windows(
    "TRB-32",
    "TRB-33",
    "TRB-52",
    "TRB-53",
    "TRB-54",
    "TRB-55",
    "TRB-64",
    "TRB-65",
    "SUP-TRB-006",
    "SUP-TRB-007",
)
async def test_kubelet_and_kube_proxy_by_hand() -> None:
    login = await _cleared()
    await _all(
        login,
        "nssm install kubelet C:\\k\\kubelet.exe",
        f"nssm set kubelet AppParameters {KUBELET}",
        "nssm set kubelet AppDirectory C:\\k",
        "nssm install kube-proxy C:\\k\\kube-proxy.exe",
        "nssm set kube-proxy AppDirectory c:\\k",
        f"nssm set kube-proxy AppParameters {PROXY}",
        "nssm.exe set kube-proxy AppEnvironmentExtra KUBE_NETWORK=cbr0",
        "nssm set kube-proxy DependOnService kubelet",
        "nssm start kube-proxy",
    )
    kubelet, proxy = login.binaries.started
    assert (kubelet.binary, kubelet.directory) == ("kubelet", "C:\\k")
    assert kubelet.argv == KUBELET.replace('""', "").split()
    assert (proxy.binary, proxy.argv, proxy.environment["KUBE_NETWORK"]) == (
        "kube-proxy",
        PROXY.split(),
        "cbr0",
    )
    assert [await login.status(name) for name in ("kubelet", "kube-proxy")] == [
        "Running",
        "Running",
    ]
    refused = await login("nssm stop kubelet")
    assert (refused.code, "that other running services are dependent on" in refused.err) == (
        1,
        True,
    )


@pytest.mark.windows("TRB-70", "TRB-71", "SUP-TRB-008")
@pytest.mark.parametrize("parameters", [("AppStdout",), ("AppStderr",), ("AppStdout", "AppStderr")])
async def test_output_goes_to_a_file(parameters: tuple[str, ...]) -> None:
    login = await _cleared()
    await _all(
        login,
        "nssm install mysvc C:\\k\\kubelet.exe",
        *(f"nssm set mysvc {name} C:\\k\\mysvc.log" for name in parameters),
        "nssm start mysvc",
    )
    assert (await login("Get-Content C:\\k\\mysvc.log")).out == "kubelet begins\r\n"
    assert (await login("cmd", "/c", "type C:\\k\\mysvc.log")).out.split() == [
        "kubelet",
        "begins",
    ]


async def test_a_service_since_boot_is_paused_too_while_its_application_cannot_start() -> None:
    login = Login()
    login.binaries.refuse = True
    await login.clock.run_for(2)
    program = login.binaries.running("flanneld")
    assert program is not None
    program.end(1)
    await login.clock.run_for(0.5)
    assert await login.status("flanneld") == "Paused"
    login.binaries.refuse = False
    await login.clock.run_for(5)
    assert await login.status("flanneld") == "Running"


async def test_an_application_that_ends_is_started_again_ever_later() -> None:
    login = await _cleared()
    login.binaries.refuse = True
    await _all(
        login,
        "nssm install kubelet C:\\k\\kubelet.exe",
        "nssm set kubelet AppStderr C:\\k\\mysvc.log",
    )
    printed = await login("nssm start kubelet")
    assert (
        printed.err == "kubelet: Unexpected status SERVICE_PAUSED in response to START control.\r\n"
    )
    assert printed.code == 1
    await login.clock.run_for(1 + 2 + 4 + 0.5)
    assert len(login.binaries.started) == 4
    assert "unknown flag" in (await login("type C:\\k\\mysvc.log")).out
    login.binaries.refuse = False
    await login.clock.run_for(8 + 2)
    assert (await login("nssm status kubelet")).out == "SERVICE_RUNNING\r\n"
    program = login.binaries.running("kubelet")
    assert program is not None
    program.end(1)
    await login.clock.run_for(2)
    assert await login.status("kubelet") == "Running"
    await _all(login, "nssm stop kubelet", "nssm remove kubelet confirm")
    assert (login.binaries.running("kubelet"), (await login("nssm status kubelet")).code) == (
        None,
        3,
    )


@pytest.mark.parametrize(
    ("line", "code", "text"),
    [
        (
            "nssm install kubelet C:\\k\\kubelet.exe",
            5,
            "Error creating service!\r\nCreateService(): The specified service alr",
        ),
        (
            "nssm set nothing AppDirectory C:\\k",
            3,
            "Can't open service!\r\nOpenService(): The specified service does not",
        ),
        (
            "nssm set kubelet AppDirectory C:\\k",
            1,
            'Parameter "AppDirectory" is only valid for services managed by NSSM!',
        ),
        (
            "nssm set flanneld AppColour red",
            1,
            'Invalid parameter "AppColour".  Valid parameters are:\r\nAppAffinity',
        ),
        (
            "nssm set flanneld AppEnvironmentExtra NODE_NAME",
            6,
            "Environment should comprise strings of the form KEY=VALUE.",
        ),
        (
            "nssm set flanneld AppExit Default Dance",
            6,
            'Invalid exit action "Dance".  Valid exit actions are:\r\nRestart',
        ),
        ("nssm set flanneld Name other", 6, "Services cannot be renamed!"),
        ("nssm set kube-proxy DependOnService nothing", 3, "Can't open service!"),
        (
            "nssm reset flanneld Application",
            1,
            'Parameter "Application" has no meaningful default value!',
        ),
        (
            "nssm remove flanneld",
            100,
            "To remove a service without confirmation: nssm remove <servicename> confirm",
        ),
        ("nssm start kubelet", 1, "kubelet: START: An instance of the service is already running."),
        ("nssm dance", 1, "NSSM: The non-sucking service manager"),
    ],
)
async def test_impossible_requests_get_the_errors_of_nssm(line: str, code: int, text: str) -> None:
    login = Login()
    before = (await login("nssm get flanneld AppParameters")).out
    printed = await login(line)
    assert (printed.out, printed.code, printed.err[: len(text)]) == ("", code, text)
    assert (await login("nssm get flanneld AppParameters")).out == before
