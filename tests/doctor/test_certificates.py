"""Certificates that have expired or expire soon are reported, with a command that replaces them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.doctor.virtual_cluster import VirtualCluster, virtual_cluster

from transom.cluster.pki import ensure_cluster_pki
from transom.kit import pki as kit

DAY = 86400.0


def _ending(file: Path, seconds: float, now: float, *, authority: bool) -> None:
    """Writes a certificate that ends so many seconds from now."""
    begin = now + seconds - 100 * DAY
    ca = kit.make_ca("kubernetes", days=100, now=begin)
    pair = ca if authority else kit.issue_client(ca, "x", days=100, now=begin)
    file.parent.mkdir(parents=True, exist_ok=True)
    kit.save_key_pair(pair, file, file.with_suffix(".key"))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with virtual_cluster(tmp_path_factory.mktemp("certificates")) as (cluster, run):
        ensure_cluster_pki(cluster.config)
        yield lambda scenario: run(scenario(cluster))


CERTIFICATES = {
    "ca": "the cluster's certificate authority",
    "apiserver": "the API server's certificate",
    "apiserver-kubelet-client": "the certificate with which the API server calls kubelets",
    "front-proxy-ca": "the front proxy's certificate authority",
    "front-proxy-client": "the front proxy's client certificate",
    "admin": "the administrator's client certificate",
}
Run = Callable[[Callable[[VirtualCluster], Any]], Any]


@pytest.mark.parametrize(("stem", "label"), CERTIFICATES.items())
@pytest.mark.parametrize(
    ("ends", "severity", "what"),
    [(-DAY, "error", "has expired"), (3.5 * DAY, "warning", "expires in 3 days")],
)
def test_a_certificate_of_the_control_plane(
    run: Run, stem: str, label: str, ends: float, severity: str, what: str
) -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        assert await cluster.doctor() == []
        file = cluster.config.pki / f"{stem}.crt"
        _ending(file, ends, cluster.clock.time(), authority=stem.endswith("ca"))
        [one] = await cluster.doctor()
        assert (one.severity, one.what, one.where) == (severity, f"{label} {what}", ())
        files, _, restart = one.remedy.partition(" && ")
        assert restart == "transom down --name doctor && transom up --name doctor"
        words = files.split()
        assert words.pop(0) == "rm"
        for word in words:
            os.remove(word)
        ensure_cluster_pki(cluster.config)  # what `transom up` does
        assert await cluster.doctor() == []

    run(scenario)


def test_a_kubelets_certificate(run: Run) -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        file = cluster.pool.node("windows-1").kubelet_certificate
        _ending(file, -DAY, cluster.clock.time(), authority=False)
        [one] = await cluster.doctor()
        assert (one.what, one.where) == (
            "the kubelet's serving certificate has expired",
            ("node/windows-1",),
        )
        assert one.remedy == f"rm {file} && transom node reboot windows-1 --name doctor"
        file.write_text("nonsense")
        [one] = await cluster.doctor()
        assert one.what.startswith("the kubelet's serving certificate cannot be read: ")
        file.unlink()
        assert await cluster.doctor() == []

    run(scenario)


def test_a_new_authority_signs_everything_again(run: Run) -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        before = {stem: (cluster.config.pki / f"{stem}.crt").read_bytes() for stem in CERTIFICATES}
        for suffix in ("crt", "key"):
            (cluster.config.pki / f"ca.{suffix}").unlink()
        ensure_cluster_pki(cluster.config)
        changed = {
            stem
            for stem in CERTIFICATES
            if (cluster.config.pki / f"{stem}.crt").read_bytes() != before[stem]
        }
        assert changed == {"ca", "apiserver", "apiserver-kubelet-client", "admin"}

    run(scenario)
