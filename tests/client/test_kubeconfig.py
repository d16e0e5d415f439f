"""Kubeconfigs: what is found in them, and the errors for bad ones."""

from __future__ import annotations

import json
import ssl
from pathlib import Path

import pytest
import yaml

from transom.client.kubeconfig import (
    KubeconfigError,
    config_document,
    load_kubeconfig,
    rest_config_from_document,
)


def write(path: Path, **more: object) -> Path:
    content = {
        "current-context": "c",
        "clusters": [{"name": "k", "cluster": {"server": "https://example.test:8443/base/"}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "team"}}],
        **more,
    }
    path.write_text(yaml.safe_dump(content))
    return path


def test_server_and_token(tmp_path: Path) -> None:
    target = load_kubeconfig(write(tmp_path / "config"))
    assert (target.host, target.port, target.prefix, target.namespace) == (
        "example.test",
        8443,
        "/base",
        "team",
    )
    assert target.tls is not None
    assert target.request_headers() == [
        ("Host", "example.test:8443"),
        ("Authorization", "Bearer secret"),
    ]


def test_token_from_a_file_beside_it(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("fresh\n")
    target = load_kubeconfig(
        write(
            tmp_path / "config", users=[{"name": "u", "user": {"tokenFile": "token", "as": "jane"}}]
        )
    )
    headers = dict(target.request_headers())
    assert (headers["Authorization"], headers["Impersonate-User"]) == ("Bearer fresh", "jane")


def test_the_first_of_several_files_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "one", users=[])
    write(tmp_path / "two", clusters=[{"name": "k", "cluster": {"server": "https://other.test"}}])
    monkeypatch.setenv(
        "KUBECONFIG", f"{tmp_path / 'missing'}:{tmp_path / 'one'}:{tmp_path / 'two'}"
    )
    target = load_kubeconfig()
    assert target.host == "example.test" and target.headers["Authorization"] == "Bearer secret"


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"current-context": "x"}, "no context 'x'"),
        ({"clusters": []}, "no cluster 'k'"),
        ({"users": [{"name": "u", "user": {"exec": {"command": "x"}}}]}, "credential plugin"),
        ({"clusters": [{"name": "k", "cluster": {"server": "example.test"}}]}, "is not a URL"),
        (
            {
                "clusters": [
                    {
                        "name": "k",
                        "cluster": {"server": "https://e.test", "certificate-authority": "no.crt"},
                    }
                ]
            },
            "no.crt",
        ),
        (
            {
                "clusters": [
                    {
                        "name": "k",
                        "cluster": {
                            "server": "https://e.test",
                            "certificate-authority-data": "eA==",
                        },
                    }
                ]
            },
            "cannot be used",
        ),
    ],
)
def test_bad_ones_are_explained(tmp_path: Path, more: dict[str, object], text: str) -> None:
    with pytest.raises(KubeconfigError, match=text):
        load_kubeconfig(write(tmp_path / "config", **more))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError, match="there is no kubeconfig at"):
        load_kubeconfig(tmp_path / "nothing")


def test_a_file_without_an_end_is_refused() -> None:
    with pytest.raises(KubeconfigError, match="/dev/zero is too large for a kubeconfig"):
        load_kubeconfig("/dev/zero")


@pytest.mark.parametrize(
    "user", [{"token": "secret"}, {"tokenFile": "token", "as": "jane"}, {"username": "jane"}]
)
def test_another_process_acts_as_the_same_user(tmp_path: Path, user: dict[str, str]) -> None:
    (tmp_path / "token").write_text("fresh\n")
    cluster = {"server": "https://example.test:8443/base", "insecure-skip-tls-verify": True}
    file = write(
        tmp_path / "config",
        users=[{"name": "u", "user": user}],
        clusters=[{"name": "k", "cluster": cluster}],
    )
    target = load_kubeconfig(file)
    again = rest_config_from_document(json.loads(json.dumps(config_document(target))))
    assert again.request_headers() == target.request_headers()
    for name in ("host", "port", "prefix", "namespace", "context", "user", "verify"):
        assert getattr(again, name) == getattr(target, name)
    assert again.tls is not None and again.tls.verify_mode is ssl.CERT_NONE
