"""What controller-runtime's envtest does to start a control plane, step by step: the help of each
program, free ports, certificates of its own, the flags, polling, users, and the signal to stop.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from transom.cluster.envtest.setup import write_envtest_assets
from transom.kit.pki import KeyPair, issue_client, issue_server, make_ca, save_key_pair

pytestmark = pytest.mark.e2e

START_SECONDS = 60.0  # envtest: 20; the tests share a machine
STOP_SECONDS = 20.0
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "lamps.example.com"},
    "spec": {
        "group": "example.com",
        "names": {"kind": "Lamp", "plural": "lamps", "singular": "lamp", "listKind": "LampList"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def anonymous() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def poll_until_ok(
    url: str, process: subprocess.Popen[bytes], context: ssl.SSLContext | None = None
) -> None:
    context = context or anonymous()
    deadline = time.monotonic() + START_SECONDS
    ended = os.pidfd_open(process.pid)
    try:
        while time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(url, context=context, timeout=5) as answer:
                    if answer.status == 200:
                        return
            except OSError:
                if select.select([ended], [], [], 0.1)[0]:
                    raise AssertionError(f"{process.args!r} ended") from None
    finally:
        os.close(ended)
    raise AssertionError(f"{url} is not ready")


@dataclass
class ControlPlane:
    port: int
    serving_ca: KeyPair
    clients: KeyPair
    folder: Path
    etcd: subprocess.Popen[bytes]
    api: subprocess.Popen[bytes]
    api_arguments: list[str]

    def context(self, user: str, groups: Sequence[str] = ()) -> ssl.SSLContext:
        pair = issue_client(self.clients, user, groups)
        cert, key = self.folder / f"{user}.crt", self.folder / f"{user}.key"
        save_key_pair(pair, cert, key)
        context = ssl.create_default_context(cadata=self.serving_ca.certificate.decode())
        context.load_cert_chain(cert, key)
        return context

    def request(self, method: str, path: str, body: Any = None, user: str = "admin") -> Any:
        groups = ["system:masters"] if user == "admin" else []
        context = self.context(user, groups)
        request = urllib.request.Request(
            f"https://127.0.0.1:{self.port}{path}",
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/json"},
            method=method,
        )
        with urllib.request.urlopen(request, context=context, timeout=30) as answer:
            return json.loads(answer.read())


def stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    assert process.wait(STOP_SECONDS) == 0


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    assets = tmp_path_factory.mktemp("assets")
    write_envtest_assets(assets, "1.36")
    data, certs = tmp_path_factory.mktemp("etcd"), tmp_path_factory.mktemp("certs")
    etcd_url = f"http://127.0.0.1:{free_port()}"
    etcd = subprocess.Popen(
        [
            assets / "etcd",
            f"--advertise-client-urls={etcd_url}",
            f"--data-dir={data}",
            f"--listen-client-urls={etcd_url}",
            f"--listen-peer-urls=http://127.0.0.1:{free_port()}",
            "--unsafe-no-fsync=true",
        ]
    )
    poll_until_ok(f"{etcd_url}/health", etcd)
    serving_ca, clients, accounts = make_ca("serving"), make_ca("clients"), make_ca("accounts")
    serving = issue_server(serving_ca, "localhost", ["localhost"], ["127.0.0.1"])
    save_key_pair(serving, certs / "apiserver.crt", certs / "apiserver.key")
    save_key_pair(accounts, certs / "sa-signer.crt", certs / "sa-signer.key")
    (certs / "client-cert-auth-ca.crt").write_bytes(clients.certificate)
    port = free_port()
    arguments = [
        str(assets / "kube-apiserver"),
        "--allow-privileged=true",
        "--authorization-mode=RBAC",
        "--bind-address=127.0.0.1",
        f"--cert-dir={certs}",
        f"--client-ca-file={certs}/client-cert-auth-ca.crt",
        "--disable-admission-plugins=ServiceAccount",
        f"--etcd-servers={etcd_url}",
        f"--secure-port={port}",
        f"--service-account-issuer=https://127.0.0.1:{port}/",
        f"--service-account-key-file={certs}/sa-signer.crt",
        f"--service-account-signing-key-file={certs}/sa-signer.key",
        "--service-cluster-ip-range=10.0.0.0/24",
    ]
    api = subprocess.Popen(arguments)
    found = ControlPlane(port, serving_ca, clients, certs, etcd, api, arguments)
    try:
        poll_until_ok(f"https://127.0.0.1:{port}/healthz", api)
        yield found
        stop(found.api)
        stop(found.etcd)
    finally:
        for process in (found.api, found.etcd):
            if process.poll() is None:
                process.kill()
                process.wait()


@pytest.mark.parametrize(
    ("program", "flag", "present"),
    [
        ("etcd", "unsafe-no-fsync", True),
        ("kube-apiserver", "insecure-port", False),
        ("kube-apiserver", "secure-port", True),
    ],
)
def test_the_help_shows_the_flags(program: str, flag: str, present: bool, tmp_path: Path) -> None:
    write_envtest_assets(tmp_path, "1.36")
    done = subprocess.run(
        [tmp_path / program, "--help"], capture_output=True, text=True, check=True
    )
    lines = [line.strip().split() for line in done.stdout.splitlines() if line.strip()]
    assert ([f"--{flag}"] in [words[:1] for words in lines]) is present


def test_users_have_their_own_certificates(plane: ControlPlane) -> None:
    assert plane.request("GET", "/version")["gitVersion"].startswith("v1.36.")
    found = plane.request("GET", "/api/v1/namespaces")["items"]
    assert "default" in [namespace["metadata"]["name"] for namespace in found]
    with pytest.raises(urllib.error.HTTPError) as problem:
        plane.request("GET", "/api/v1/secrets", user="somebody")
    assert problem.value.code == 403
    message = json.loads(problem.value.read())["message"]
    assert 'User "somebody" cannot list resource "secrets"' in message


def test_there_are_no_controllers_and_no_service_accounts(plane: ControlPlane) -> None:
    plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": "own"}})
    pod = {"metadata": {"name": "web"}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}}
    made = plane.request("POST", "/api/v1/namespaces/own/pods", pod)
    assert made["status"]["phase"] == "Pending"
    assert "serviceAccountName" not in made["spec"] and "volumes" not in made["spec"]
    assert plane.request("GET", "/api/v1/namespaces/own/serviceaccounts")["items"] == []


def test_tokens_are_signed_with_the_keys_of_the_suite(plane: ControlPlane) -> None:
    account = {"metadata": {"name": "robot"}}
    plane.request("POST", "/api/v1/namespaces/default/serviceaccounts", account)
    path = "/api/v1/namespaces/default/serviceaccounts/robot/token"
    token = plane.request("POST", path, {"spec": {}})["status"]["token"]
    review = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": token},
    }
    answer = plane.request("POST", "/apis/authentication.k8s.io/v1/tokenreviews", review)
    assert answer["status"]["user"]["username"] == "system:serviceaccount:default:robot"
    document = plane.request("GET", "/.well-known/openid-configuration")
    assert document["issuer"] == f"https://127.0.0.1:{plane.port}/"


def test_definitions_survive_a_restart_of_the_api_server(plane: ControlPlane) -> None:
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    plane.request("POST", definitions, DEFINITION)
    lamps = "/apis/example.com/v1/namespaces/default/lamps"
    lamp = {"apiVersion": "example.com/v1", "kind": "Lamp", "metadata": {"name": "a"}}
    plane.request("POST", lamps, lamp)
    stop(plane.api)
    plane.api = subprocess.Popen(plane.api_arguments)
    poll_until_ok(f"https://127.0.0.1:{plane.port}/healthz", plane.api)
    assert [one["metadata"]["name"] for one in plane.request("GET", lamps)["items"]] == ["a"]


def test_anonymous_requests_can_be_refused(plane: ControlPlane) -> None:
    stop(plane.api)
    plane.api = subprocess.Popen([*plane.api_arguments, "--anonymous-auth=false"])
    url = f"https://127.0.0.1:{plane.port}/livez"
    poll_until_ok(url, plane.api, plane.context("ann"))
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(url, context=anonymous(), timeout=30)


def test_errors_name_the_flag(plane: ControlPlane) -> None:
    def error(*changed: str) -> str:
        done = subprocess.run(
            [*plane.api_arguments, *changed], capture_output=True, text=True, timeout=60
        )
        assert done.returncode != 0
        return done.stderr

    assert "unrecognized feature gate: None" in error(
        "--feature-gates=None=true", "--secure-port=0"
    )
    assert "Address already in use" in error()
    assert "unexpected argument 'run'" in error("run")
    plane.api_arguments = [*plane.api_arguments[:1], "--authorization-mode=AlwaysAllow"]
    assert "RBAC is needed" in error()
