"""The user's kubeconfig: the cluster's context is put in and taken out, everything else in the file stays.

The file is locked the way kubectl locks it (`FILE.lock`) and replaced in one step.
"""

from __future__ import annotations

import base64
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transom.cluster.config import ClusterConfig
from transom.cluster.errors import ClusterError
from transom.cluster.pki import ClusterPki
from transom.kit.files import write_atomic

_LISTS = ("clusters", "users", "contexts")
_LOCK_SECONDS = 5.0


def default_path() -> Path:
    """Where kubectl would write: the first file of $KUBECONFIG, else ~/.kube/config."""
    for part in os.environ.get("KUBECONFIG", "").split(os.pathsep):
        if part:
            return Path(part).absolute()
    return Path.home() / ".kube" / "config"


def entries(config: ClusterConfig, pki: ClusterPki) -> dict[str, Any]:
    """A kubeconfig with this cluster alone."""
    name = config.name

    def data(path: Path) -> str:
        return base64.b64encode(path.read_bytes()).decode()

    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": name, "cluster": {"certificate-authority-data": data(pki.ca), "server": config.url}},
        ],
        "users": [
            {
                "name": name,
                "user": {
                    "client-certificate-data": data(pki.admin_cert),
                    "client-key-data": data(pki.admin_key),
                },
            },
        ],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
        "preferences": {},
    }


def merge(path: Path, new: dict[str, Any]) -> None:
    """Puts the entries of `new` into the file, replacing those of the same name, and makes its context current."""
    with _locked(path):
        content = _read(path)
        for key in _LISTS:
            names = {entry["name"] for entry in new[key]}
            content[key] = [e for e in content.get(key) or [] if e.get("name") not in names] + new[key]
        content["current-context"] = new["current-context"]
        for key in ("apiVersion", "kind", "preferences"):
            content.setdefault(key, new[key])
        _write(path, content)


def remove(path: Path, name: str) -> bool:
    """Takes the cluster out of the file again; False when it was not there."""
    if not path.exists():
        return False
    with _locked(path):
        content = _read(path)
        found = False
        for key in _LISTS:
            kept = [e for e in content.get(key) or [] if e.get("name") != name]
            found = found or len(kept) != len(content.get(key) or [])
            content[key] = kept
        if content.get("current-context") == name:
            content["current-context"] = ""
            found = True
        if found:
            _write(path, content)
        return found


def render(content: dict[str, Any]) -> bytes:
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text: str = yaml.dump(content, Dumper=dumper, sort_keys=False, default_flow_style=False, width=1 << 20)
    return text.encode()


def _read(path: Path) -> dict[str, Any]:
    import yaml

    try:
        content = yaml.load(path.read_bytes(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except FileNotFoundError:
        return {}
    except yaml.YAMLError as error:
        raise _unusable(path, str(error).partition("\n")[0]) from error
    if content is None:
        return {}
    if not isinstance(content, dict) or any(
        not isinstance(content.get(key) or [], list) or not all(isinstance(e, dict) for e in content.get(key) or [])
        for key in _LISTS
    ):
        raise _unusable(path, "not the shape of a kubeconfig")
    return content


def _unusable(path: Path, why: str) -> ClusterError:
    return ClusterError(f"{path} is no kubeconfig ({why})", "repair it, or choose another file with --kubeconfig FILE")


def _write(path: Path, content: dict[str, Any]) -> None:
    write_atomic(Path(os.path.realpath(path)), render(content), 0o600)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    lock = path.with_name(path.name + ".lock")
    try:
        path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        deadline = time.monotonic() + _LOCK_SECONDS
        while True:
            try:
                os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
                break
            except FileExistsError:
                if time.monotonic() > deadline:
                    raise ClusterError(
                        f"{path} is locked by another program", f"if none is writing to it, remove {lock}"
                    ) from None
                time.sleep(0.02)
    except OSError as error:
        raise ClusterError(
            f"cannot write {path}: {error.strerror}", "choose another file with --kubeconfig FILE"
        ) from error
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
