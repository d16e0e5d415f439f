"""`transom report`: collect everything a bug report needs in one archive."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transom.cli import console
from transom.cli.command import Command, file_path

if TYPE_CHECKING:
    from transom.cluster.config import ClusterConfig

HELP = """\
Collect information for a bug report about Kubernetes on Windows: versions, environment, the
findings of `transom doctor`, objects, events, logs of Windows nodes (kubelet, kube-proxy,
flanneld, the host networking service), and report.md, a template that explains where to report the
bug.

Passwords, tokens and keys are removed; Secrets and ConfigMaps are not read. Review the report before you publish it."""
EXAMPLES = """\
  transom report
  transom report -o bug.tar.gz
  transom report --kubeconfig ~/.kube/config --context production
  tar --extract --gzip --to-stdout --file bug.tar.gz bug/report.md"""
_LONGEST = 2 << 20  # of the end of the cluster's own log


def add_report_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o",
        "--output",
        type=file_path,
        metavar="FILE",
        help="default: transom-report-DATE-TIME.tar.gz, here",
    )
    console.add_target_options(parser)


def run_report_command(args: argparse.Namespace) -> int:
    from transom.doctor import connect as doctoring
    from transom.doctor.examine import checks, examine
    from transom.doctor.nodelogs import collect_node_logs
    from transom.doctor.report import CollectedReport, report_files

    path: Path = args.output or Path(
        time.strftime("transom-report-%Y%m%d-%H%M%S.tar.gz", time.gmtime())
    )
    progress = _progress()
    where = doctoring.doctor_target(console.target_kubeconfig(args), args.context)
    progress("checking the cluster ...")
    seen = doctoring.take_snapshot(where)
    found = examine(seen)
    more = CollectedReport(
        path.name, _clients(), doctor=_doctor(seen, found, [row.title for row in checks(seen)])
    )
    if not seen.unreachable:
        more.logs, more.hns = doctoring.with_client(
            where, lambda client: collect_node_logs(client, seen, progress)
        )
    config = _own(args.name, where.port)
    if config is not None:
        more.cluster_log = _end(config.log)
    content = report_files(seen, found, more)
    progress("packing ...")
    _pack(path, content)
    errors = sum(one.severity == "error" for one in found)
    print(
        f"{path}: {len(content)} files; transom doctor finds {errors} "
        f"error{'s' if errors != 1 else ''}"
    )
    print(
        "Fill in its report.md, and review the other files before you publish it: tar --extract "
        f"--gzip --file {path}"
    )
    return 0


def _progress() -> Any:
    """Reports the current step once a second, but not steps that finish sooner."""
    reported = time.monotonic()

    def report(text: str) -> None:
        nonlocal reported
        if time.monotonic() - reported > 1:
            reported = time.monotonic()
            console.print_progress(text)

    return report


def _clients() -> dict[str, str]:
    import json
    from subprocess import SubprocessError

    from transom import __version__
    from transom.kit.programs import run_program
    from transom.kit.trust import find_program

    found = {"transom": __version__}
    binary = find_program("kubectl")
    if binary is not None:
        try:
            done = run_program(
                [binary, "version", "--client", "--output=json"], timeout=10, check=True
            )
            found["kubectl"] = json.loads(done.stdout)["clientVersion"]["gitVersion"]
        except (OSError, SubprocessError, ValueError, KeyError) as problem:
            found["kubectl"] = f"unavailable: {problem}"
    return found


def _doctor(seen: Any, found: list[Any], titles: list[str]) -> str:
    from transom.cli import doctor

    return (
        "\n".join([*doctor.findings_page(found, 110), doctor.findings_summary(seen, found, titles)])
        + "\n"
    )


def _own(name: str | None, port: int) -> ClusterConfig | None:
    """The selected cluster, if it runs on this machine."""
    from transom.cluster import config as configs

    if name is not None:
        return configs.load_config(name)
    # A cluster whose files are damaged must not prevent a report about another one.
    found = (configs.load_or_default_config(known) for known in configs.known_clusters())
    return next((one for one, problem in found if not problem and one.port == port), None)


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

    from transom.kit.user_errors import UserError

    folder = path.name.removesuffix(".gz").removesuffix(".tar").removesuffix(".tgz")
    try:
        with (
            open(path, "wb", opener=_private) as file,
            tarfile.open(fileobj=file, mode="w:gz") as archive,
        ):
            for name, data in content.items():
                entry = tarfile.TarInfo(f"{folder}/{name}")
                entry.size, entry.mtime, entry.mode = len(data), int(time.time()), 0o600
                archive.addfile(entry, io.BytesIO(data))
    except OSError as problem:
        raise UserError(
            f"{path} cannot be written: {problem.strerror}", "choose another file with --output"
        ) from problem


def _private(path: str, flags: int) -> int:
    import os

    return os.open(path, flags, 0o600)


COMMAND = Command(HELP, EXAMPLES, add_report_arguments, run_report_command)
