"""`transom webhook`: the warnings and refusals of our clusters, for any other cluster."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from transom.cli import console

if TYPE_CHECKING:
    from transom.webhook.manifests import Keys
    from transom.windows.advice import Advisor

HELP = """\
Answer a cluster's admission reviews: pods for Windows, and templates of such pods, that use what Windows cannot do give
warnings when they are written, or are refused if --reject names the record.

It needs no rights in the cluster. What it should know of the Windows nodes is told by options; what depends on things that
were not told is not warned of."""
EXAMPLES = """\
  transom webhook --manifest --build ltsc2022 --runtime containerd | kubectl apply -f -
  transom webhook --cert-file tls.crt --key-file tls.key --port 8443
  transom webhook --self-signed --port 0 --reject WIN-STO-*"""

_HOSTS: Final = ("localhost", "127.0.0.1")


def arguments(parser: argparse.ArgumentParser) -> None:
    nodes = parser.add_argument_group("the cluster's Windows nodes")
    nodes.add_argument("--release", metavar="X.Y", help="their Kubernetes release (default: 1.20)")
    nodes.add_argument("--build", metavar="BUILD", help="their Windows build: 17763, 10.0.17763, ltsc2019, 1809")
    nodes.add_argument("--runtime", choices=("docker", "containerd"), help="their container runtime")
    nodes.add_argument("--network", choices=("l2bridge", "l2tunnel", "overlay", "transparent", "nat"), help="network mode")
    nodes.add_argument(
        "--feature", action="append", default=[], metavar="NAME", help="what they have: dsr, csi-proxy, hyperv, a gate"
    )
    said = parser.add_argument_group("what is said")
    said.add_argument(
        "--reject", type=console.listed, default=(), metavar="IDS", help="records to refuse: WIN-POD-003,WIN-STO-*"
    )
    said.add_argument("--warn", action=argparse.BooleanOptionalAction, default=True, help="warn of the others (default)")
    serving = parser.add_argument_group("serving")
    serving.add_argument("--bind", default="127.0.0.1", metavar="ADDRESS", help="default: %(default)s")
    serving.add_argument("--port", type=console.port, default=8443, metavar="N", help="default: %(default)s; 0 for a free one")
    serving.add_argument("--cert-file", type=Path, metavar="FILE", help="PEM; taken up again when it changes")
    serving.add_argument("--key-file", type=Path, metavar="FILE", help="PEM")
    serving.add_argument(
        "--self-signed", action="store_true", help="make an authority and a certificate for this run, and print the caBundle"
    )
    serving.add_argument(
        "--host", action="append", default=[], metavar="NAME", help="a name or address for that certificate beside localhost"
    )
    printed = parser.add_argument_group("manifests")
    printed.add_argument(
        "--manifest", action="store_true", help="print what runs the webhook in a cluster, with fresh certificates, and end"
    )
    printed.add_argument("--cert-manager", action="store_true", help="with --manifest: let cert-manager make the certificates")
    printed.add_argument("--image", metavar="IMAGE", help="with --manifest: the image to run")


def run(args: argparse.Namespace) -> int:
    from transom.cluster.errors import ClusterError

    advisor = _advisor(args)
    if args.manifest:
        return _print(args)
    if args.self_signed == bool(args.cert_file or args.key_file) or bool(args.cert_file) != bool(args.key_file):
        raise ClusterError("which certificate?", "give --cert-file FILE --key-file FILE, or --self-signed")
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
    from transom.cluster.errors import ClusterError
    from transom.windows import builds
    from transom.windows.advice import Advisor
    from transom.windows.landscape import described, parse_release
    from transom.windows.policy import Policy, UnknownRecord, parse

    release = parse_release(args.release) if args.release else None
    if args.release and release is None:
        raise ClusterError(f"{args.release} is no Kubernetes release", "for example --release 1.25")
    build = builds.by_name(args.build) if args.build else None
    if args.build and build is None:
        raise ClusterError(f"the Windows build {args.build} is not known", "for example --build ltsc2022 or --build 20348")
    try:
        policy = Policy(args.warn, parse(args.reject))
    except UnknownRecord as problem:
        raise ClusterError(str(problem), problem.hint) from problem
    landscape = described(release, build.number if build else None, args.runtime, args.network, args.feature, mixed=True)
    return Advisor(landscape, policy, lambda _: None)


def _make_keys(hosts: tuple[str, ...]) -> Keys:
    import ipaddress

    from transom.kit import pki
    from transom.webhook.manifests import Keys

    def is_address(host: str) -> bool:
        try:
            return bool(ipaddress.ip_address(host))
        except ValueError:
            return False

    authority = pki.make_ca("transom-webhook-ca")
    names, addresses = [h for h in hosts if not is_address(h)], [h for h in hosts if is_address(h)]
    pair = pki.issue_server(authority, hosts[0], names, addresses, days=pki.CA_DAYS)
    return Keys(pair.certificate, pair.key, authority.certificate)


def _print(args: argparse.Namespace) -> int:
    from transom.webhook import manifests

    keys = None if args.cert_manager else _make_keys(tuple(manifests.service_names()))
    print(render(_options(args), args.image or manifests.IMAGE, keys), end="")
    return 0


def render(options: list[str], image: str, keys: Keys | None) -> str:
    import yaml

    from transom.webhook import manifests

    objects = manifests.documents(options, image=image, keys=keys)
    return "---\n".join(yaml.safe_dump(obj, sort_keys=False, width=128) for obj in objects)


def _options(args: argparse.Namespace) -> list[str]:
    """What the webhook in the cluster is to be told, as it was told here."""
    given = []
    for name in ("release", "build", "runtime", "network"):
        if getattr(args, name):
            given += [f"--{name}", getattr(args, name)]
    for feature in args.feature:
        given += ["--feature", feature]
    if args.reject:
        given += ["--reject", ",".join(args.reject)]
    return given if args.warn else [*given, "--no-warn"]


def _serve(args: argparse.Namespace, advisor: Advisor, certificate: Path, key: Path, authority: bytes = b"") -> None:
    import asyncio
    import base64

    from transom.cluster.alone import until_signal
    from transom.cluster.errors import ClusterError
    from transom.kit import logs
    from transom.webhook.server import PATH, Webhook

    logs.setup()

    async def main() -> None:
        try:
            webhook = Webhook(advisor, certificate, key)
        except OSError as problem:  # ssl.SSLError is one too
            raise ClusterError(f"{certificate} and {key} cannot be used: {problem}") from problem
        try:
            port = await webhook.start(args.bind, args.port)
        except OSError as problem:
            why = f"cannot listen on {args.bind}:{args.port}: {problem.strerror}"
            raise ClusterError(why, "choose another port with --port N") from problem
        host = f"[{args.bind}]" if ":" in args.bind else args.bind
        print(f"url: https://{host}:{port}{PATH}")
        if authority:
            print(f"caBundle: {base64.b64encode(authority).decode()}")
        sys.stdout.flush()
        await until_signal(webhook.run)

    asyncio.run(main())
