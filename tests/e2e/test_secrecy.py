"""What a cluster leaves on the machine: no other user can read it, and no log or event contains a
secret.
"""

from __future__ import annotations

import base64
import json
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.conftest import Cluster, Kubectl, kubectl_binaries
from tests.e2e.identities import become, eventually, legacy_token, token_request

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

# Everything is to be recorded as completely as the policy can say without naming secrets.
POLICY = """
apiVersion: audit.k8s.io/v1
kind: Policy
rules: [{level: RequestResponse}]
"""
PUBLIC = (".crt", ".pub", ".names")


@pytest.fixture(scope="module")
def private(tmp_path_factory: pytest.TempPathFactory, cluster: Cluster) -> Iterator[Kubectl]:
    """A cluster that audits and encrypts, started by a user whose umask protects nothing."""
    binaries = kubectl_binaries()
    if not binaries:
        pytest.skip("no kubectl on this machine")
    folder = tmp_path_factory.mktemp("private")
    (folder / "policy.yaml").write_text(POLICY)
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text("apiVersion: v1\nkind: Config\n")
    kubeconfig.chmod(0o644)
    env = {**cluster.env, "XDG_DATA_HOME": str(folder / "data"), "KUBECONFIG": str(kubeconfig)}
    made = Cluster(f"private-{secrets.token_hex(4)}", kubeconfig, env)
    up = [
        "up",
        "--no-nodes",
        "--encrypt",
        "--audit-policy",
        str(folder / "policy.yaml"),
        "--name",
        made.name,
    ]
    done = subprocess.run(
        [sys.executable, "-m", "transom.cli.main", *up],
        env=env,
        umask=0,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    yield Kubectl(binaries[0], made)
    made.transom("delete", "--name", made.name)
    assert not (folder / "data" / "transom" / made.name).exists()


def state(kubectl: Kubectl) -> Path:
    return Path(kubectl.cluster.env["XDG_DATA_HOME"]) / "transom" / kubectl.cluster.name


def test_files_are_for_their_owner_alone(private: Kubectl) -> None:
    folder = state(private)
    found = {
        path.relative_to(folder): path.stat().st_mode & 0o777
        for path in [folder, *folder.rglob("*")]
    }
    assert {str(p) for p in found} >= {
        "store.db",
        "audit.log",
        "encryption.keys",
        "transom.log",
        "kubeconfig",
        "pki/ca.key",
    }
    assert found[Path()] == found[Path("pki")] == 0o700
    loose = {
        str(path): oct(mode)
        for path, mode in found.items()
        if mode & 0o077 and path.suffix not in PUBLIC
    }
    assert not loose
    # The user's own kubeconfig holds a key now, whatever its mode was before.
    assert private.cluster.kubeconfig.stat().st_mode & 0o777 == 0o600


def test_nothing_secret_is_logged(private: Kubectl, tmp_path: Path) -> None:
    ns = "secrecy"
    words = {
        name: f"{name}-{secrets.token_hex(8)}"
        for name in ("literal", "applied", "patched", "broken", "typed", "wrong")
    }
    private("create", "namespace", ns)

    def run(*args: str, **more: Any) -> Any:
        return private("-n", ns, *args, **more)

    def secret(name: str, **fields: Any) -> str:
        return json.dumps(
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, **fields}
        )

    # Secrets in each way they come, also those that are refused.
    run("create", "secret", "generic", "a", f"--from-literal=password={words['literal']}")
    run("apply", "-f", "-", stdin=secret("b", stringData={"password": words["applied"]}))
    run("patch", "secret", "b", "-p", json.dumps({"stringData": {"password": words["patched"]}}))
    path = f"/api/v1/namespaces/{ns}/secrets"
    for body in (
        secret("c", data={"password": words["broken"]}),
        secret("c", data=words["typed"])[:-1],
        secret("c", type="kubernetes.io/tls", stringData={"tls.key": words["wrong"]}),
    ):
        assert run("create", "--raw", path, "-f", "-", stdin=body, check=False).returncode != 0
    # Tokens of each sort, used, reviewed and revoked.
    run("create", "serviceaccount", "robot")
    name, legacy = legacy_token(private, ns, "robot")
    tokens = [legacy, token_request(private, ns, "robot")]
    for token in tokens:
        robot = become(private, tmp_path, {"token": token}, ns)
        robot("get", "pods", check=False)
        review = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token},
        }
        answer = run(
            "create",
            "--raw",
            "/apis/authentication.k8s.io/v1/tokenreviews",
            "-f",
            "-",
            stdin=json.dumps(review),
        )
        assert json.loads(answer.stdout)["status"]["authenticated"]
        run("get", "--raw", f"/api/v1/namespaces?token={token}")
    run("delete", "secret", name)
    become(private, tmp_path, {"token": legacy}, ns)("get", "pods", check=False)
    run("run", "user", "--image=x", "--restart=Never")
    eventually(lambda: run("get", "events", "-o", "name").stdout)
    run("get", "secrets", "-o", "yaml")
    run("create", "configmap", "open", "--from-literal=word=to-be-recorded")

    audit = state(private) / "audit.log"
    eventually(lambda: "to-be-recorded" in audit.read_text())  # all before it is there too
    admin = yaml.safe_load(private.cluster.kubeconfig.read_text())["users"][0]["user"]
    keys = [base64.b64decode(admin["client-key-data"]).decode().splitlines()[1]]
    keys += [key.read_text().splitlines()[1] for key in (state(private) / "pki").glob("*.key")]
    keys += [(state(private) / "encryption.keys").read_text().split()[-1]]
    signatures = [token.rpartition(".")[2] for token in tokens]
    plain = [*words.values(), *signatures, *keys]
    hidden = {
        form: word for word in plain for form in (word, base64.b64encode(word.encode()).decode())
    }

    places = {
        str(path): path.read_bytes()
        for path in state(private).rglob("*")
        if path.is_file()
        and path.suffix not in (".key", ".keys", ".kubeconfig")
        and path.name != "kubeconfig"
    }
    assert {Path(path).name for path in places} >= {"transom.log", "audit.log", "store.db"}
    places["transom logs"] = private.cluster.transom(
        "logs", "--name", private.cluster.name
    ).stdout.encode()
    places["transom status"] = private.cluster.transom(
        "status", "--name", private.cluster.name
    ).stdout.encode()
    places["events"] = private("get", "events", "-A", "-o", "yaml").stdout.encode()
    pid = (state(private) / "transom.pid").read_text().strip()
    places["command line"] = Path(f"/proc/{pid}/cmdline").read_bytes()
    leaks = {
        (place, word)
        for place, content in places.items()
        for form, word in hidden.items()
        if form.encode() in content
    }
    assert not leaks
    assert "Traceback" not in places["transom logs"].decode()
