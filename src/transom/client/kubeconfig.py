"""The address and credentials for the API server, from a kubeconfig or from the service account of
a pod.

Supports client certificates, bearer tokens (also from a file that changes), basic authentication
and impersonation. Exec plugins are rejected with a clear message.
"""

from __future__ import annotations

import base64
import os
import ssl
import tempfile
import time
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from transom.kit.lazy import lazy_import
from transom.kit.lazy_dataclass import dataclass
from transom.kit.tls_pairs import load_certificate_files
from transom.machinery import goyaml

if TYPE_CHECKING:
    import yaml
else:
    yaml = lazy_import("yaml")

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_REREAD_SECONDS = 60.0

_LARGEST: Final = 16 << 20  # bytes


class KubeconfigError(Exception):
    pass


class TokenFile:
    """A bearer token that is renewed by rewriting the file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._token = ""
        self._read = float("-inf")

    def __call__(self) -> str:
        if time.monotonic() - self._read > _REREAD_SECONDS:
            self._token = self.path.read_text().strip()
            self._read = time.monotonic()
        return self._token


@dataclass(frozen=True, slots=True)
class RestConfig:
    host: str
    port: int
    tls: ssl.SSLContext | None = None
    server_name: str = ""  # the name the certificate must have, if it is not the host
    prefix: str = ""  # the path before /api in the URL
    headers: dict[str, str] = field(default_factory=dict)
    token_file: TokenFile | None = None
    namespace: str = "default"
    authority: str = ""  # CA certificates (PEM), if the kubeconfig has its own
    context: str = ""  # the names of the context and its user in the kubeconfig
    user: str = ""
    client_pem: bytes = field(default=b"", repr=False)  # client certificate and key
    verify: bool = True  # the server's certificate

    def request_headers(self) -> list[tuple[str, str]]:
        """The headers of every request."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        headers = [("Host", f"{host}:{self.port}"), *self.headers.items()]
        if self.token_file is not None:
            headers.append(("Authorization", f"Bearer {self.token_file()}"))
        return headers


def default_kubeconfig_paths() -> list[Path]:
    """The files that kubectl would read."""
    listed = [Path(part) for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    return listed or [Path.home() / ".kube" / "config"]


def load_kubeconfig(path: Path | str | None = None, context: str = "") -> RestConfig:
    """The target of a context: the named one or the current one. Without a path, reads the same
    files as kubectl.
    """
    found: dict[str, dict[str, tuple[Any, Path]]] = {"clusters": {}, "users": {}, "contexts": {}}
    current = context
    read = False
    for file in [Path(path)] if path is not None else default_kubeconfig_paths():
        content = _read(file, missing_ok=path is None)
        if content is None:
            continue
        read = True
        current = current or content.get("current-context") or ""
        for section, entries in found.items():
            for entry in content.get(section) or ():
                # The first file that defines a name wins.
                entries.setdefault(entry["name"], (entry.get(section[:-1]) or {}, file.parent))
    if not read:
        raise KubeconfigError(
            f"there is no kubeconfig at {', '.join(map(str, default_kubeconfig_paths()))}"
        )
    chosen, _ = _entry(found, "contexts", current)
    cluster, cluster_folder = _entry(found, "clusters", chosen.get("cluster", ""))
    user, user_folder = (
        _entry(found, "users", chosen["user"]) if chosen.get("user") else ({}, Path())
    )
    found_target = _target(
        cluster, cluster_folder, user, user_folder, chosen.get("namespace") or "default"
    )
    return replace(found_target, context=current, user=chosen.get("user") or "")


def in_cluster_config() -> RestConfig:
    """The target of a process in a pod, from its service account."""
    host, port = (
        os.environ.get("KUBERNETES_SERVICE_HOST"),
        os.environ.get("KUBERNETES_SERVICE_PORT"),
    )
    if not host or not port or not (_ACCOUNT / "token").exists():
        raise KubeconfigError("this process does not run in a pod with a service account")
    tls = ssl.create_default_context(cafile=_ACCOUNT / "ca.crt")
    namespace = (_ACCOUNT / "namespace").read_text().strip()
    return RestConfig(
        host,
        int(port),
        tls,
        token_file=TokenFile(_ACCOUNT / "token"),
        namespace=namespace,
        authority=(_ACCOUNT / "ca.crt").read_text(),
    )


def _read(file: Path, missing_ok: bool) -> dict[str, Any] | None:
    try:
        with file.open("rb") as opened:  # perhaps a pipe; a device may never end
            data = opened.read(_LARGEST + 1)
        if len(data) > _LARGEST:
            raise KubeconfigError(f"{file} is too large for a kubeconfig")
        content = goyaml.load_yaml(data)
    except FileNotFoundError:
        if missing_ok:
            return None
        raise KubeconfigError(f"there is no kubeconfig at {file}") from None
    except (OSError, goyaml.YamlError) as problem:
        raise KubeconfigError(f"{file} cannot be read: {problem}") from problem
    if not isinstance(content, dict):
        raise KubeconfigError(f"{file} is not a kubeconfig")
    return content


def _entry(
    found: dict[str, dict[str, tuple[Any, Path]]], section: str, name: str
) -> tuple[Any, Path]:
    try:
        return found[section][name]
    except KeyError:
        what = section[:-1]
        raise KubeconfigError(
            f"the kubeconfig has no {what} {name!r}" if name else f"no {what} is chosen"
        ) from None


def _target(
    cluster: dict[str, Any],
    cluster_folder: Path,
    user: dict[str, Any],
    user_folder: Path,
    namespace: str,
) -> RestConfig:
    for plugin in ("exec", "auth-provider"):
        if user.get(plugin):
            raise KubeconfigError(
                f"the user needs a credential plugin ({plugin}), which is not supported"
            )
    if cluster.get("proxy-url"):
        raise KubeconfigError("the cluster is behind a proxy (proxy-url), which is not supported")
    url = urlsplit(cluster.get("server") or "")
    if url.scheme not in ("http", "https") or not url.hostname:
        raise KubeconfigError(f"the cluster's server {cluster.get('server')!r} is not a URL")
    secure = url.scheme == "https"
    authority = _authority(cluster, cluster_folder) if secure else ""
    certificate = _material(user, user_folder, "client-certificate")
    key = _material(user, user_folder, "client-key")
    pem = certificate + b"\n" + key if secure and certificate and key else b""
    verify = not cluster.get("insecure-skip-tls-verify")
    tls = _tls(authority, pem, verify) if secure else None
    headers = _identity(user)
    token_file = user.get("tokenFile")
    return RestConfig(
        url.hostname,
        url.port or (443 if secure else 80),
        tls,
        cluster.get("tls-server-name") or "",
        url.path.rstrip("/"),
        headers,
        TokenFile(user_folder / token_file)
        if token_file and "Authorization" not in headers
        else None,
        namespace,
        authority,
        client_pem=pem,
        verify=verify,
    )


def _authority(cluster: dict[str, Any], folder: Path) -> str:
    try:
        return (_material(cluster, folder, "certificate-authority") or b"").decode()
    except UnicodeDecodeError as problem:
        raise KubeconfigError(
            f"the kubeconfig's certificates cannot be used: {problem}"
        ) from problem


def _identity(user: dict[str, Any]) -> dict[str, str]:
    headers = {}
    if user.get("token"):
        headers["Authorization"] = f"Bearer {user['token']}"
    elif user.get("username"):
        pair = f"{user['username']}:{user.get('password', '')}"
        headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
    if user.get("as"):
        headers["Impersonate-User"] = user["as"]
    return headers


def _tls(authority: str, client_pem: bytes, verify: bool) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cadata=authority or None)
        if not verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if client_pem:
            with tempfile.NamedTemporaryFile(
                prefix="transom-"
            ) as pem:  # the ssl module reads keys only from files
                pem.write(client_pem)
                pem.flush()
                load_certificate_files(context, pem.name)
    except ssl.SSLError as problem:
        raise KubeconfigError(
            f"the kubeconfig's certificates cannot be used: {problem}"
        ) from problem
    return context


def config_document(config: RestConfig) -> dict[str, Any]:
    """The target and its credentials as JSON, for a process that acts as the same user. It contains
    secrets: send it through a pipe.
    """
    return {
        "host": config.host,
        "port": config.port,
        "tls": config.tls is not None,
        "server_name": config.server_name,
        "prefix": config.prefix,
        "headers": config.headers,
        "token_file": str(config.token_file.path) if config.token_file else "",
        "namespace": config.namespace,
        "authority": config.authority,
        "context": config.context,
        "user": config.user,
        "client_pem": config.client_pem.decode("latin-1"),
        "verify": config.verify,
    }


def rest_config_from_document(document: dict[str, Any]) -> RestConfig:
    """The inverse of `config_document`."""
    pem, token_file = document["client_pem"].encode("latin-1"), document["token_file"]
    authority, verify = document["authority"], document["verify"]
    return RestConfig(
        **{
            **document,
            "tls": _tls(authority, pem, verify) if document["tls"] else None,
            "token_file": TokenFile(Path(token_file)) if token_file else None,
            "client_pem": pem,
        }
    )


def _material(holder: dict[str, Any], folder: Path, name: str) -> bytes | None:
    """A certificate or key, inline or from a file."""
    try:
        if holder.get(name + "-data"):
            return base64.b64decode(holder[name + "-data"], validate=True)
        return (folder / holder[name]).read_bytes() if holder.get(name) else None
    except (ValueError, OSError) as problem:
        raise KubeconfigError(f"{name} cannot be read: {problem}") from problem
