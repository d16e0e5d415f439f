"""`transom webhook` as a separate process, called by an API server through a
ValidatingWebhookConfiguration.
"""

from __future__ import annotations

import json
import secrets
import ssl
import subprocess
import sys
import urllib.request
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.conftest import Kubectl

from transom.cli.webhook import _make_keys
from transom.kit import pki
from transom.webhook import manifests
from transom.webhook.server import WebhookServer
from transom.windows.advice import Advisor
from transom.windows.policy import WarningPolicy
from transom.windows.target_nodes import target_nodes_from_options

pytestmark = pytest.mark.e2e


@contextmanager
def webhook(*options: str) -> Iterator[tuple[str, str]]:
    """Its URL and caBundle."""
    command = [
        sys.executable,
        "-m",
        "transom.cli.main",
        "webhook",
        "--port",
        "0",
        "--self-signed",
        *options,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            url, bundle = (process.stdout.readline().split(": ", 1) for _ in range(2))
            assert (url[0], bundle[0]) == ("url", "caBundle")
            yield url[1].strip(), bundle[1].strip()
        finally:
            process.terminate()
    assert process.returncode == 0


@contextmanager
def registered(kubectl: Kubectl, url: str, bundle: str) -> Iterator[str]:
    """A namespace whose pods the webhook is asked about."""
    name = f"hooked-{secrets.token_hex(4)}"
    configuration = manifests.webhook_manifests()[-1]
    configuration["metadata"] = {"name": name}
    hook = configuration["webhooks"][0]
    hook["clientConfig"] = {"url": url, "caBundle": bundle}
    hook["failurePolicy"] = "Fail"
    hook["namespaceSelector"] = {"matchLabels": {"hooked": name}}
    kubectl("create", "namespace", name)
    kubectl("label", "namespace", name, f"hooked={name}")
    kubectl("apply", "--filename", "-", stdin=json.dumps(configuration))
    try:
        yield name
    finally:
        kubectl("delete", "validatingwebhookconfiguration", name)
        kubectl("delete", "namespace", name, "--wait=false")


def deployment(os: str, **spec: object) -> str:
    pod = {
        "nodeSelector": {"kubernetes.io/os": os},
        "containers": [{"name": "c", "image": "example/app"}],
        **spec,
    }
    return json.dumps(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": f"on-{os}"},
            "spec": {
                "selector": {"matchLabels": {"a": "b"}},
                "template": {"metadata": {"labels": {"a": "b"}}, "spec": pod},
            },
        }
    )


def test_kubectl_sees_warnings_and_refusals(kubectl: Kubectl) -> None:
    nfs = [{"name": "n", "nfs": {"server": "s", "path": "/"}}]
    options = ("--runtime", "containerd", "--build", "ltsc2022", "--reject", "WIN-STO-*")
    with webhook(*options) as (url, bundle), registered(kubectl, url, bundle) as namespace:
        apply = ("--namespace", namespace, "apply", "--filename", "-")
        done = kubectl(*apply, stdin=deployment("windows", hostNetwork=True))
        assert done.stderr.startswith(
            "Warning: WIN-POD-003: spec.template.spec.hostNetwork: hostNetwork is ignored by "
            "containerd. "
        )
        assert (
            kubectl(*apply, stdin=deployment("linux", hostNetwork=True, volumes=nfs)).stderr == ""
        )
        refused = kubectl(*apply, stdin=deployment("windows", volumes=nfs), check=False)
        assert refused.returncode == 1
        text = 'admission webhook "windows-limits.transom.dev" denied the request: WIN-STO-010: '
        assert text in refused.stderr


def test_health_and_certificates() -> None:
    with webhook("--host", "hook.example.com") as (url, bundle):
        trusting = ssl.create_default_context(cadata=b64decode(bundle).decode())
        with urllib.request.urlopen(
            url.replace("/validate", "/healthz"), context=trusting
        ) as answered:
            assert answered.read() == b"ok\n"


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ((), "--self-signed"),
        (("--self-signed", "--cert-file", "x"), "--self-signed"),
        (("--self-signed", "--build", "1999"), "ltsc2022"),
        (("--self-signed", "--reject", "WIN-POT-002"), "WIN-POD-002"),
        (("--cert-file", "/none", "--key-file", "/none"), "cannot be used"),
    ],
)
def test_mistakes_are_reported(options: tuple[str, ...], hint: str) -> None:
    command = [sys.executable, "-m", "transom.cli.main", "webhook", "--port", "0", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode in (1, 2) and hint in done.stderr


def test_a_replaced_certificate_is_taken_up(tmp_path: Path) -> None:
    files = tmp_path / "tls.crt", tmp_path / "tls.key"

    def write() -> bytes:
        keys = _make_keys(("localhost",))
        pki.save_key_pair(pki.KeyPair(keys.certificate, keys.key), *files)
        return keys.authority

    write()
    served = WebhookServer(
        Advisor(target_nodes_from_options(), WarningPolicy(), lambda _: None), *files
    )
    authority = write()
    assert not _agrees(served, authority)
    files[1].write_bytes(b"half a key")
    served.renew()
    authority = write()
    served.renew()
    assert _agrees(served, authority)


def _agrees(served: WebhookServer, authority: bytes) -> bool:
    """A handshake in memory with a client that trusts this authority alone."""
    client = ssl.create_default_context(cadata=authority.decode())
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname="localhost"),
        served._context.wrap_bio(to_server, to_client, server_side=True),
    ]
    agreed = 0
    for turn in range(8):
        try:
            ends[turn % 2].do_handshake()
            agreed += 1
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLError:
            return False
    return agreed >= 2
