"""`transom webhook`: the Windows warnings and rejections of our clusters, for any other cluster."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from transom.cli import console
from transom.cli.command import Command, file_path
from transom.cli.node_targets import add_node_target_options

if TYPE_CHECKING:
    from transom.webhook.manifests import WebhookKeys
    from transom.windows.advice import Advisor

HELP = """\
Serve an admission webhook: Windows pods and pod templates that use features Windows does not
support produce warnings, or are rejected if --reject names the limitation.

It needs no permissions in the cluster. The options describe the Windows nodes; there are no
warnings about limitations that depend on unknown facts."""
EXAMPLES = """\
  transom webhook --manifest --build ltsc2022 --runtime containerd | kubectl apply -f -
  transom webhook --cert-file tls.crt --key-file tls.key --port 8443
  transom webhook --self-signed --port 0 --reject WIN-STO-*"""

_HOSTS: Final = ("localhost", "127.0.0.1")


def add_webhook_arguments(parser: argparse.ArgumentParser) -> None:
    nodes = parser.add_argument_group("the cluster's Windows nodes")
    add_node_target_options(nodes)
    warnings = parser.add_argument_group("warnings")
    warnings.add_argument(
        "--reject",
        type=console.comma_separated,
        default=(),
        metavar="IDS",
        help="limitations to reject: WIN-POD-003,WIN-STO-*",
    )
    warnings.add_argument(
        "--warn",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="warn about other limitations (default: on)",
    )
    serving = parser.add_argument_group("serving")
    serving.add_argument(
        "--bind", default="127.0.0.1", metavar="ADDRESS", help="default: %(default)s"
    )
    serving.add_argument(
        "--port",
        type=console.port_number,
        default=8443,
        metavar="N",
        help="default: %(default)s; 0 selects a free port",
    )
    serving.add_argument(
        "--cert-file", type=file_path, metavar="FILE", help="PEM; reloaded when it changes"
    )
    serving.add_argument("--key-file", type=file_path, metavar="FILE", help="PEM")
    serving.add_argument(
        "--self-signed",
        action="store_true",
        help="generate a CA and a certificate for this run, and print the caBundle",
    )
    serving.add_argument(
        "--host",
        action="append",
        default=[],
        metavar="NAME",
        help="additional name or address in the certificate",
    )
    printed = parser.add_argument_group("manifests")
    printed.add_argument(
        "--manifest",
        action="store_true",
        help="print manifests that run the webhook in a cluster, with new certificates, and exit",
    )
    printed.add_argument(
        "--cert-manager",
        action="store_true",
        help="with --manifest: let cert-manager issue the certificates",
    )
    printed.add_argument("--image", metavar="IMAGE", help="with --manifest: the image to run")


def run_webhook_command(args: argparse.Namespace) -> int:
    from transom.kit.user_errors import EXIT_USAGE, UserError

    advisor = _advisor(args)
    if args.manifest:
        return _print(args)
    if args.self_signed == bool(args.cert_file or args.key_file) or bool(args.cert_file) != bool(
        args.key_file
    ):
        raise UserError(
            "--cert-file is required",
            "use --cert-file FILE --key-file FILE, or --self-signed",
            EXIT_USAGE,
        )
    if not args.self_signed:
        _serve(args, advisor, args.cert_file, args.key_file)
        return 0
    import tempfile

    from transom.kit.files import write_atomic

    with tempfile.TemporaryDirectory() as folder:
        certificate, key = Path(folder) / "tls.crt", Path(folder) / "tls.key"
        keys = _make_keys((*_HOSTS, *args.host))
        write_atomic(key, keys.key, 0o600)
        write_atomic(certificate, keys.certificate, 0o644)
        _serve(args, advisor, certificate, key, keys.authority)
    return 0


def _advisor(args: argparse.Namespace) -> Advisor:
    from transom.kit.user_errors import UserError
    from transom.windows import builds
    from transom.windows.advice import Advisor
    from transom.windows.policy import UnknownRecord, WarningPolicy, parse_record_patterns
    from transom.windows.target_nodes import parse_target_release, target_nodes_from_options

    release = parse_target_release(args.release) if args.release else None
    if args.release and release is None:
        raise UserError(f"{args.release} is not a Kubernetes release", "for example --release 1.25")
    build = builds.build_by_name(args.build) if args.build else None
    if args.build and build is None:
        raise UserError(
            f"the Windows build {args.build} is not known",
            "for example --build ltsc2022 or --build 20348",
            2,
        )
    try:
        policy = WarningPolicy(args.warn, parse_record_patterns(args.reject))
    except UnknownRecord as problem:
        raise UserError(str(problem), problem.hint) from problem
    target_nodes = target_nodes_from_options(
        release,
        build.number if build else None,
        args.runtime,
        args.network,
        args.feature,
        mixed=True,
    )
    return Advisor(target_nodes, policy, lambda _: None)


def _make_keys(hosts: tuple[str, ...]) -> WebhookKeys:
    from transom.kit import pki
    from transom.kit.ip_addresses import is_ip_address
    from transom.webhook.manifests import WebhookKeys

    authority = pki.make_ca("transom-webhook-ca")
    names = [host for host in hosts if not is_ip_address(host)]
    addresses = [host for host in hosts if is_ip_address(host)]
    pair = pki.issue_server(authority, hosts[0], names, addresses, days=pki.CA_DAYS)
    return WebhookKeys(pair.certificate, pair.key, authority.certificate)


def _print(args: argparse.Namespace) -> int:
    from transom.webhook import manifests

    keys = None if args.cert_manager else _make_keys(tuple(manifests.service_names()))
    print(render_webhook_manifests(_options(args), args.image or manifests.IMAGE, keys), end="")
    return 0


def render_webhook_manifests(options: list[str], image: str, keys: WebhookKeys | None) -> str:
    import yaml

    from transom.webhook import manifests

    objects = manifests.webhook_manifests(options, image=image, keys=keys)
    return "---\n".join(yaml.safe_dump(obj, sort_keys=False, width=128) for obj in objects)


def _options(args: argparse.Namespace) -> list[str]:
    """The same options, for the webhook in the cluster."""
    given = []
    for name in ("release", "build", "runtime", "network"):
        if getattr(args, name):
            given += [f"--{name}", getattr(args, name)]
    for feature in args.feature:
        given += ["--feature", feature]
    if args.reject:
        given += ["--reject", ",".join(args.reject)]
    return given if args.warn else [*given, "--no-warn"]


def _serve(
    args: argparse.Namespace, advisor: Advisor, certificate: Path, key: Path, authority: bytes = b""
) -> None:
    import asyncio
    import base64

    from transom.kit import logs
    from transom.kit.process import run_until_signal
    from transom.kit.user_errors import UserError
    from transom.webhook.server import PATH, WebhookServer

    logs.set_up_logging()

    async def main() -> None:
        try:
            webhook = WebhookServer(advisor, certificate, key)
        except OSError as problem:  # includes ssl.SSLError
            raise UserError(f"{certificate} and {key} cannot be used: {problem}") from problem
        try:
            port = await webhook.start(args.bind, args.port)
        except OSError as problem:
            why = f"cannot listen on {args.bind}:{args.port}: {problem.strerror}"
            raise UserError(why, "choose another port with --port N") from problem
        host = f"[{args.bind}]" if ":" in args.bind else args.bind
        print(f"url: https://{host}:{port}{PATH}")
        if authority:
            print(f"caBundle: {base64.b64encode(authority).decode()}")
        sys.stdout.flush()
        await run_until_signal(webhook.run)

    asyncio.run(main())


COMMAND = Command(HELP, EXAMPLES, add_webhook_arguments, run_webhook_command)
