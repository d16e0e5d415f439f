"""Manifests as in Kubernetes' documentation of Windows, applied with kubectl, have the documented
results.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from tests.e2e.windows.conftest import Place

pytestmark = pytest.mark.e2e

WINDOWS_NODES = {"windows-1", "windows-2"}
TITLE = "<H1>Windows Container Web Server</H1>"
LINUX_CLIENT = json.dumps({"spec": {"nodeSelector": {"kubernetes.io/os": "linux"}}})


def columns(table: str) -> list[dict[str, str]]:
    """The rows of what `kubectl get` prints; columns are two spaces or more apart."""
    header, *rows = (re.split(r"\s{2,}", line.strip()) for line in table.splitlines())
    return [dict(zip(header, row, strict=False)) for row in rows]


def linux_client(place: Place) -> str:
    """A pod on a Linux node to ask others from."""
    place(
        "run",
        "client",
        "--image=busybox:1.32",
        f"--overrides={LINUX_CLIENT}",
        "--command",
        "--",
        "sleep",
        "3600",
    )
    place.ready("pod/client")
    return "client"


@pytest.mark.windows("OS-02", "OS-04", "OS-06", "OS-10")
def test_nodes_of_both_systems_are_ready(place: Place) -> None:
    rows = {row["NAME"]: row for row in columns(place("get", "nodes", "--output", "wide"))}
    assert {row["STATUS"] for row in rows.values()} == {"Ready"}
    assert {row["OS-IMAGE"] for name, row in rows.items() if name in WINDOWS_NODES} == {
        "Windows Server 2019 Datacenter"
    }
    assert {row["ROLES"] for name, row in rows.items() if name in WINDOWS_NODES} == {"<none>"}, (
        "masters stay on Linux"
    )
    chosen = place(
        "get",
        "nodes",
        "--selector=kubernetes.io/os=windows,node.kubernetes.io/windows-build=10.0.17763",
        "--output=name",
    )
    assert set(chosen.split()) == {f"node/{name}" for name in WINDOWS_NODES}


@pytest.mark.windows("W-POD-23", "W-POD-24")
@pytest.mark.windows("CTL-01", "CTL-02", "CTL-04", "SVC-03", "OS-01")
def test_web_server_behind_a_node_port(place: Place) -> None:
    place.apply("win-webserver")
    place.ready("deployment/win-webserver")
    rows = columns(place("get", "pods", "--output", "wide"))
    assert [(row["READY"], row["STATUS"], row["NODE"] in WINDOWS_NODES) for row in rows] == [
        ("1/1", "Running", True)
    ] * 2
    (service,) = columns(place("get", "services"))
    assert service["TYPE"] == "NodePort" and re.fullmatch(r"80:3\d{4}/TCP", service["PORT(S)"])
    first, second = (row["NAME"] for row in rows)
    assert place("logs", first).replace("\r\n", "\n") == "Listening at http://*:80/\n"
    client = linux_client(place)
    page = place.exec(client, "wget", "-q", "-O", "-", f"http://{rows[0]['IP']}/")
    assert page == f"<html><body>{TITLE}<p>IP {rows[0]['IP']} callerCount 1 </body></html>"
    from_pod = place.exec(
        second,
        "powershell",
        "-Command",
        f"(Invoke-WebRequest -UseBasicParsing http://{rows[0]['IP']}).Content",
    )
    assert TITLE in from_pod
    printed = place("logs", first).replace("\r\n", "\n")
    assert printed.count(f"> http://{rows[0]['IP']}/\n") == 2 and printed.count("< 200\n") == 2
    node = place.object("node", "linux-1")["status"]["addresses"][0]["address"]
    port = service["PORT(S)"].removeprefix("80:").removesuffix("/TCP")
    full_name = f"win-webserver.{place.namespace}.svc.cluster.local"
    for address in (service["CLUSTER-IP"], "win-webserver", full_name, f"{node}:{port}"):
        assert TITLE in place.exec(client, "wget", "-q", "-O", "-", f"http://{address}/"), address
    assert TITLE in place.exec(second, "curl.exe", "-s", f"http://{service['CLUSTER-IP']}/")


def test_web_server_of_the_same_sort_with_other_names(place: Place) -> None:
    place.apply("own-webserver")
    place.ready("deployment/own-webserver")
    (pod,) = place.pods("app=own-webserver")
    page = place.exec(
        linux_client(place), "wget", "-q", "-O", "-", f"http://{pod['status']['podIP']}/"
    )
    assert page == f"<html><body>{TITLE}<p>IP {pod['status']['podIP']} callerCount 1 </body></html>"


def test_runtime_class_chooses_nodes_by_build(place: Place) -> None:
    place.apply("runtime-class", "iis-2019")
    place.ready("deployment/iis-2019")
    (pod,) = place.pods("app=iis-2019")
    assert pod["spec"]["nodeSelector"] == {
        "kubernetes.io/os": "windows",
        "kubernetes.io/arch": "amd64",
        "node.kubernetes.io/windows-build": "10.0.17763",
    }
    assert {"key": "os", "operator": "Equal", "value": "windows", "effect": "NoSchedule"} in pod[
        "spec"
    ]["tolerations"]
    assert pod["spec"]["nodeName"] in WINDOWS_NODES
    (service,) = columns(place("get", "services"))
    assert (service["NAME"], service["TYPE"]) == ("iis", "LoadBalancer")
    overrides = '{"spec":{"runtimeClassName":"windows-1903"}}'
    place(
        "run",
        "older",
        "--image=mcr.microsoft.com/windows/nanoserver:1903",
        f"--overrides={overrides}",
    )
    assert place.event("older", "FailedScheduling").startswith("0/4 nodes are available: ")


@pytest.mark.parametrize(
    ("pod", "user"),
    [
        ("run-as-username-pod-demo", "ContainerUser"),
        ("run-as-username-container-demo", "ContainerAdministrator"),
    ],
)
def test_the_user_of_the_pod_and_of_the_container(place: Place, pod: str, user: str) -> None:
    place.apply("run-as-username")
    place.ready(f"pod/{pod}")
    assert place("get", "pod", pod).splitlines()[1].split()[1:3] == ["1/1", "Running"]
    assert user in place.exec(pod, "powershell", stdin="echo $env:USERNAME\n").splitlines()
    assert place.exec(pod, "powershell", "-Command", "echo $env:USERNAME") == f"{user}\n"
    assert place.exec(pod, "cmd", "/S", "/C", "echo %username%") == f"{user}\n"


@pytest.mark.windows("W-SEC-29", "W-SEC-34", "W-SEC-37")
def test_managed_service_accounts(default_place: Place) -> None:
    place = default_place
    place.apply("gmsa-credspec", "gmsa-role", "gmsa-workload")
    try:
        place.ready("deployment/with-creds", "deployment/container-with-creds")
        for run, path in (("with-creds", ()), ("container-with-creds", ("containers", 0))):
            (pod,) = place.pods(f"run={run}")
            owner: Any = pod["spec"]
            for step in path:
                owner = owner[step]
            options = owner["securityContext"]["windowsOptions"]
            assert options["gmsaCredentialSpecName"] == "gmsa-webapp1"
            assert (
                json.loads(options["gmsaCredentialSpec"])["DomainJoinConfig"]["DnsName"]
                == "contoso.com"
            )
            printed = place.exec(pod["metadata"]["name"], "nltest.exe", "/parentdomain")
            assert (
                printed.startswith("contoso.com")
                and "The command completed successfully" in printed
            )
    finally:
        place("delete", "deployments", "with-creds", "container-with-creds")
        place("delete", "gmsacredentialspecs", "gmsa-webapp1")


@pytest.mark.windows("W-SEC-35")
def test_managed_service_accounts_need_the_use_permission(
    place: Place, default_place: Place
) -> None:
    default_place.apply("gmsa-credspec", "gmsa-role")
    wanted = json.dumps(
        {
            "spec": {
                "securityContext": {"windowsOptions": {"gmsaCredentialSpecName": "gmsa-webapp1"}}
            }
        }
    )
    try:
        printed = place.refused(
            "run", "p", "--image=mcr.microsoft.com/windows/nanoserver:1809", f"--overrides={wanted}"
        )
    finally:
        default_place("delete", "gmsacredentialspecs", "gmsa-webapp1")
    assert printed.strip().splitlines()[-1] == (
        'Error from server: admission webhook "admission-webhook.windows-gmsa.sigs.k8s.io" '
        "denied the request: service "
        'account "default" is not authorized to `use` GMSA cred spec "gmsa-webapp1"'
    )


def test_simple_pod_serves(place: Place) -> None:
    place.apply("simple-pod")
    place.ready("pod/iis")
    address = place.object("pod", "iis")["status"]["podIP"]
    assert "IIS Windows Server" in place.exec(
        linux_client(place), "wget", "-q", "-O", "-", f"http://{address}/"
    )


def test_an_image_of_another_build_does_not_start(place: Place) -> None:
    place.apply("older-build")
    assert place.event("older-build", "Failed") == (
        'Error: failed to start container "foo": Error response from daemon: '
        "hcsshim::CreateComputeSystem foo: The "
        "container operating system does not match the host operating system."
    )


@pytest.mark.windows("CTL-06")
def test_one_pod_on_every_windows_node(place: Place) -> None:
    place.apply("daemonset")
    place.ready("daemonset/my-daemonset")
    (row,) = columns(place("get", "daemonset", "my-daemonset"))
    assert (row["DESIRED"], row["READY"], row["NODE SELECTOR"]) == (
        "2",
        "2",
        "kubernetes.io/os=windows",
    )
    assert {pod["spec"]["nodeName"] for pod in place.pods("app=foo")} == WINDOWS_NODES


def test_logs_can_be_collected_on_the_node(place: Place) -> None:
    place.apply("log-collector")
    place.ready("daemonset/log-collector", "pod/talker")
    talker = place.object("pod", "talker")
    node, uid = talker["spec"]["nodeName"], talker["metadata"]["uid"]
    (collector,) = (
        pod for pod in place.pods("app=log-collector") if pod["spec"]["nodeName"] == node
    )
    name = collector["metadata"]["name"]
    assert place.exec(name, "cmd", "/c", "echo %NODE_NAME%") == f"{node}\n"
    folder = rf"C:\var\log\pods\{place.namespace}_talker_{uid}\talker"
    assert "0.log" in place.exec(name, "cmd", "/c", f"dir /b {folder}").split()
    assert "something to collect" in place.exec(name, "cmd", "/c", rf"type {folder}\0.log")


def test_config_maps_and_secrets_as_variables(place: Place) -> None:
    place.apply("configmap-pod", "secret-pod")
    place.ready("pod/configmap-pod", "pod/my-secret-pod")
    assert (
        place.exec("configmap-pod", "cmd", "/c", "echo %EXAMPLE_PROPERTY_1% %EXAMPLE_PROPERTY_2%")
        == "hello world\n"
    )
    assert (
        place.exec("my-secret-pod", "powershell", "-Command", "$env:PASSWORD") == "1f2d1e2e67df\n"
    )
    described = place("describe", "pod", "my-secret-pod")
    assert "<set to the key 'username' in secret 'mysecret'>" in described


def test_empty_directories_by_both_spellings_of_a_path(place: Place) -> None:
    place.apply("emptydir-pod")
    place.ready("pod/my-empty-dir-pod")
    for folder in (r"C:\cache", r"C:\scratch"):
        place.exec("my-empty-dir-pod", "cmd", "/c", rf"echo kept>{folder}\file.txt")
        assert place.exec("my-empty-dir-pod", "cmd", "/c", rf"type {folder}\file.txt") == "kept\n"
    mounts = place("describe", "pod", "my-empty-dir-pod")
    assert (
        "/cache from cache-volume (rw)" in mounts
        and "C:/scratch from scratch-volume (rw)" in mounts
    )


def test_a_folder_of_the_node_read_only(place: Place) -> None:
    """Docker does not make the folder on Windows; here another pod does."""
    place.apply("hostpath-volume-pod")
    assert r"bind source path does not exist: C:\etc\foo" in place.event(
        "hostpath-volume-pod", "Failed"
    )
    image = "mcr.microsoft.com/windows/nanoserver:1809"
    mount = {"name": "foo", "mountPath": r"C:\foo"}
    maker = json.dumps(
        {
            "spec": {
                "nodeName": place.object("pod", "hostpath-volume-pod")["spec"]["nodeName"],
                "containers": [{"name": "maker", "image": image, "volumeMounts": [mount]}],
                "volumes": [
                    {
                        "name": "foo",
                        "hostPath": {"path": r"C:\etc\foo", "type": "DirectoryOrCreate"},
                    }
                ],
            }
        }
    )
    place("run", "maker", f"--image={image}", f"--overrides={maker}", "--restart=Never")
    place.ready("pod/hostpath-volume-pod")
    assert r"C:\etc\foo from foo (ro)" in place("describe", "pod", "hostpath-volume-pod")
    assert "Access is denied." in place.refused(
        "exec", "hostpath-volume-pod", "--", "cmd", "/c", r"echo x > C:\etc\foo\x"
    )


def test_limits(place: Place) -> None:
    place.apply("deploy-resource")
    place.ready("deployment/iis")
    pods = place.pods("app=iis")
    assert [pod["status"]["qosClass"] for pod in pods] == ["Guaranteed"] * 3
    assert {pod["spec"]["nodeName"] for pod in pods} <= WINDOWS_NODES
    assert re.search(
        r"Limits:\s+cpu:\s+2\s+memory:\s+128Mi",
        place("describe", "pod", pods[0]["metadata"]["name"]),
    )


@pytest.mark.windows("OS-09")
def test_pods_that_ask_for_hyper_v_are_refused(place: Place) -> None:
    place.apply("deploy-hyperv")
    place.until("deployment/iis", "{.status.unavailableReplicas}", "3")
    for pod in place.pods("app=iis"):
        message = place.event(pod["metadata"]["name"], "FailedCreatePodSandBox")
        assert "Hyper-V isolation is not supported by Kubernetes 1.20" in message


@pytest.mark.windows("CTL-07")
def test_job(place: Place) -> None:
    place.apply("job")
    place("wait", "--for=condition=Complete", "job/sum", "--timeout=90s", timeout=120)
    (row,) = columns(place("get", "job", "sum"))
    assert row["COMPLETIONS"] == "1/1"
    (pod,) = place.pods("job-name=sum")
    assert pod["status"]["phase"] == "Succeeded"
    assert place("logs", "job/sum").split() == ["5050"]


@pytest.mark.windows("CTL-08")
def test_cron_job(place: Place) -> None:
    place.apply("cronjob")
    (row,) = columns(place("get", "cronjob", "hello"))
    assert (row["SCHEDULE"], row["SUSPEND"]) == ("*/1 * * * *", "False")
    place("create", "job", "now", "--from=cronjob.v1beta1.batch/hello")
    place("wait", "--for=condition=Complete", "job/now", "--timeout=90s", timeout=120)
    assert place("logs", "job/now").splitlines()[1].rstrip() == "Hello from the Kubernetes cluster"


@pytest.mark.windows("CTL-05")
def test_stateful_set(place: Place) -> None:
    place.apply("statefulset")
    place.ready("statefulset/web")
    pods = sorted(place.pods("app=iis"), key=lambda pod: str(pod["metadata"]["name"]))
    assert [pod["metadata"]["name"] for pod in pods] == ["web-0", "web-1"]
    assert pods[0]["status"]["startTime"] <= pods[1]["status"]["startTime"]
    assert [place.exec(f"web-{i}", "hostname") for i in range(2)] == ["web-0\n", "web-1\n"]
    place("delete", "pod", "web-0", timeout=90)
    place.ready("statefulset/web")
    assert place.object("pod", "web-0")["metadata"]["uid"] != pods[0]["metadata"]["uid"]


def test_node_selector_by_build_with_toleration(place: Place) -> None:
    place.apply("tolerating-pod")
    place.ready("pod/tolerating")
    assert place.object("pod", "tolerating")["spec"]["nodeName"] in WINDOWS_NODES
    assert (
        place.exec("tolerating", "cmd", "/c", "ver")
        .strip()
        .startswith("Microsoft Windows [Version 10.0.17763.")
    )
