"""`transom report`: one archive with what a report of a bug needs."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transom.cli import console

if TYPE_CHECKING:
    from transom.cluster.config import ClusterConfig

HELP = """\
Collect what a report of a bug in Kubernetes on Windows needs: versions, environment, what `transom doctor` says, objects,
events and the logs of Windows nodes (kubelet, kube-proxy, flanneld, the host networking service), and a text to fill in,
report.md, that says where it is to be reported.

Passwords, tokens and keys are taken out, and Secrets and ConfigMaps are not read at all. Look at it before you publish it."""
EXAMPLES = """\
  transom report
  transom report -o bug.tar.gz
  transom report --kubeconfig ~/.kube/config --context production
  tar --extract --gzip --to-stdout --file bug.tar.gz bug/report.md"""
_LONGEST = 2 << 20  # of the cluster's own log: its end


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="default: transom-report-DATE-TIME.tar.gz, here")
    console.target_options(parser)


def run(args: argparse.Namespace) -> int:
    from transom.cluster import doctoring
    from transom.doctor.examine import checks, examine
    from transom.doctor.nodelogs import collect
    from transom.doctor.report import Collected, files

    path: Path = args.output or Path(time.strftime("transom-report-%Y%m%d-%H%M%S.tar.gz", time.gmtime()))
    tell = _progress()
    where = doctoring.target(console.target(args), args.context)
    tell("looking at the cluster ...")
    seen = doctoring.look(where)
    found = examine(seen)
    more = Collected(path.name, _clients(), doctor=_doctor(seen, found, [row.title for row in checks(seen)]))
    if not seen.unreachable:
        more.logs, more.hns = doctoring.with_client(where, lambda client: collect(client, seen, tell))
    config = _own(args.name, where.port)
    if config is not None:
        more.cluster_log = _end(config.log)
    content = files(seen, found, more)
    tell("packing ...")
    _pack(path, content)
    errors = sum(one.severity == "error" for one in found)
    print(f"{path}: {len(content)} files; transom doctor finds {errors} error{'s' if errors != 1 else ''}")
    print(f"Fill in report.md of it, and look at the rest before you publish it: tar --extract --gzip --file {path}")
    return 0


def _progress() -> Any:
    """Tells what is being done, once a second: nothing of what is done at once."""
    told = time.monotonic()

    def tell(text: str) -> None:
        nonlocal told
        if time.monotonic() - told > 1:
            told = time.monotonic()
            console.tell(text)

    return tell


def _clients() -> dict[str, str]:
    import json
    import shutil
    import subprocess

    from transom import __version__

    found = {"transom": __version__}
    binary = shutil.which("kubectl")
    if binary is not None:
        try:
            done = subprocess.run([binary, "version", "--client", "--output=json"], capture_output=True, timeout=10, check=True)
            found["kubectl"] = json.loads(done.stdout)["clientVersion"]["gitVersion"]
        except (OSError, subprocess.SubprocessError, ValueError, KeyError) as problem:
            found["kubectl"] = f"does not say: {problem}"
    return found


def _doctor(seen: Any, found: list[Any], titles: list[str]) -> str:
    from transom.cli import doctor

    return "\n".join([*doctor.page(found, 110), doctor.summary(seen, found, titles)]) + "\n"


def _own(name: str | None, port: int) -> ClusterConfig | None:
    """The cluster of this machine that is looked at, if it is one."""
    from transom.cluster import config as configs

    for known in [name] if name is not None else configs.known_clusters():
        found = configs.load(known)
        if found is not None and (name is not None or found.port == port):
            return found
    return None


def _end(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _LONGEST))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def _pack(path: Path, content: dict[str, bytes]) -> None:
    import io
    import tarfile

    from transom.cluster.errors import ClusterError

    folder = path.name.removesuffix(".gz").removesuffix(".tar").removesuffix(".tgz")
    try:
        with tarfile.open(path, "w:gz") as archive:
            for name, data in content.items():
                entry = tarfile.TarInfo(f"{folder}/{name}")
                entry.size, entry.mtime, entry.mode = len(data), int(time.time()), 0o600
                archive.addfile(entry, io.BytesIO(data))
    except OSError as problem:
        raise ClusterError(f"{path} cannot be written: {problem.strerror}", "name another file with --output") from problem
