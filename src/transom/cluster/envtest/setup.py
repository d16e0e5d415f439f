"""Writes the folder that KUBEBUILDER_ASSETS names: `kube-apiserver`, `etcd` and `kubectl`."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

from transom.cluster.envtest.apiserver import RELEASE_FLAG
from transom.kit.files import write_atomic
from transom.kit.user_errors import EXIT_USAGE, UserError
from transom.node.settings import RELEASES, clusters_dir

_NO_KUBECTL = """\
#!/bin/sh
echo "kubectl was not installed when transom envtest setup ran" >&2
exit 127
"""


def default_assets_folder(release: str) -> Path:
    return clusters_dir().parent / "transom-envtest" / release


def write_envtest_assets(folder: Path, release: str) -> None:
    """Replaces programs of an earlier call. The suite is not to notice the difference, so it can
    run while this does.
    """
    if release not in RELEASES:
        raise UserError(
            f"unknown release {release!r}", f"choose one of {', '.join(RELEASES)}", EXIT_USAGE
        )
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "kube-apiserver", _program("apiserver", f"--{RELEASE_FLAG}={release}"))
    _write(folder / "etcd", _program("etcd"))
    kubectl = shutil.which("kubectl")
    _write(
        folder / "kubectl",
        _NO_KUBECTL if kubectl is None else f'#!/bin/sh\nexec {shlex.quote(kubectl)} "$@"\n',
    )


def _program(module: str, *arguments: str) -> str:
    """`exec`, because envtest sends signals to the process that it started."""
    words = [sys.executable, "-P", "-m", f"transom.cluster.envtest.{module}", *arguments]
    return f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n'


def _write(path: Path, content: str) -> None:
    write_atomic(path, content.encode(), 0o755)
