"""The user's kubeconfig: adds and removes the cluster's context and leaves everything else
unchanged.

Locks the file as kubectl does (`FILE.lock`) and replaces it atomically.
"""

from __future__ import annotations

import base64
import errno
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transom.cluster.config import ClusterConfig
from transom.cluster.pki import ClusterPki
from transom.kit.files import write_atomic
from transom.kit.lazy import lazy_import
from transom.kit.user_errors import EXIT_DISK, UserError, of_disk
from transom.machinery import goyaml

if TYPE_CHECKING:
    import yaml
else:
    yaml = lazy_import("yaml")

_LISTS = ("clusters", "users", "contexts")
_LOCK_SECONDS = 5.0
_OTHER = "choose another file with --kubeconfig FILE"


def default_kubeconfig_path() -> Path:
    """The file that kubectl would write: the first file of $KUBECONFIG, otherwise
    ~/.kube/config.
    """
    for part in os.environ.get("KUBECONFIG", "").split(os.pathsep):
        if part:
            return Path(part).absolute()
    return Path.home() / ".kube" / "config"


def make_kubeconfig_entries(config: ClusterConfig, pki: ClusterPki) -> dict[str, Any]:
    """A kubeconfig that contains only this cluster."""
    name = config.name

    def data(path: Path) -> str:
        return base64.b64encode(path.read_bytes()).decode()

    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": name,
                "cluster": {"certificate-authority-data": data(pki.ca), "server": config.url},
            },
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


def check_kubeconfig(path: Path) -> None:
    """Raises UserError if `merge_kubeconfig` could not write a context to the file. Changes
    nothing.
    """
    folder = path.parent
    if folder.is_dir():
        with _locked(path):
            if path.exists():
                _read(path)
        folder = Path(os.path.realpath(path)).parent
    else:
        while not folder.exists():
            folder = folder.parent
    if not folder.is_dir():
        raise _inaccessible("write", path, errno.ENOTDIR if folder.exists() else errno.ENOENT)
    if not os.access(folder, os.W_OK):
        raise _inaccessible("write", path, errno.EACCES)


def merge_kubeconfig(path: Path, new: dict[str, Any]) -> None:
    """Merges the entries of `new` into the file, replacing those of the same name, and makes its
    context current.
    """
    with _locked(path):
        content = _read(path)
        for key in _LISTS:
            names = {entry["name"] for entry in new[key]}
            content[key] = [e for e in content.get(key) or [] if e.get("name") not in names] + new[
                key
            ]
        content["current-context"] = new["current-context"]
        for key in ("apiVersion", "kind", "preferences"):
            content.setdefault(key, new[key])
        _write(path, content)


def remove_from_kubeconfig(path: Path, name: str) -> bool:
    """Removes the cluster from the file; False if it was not there."""
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


def render_kubeconfig(content: dict[str, Any]) -> bytes:
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text: str = yaml.dump(
        content, Dumper=dumper, sort_keys=False, default_flow_style=False, width=1 << 20
    )
    return text.encode()


def _read(path: Path) -> dict[str, Any]:
    if path.exists() and not path.is_file() and not path.is_dir():  # a device or a pipe
        raise _unusable(path, "it is not a regular file")
    try:
        content = goyaml.load_yaml(path.read_bytes())
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise _inaccessible("read", path, error.errno) from error
    except (goyaml.YamlError, ValueError) as error:
        raise _unusable(path, str(error).partition("\n")[0]) from error
    if content is None:
        return {}
    if not isinstance(content, dict) or any(
        not isinstance(content.get(key) or [], list)
        or not all(isinstance(e, dict) for e in content.get(key) or [])
        for key in _LISTS
    ):
        raise _unusable(path, "clusters, users and contexts must be lists of mappings")
    return content


def _unusable(path: Path, why: str) -> UserError:
    return UserError(
        f"{path} is not a valid kubeconfig: {why}",
        "repair it, or choose another file with --kubeconfig FILE",
    )


def _inaccessible(verb: str, path: Path, number: int | None) -> UserError:
    error = OSError(number, os.strerror(number)) if number else OSError()
    code = EXIT_DISK if of_disk(error) is not None else 1
    return UserError(f"cannot {verb} {path}: {error.strerror}", _OTHER, code)


def _write(path: Path, content: dict[str, Any]) -> None:
    write_atomic(Path(os.path.realpath(path)), render_kubeconfig(content), 0o600)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    lock = path.with_name(path.name + ".lock")
    try:
        path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        _acquire(path, lock)
    except OSError as error:
        raise _inaccessible("write", path, error.errno) from error
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)


def _acquire(path: Path, lock: Path) -> None:
    """The lock file contains its owner from the start, so that a lock left by a killed process can
    be removed.
    """
    deadline = time.monotonic() + _LOCK_SECONDS
    own = lock.with_name(f".{lock.name}.{os.getpid()}")
    try:
        with open(os.open(own, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "wb") as file:
            file.write(b"transom %d\n" % os.getpid())
        while True:
            try:
                os.link(own, lock)
                return
            except FileExistsError:
                if _is_abandoned(lock):
                    lock.unlink(missing_ok=True)
                    continue
                if time.monotonic() > deadline:
                    raise UserError(
                        f"{path} is locked by another program",
                        f"if none is writing to it, remove {lock}",
                    ) from None
                time.sleep(0.02)
    finally:
        own.unlink(missing_ok=True)


def _is_abandoned(lock: Path) -> bool:
    """Whether a transom process that has ended left the lock; other programs do not identify
    themselves.
    """
    try:
        words = lock.read_bytes().split()
    except OSError:
        return False
    if len(words) != 2 or words[0] != b"transom" or not words[1].isdigit():
        return False
    try:
        os.kill(int(words[1]), 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        return False
    return False
