"""`transom dns`: the cluster's DNS server alone, on a port of this machine."""

from __future__ import annotations

import argparse

from transom.cli import console
from transom.cli.command import Command

HELP = """\
Serve the DNS names of a cluster on a UDP and TCP port of this machine, until interrupted.

It watches the services of the API server of a kubeconfig and answers like the DNS server of the
cluster, so you can resolve names from outside the cluster. `transom up` includes a DNS server."""
EXAMPLES = """\
  transom dns --port 5353
  dig @127.0.0.1 -p 5353 kubernetes.default.svc.cluster.local
  transom dns --kubeconfig ./kubeconfig --upstream 192.0.2.1 --stub-domain corp.example=192.0.2.2,192.0.2.3"""


def add_dns_arguments(parser: argparse.ArgumentParser) -> None:
    console.add_target_options(parser)
    parser.add_argument(
        "--address",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="address to listen on (default: 127.0.0.1)",
    )
    parser.add_argument(
        "--port",
        type=console.port_number,
        default=5353,
        metavar="PORT",
        help="UDP and TCP (default: 5353)",
    )
    parser.add_argument(
        "--domain",
        default="cluster.local",
        metavar="DOMAIN",
        help="domain of the cluster (default: cluster.local)",
    )
    parser.add_argument(
        "--ttl",
        type=int,
        default=30,
        metavar="SECONDS",
        help="TTL of answers (default: 30)",
    )
    parser.add_argument(
        "--upstream",
        action="append",
        default=[],
        metavar="SERVER",
        help=("DNS server for all other names; repeatable (default: none)"),
    )
    parser.add_argument(
        "--stub-domain",
        action="append",
        default=[],
        metavar="DOMAIN=SERVERS",
        help="comma-separated DNS servers for a domain; repeatable",
    )


def run_dns_command(args: argparse.Namespace) -> int:
    from transom.dns.settings import DnsSettings
    from transom.kit import logs
    from transom.kit.user_errors import UserError
    from transom.node.programs.dns import DnsServerOptions, run_dns_server

    stubs: dict[str, tuple[str, ...]] = {}
    for text in args.stub_domain:
        domain, equals, servers = text.partition("=")
        if not equals or not domain or not servers:
            raise UserError(
                f"--stub-domain {text} names no servers",
                "write it as corp.example=192.0.2.2,192.0.2.3",
            )
        stubs[domain] = tuple(server.strip() for server in servers.split(","))
    logs.set_up_logging()
    settings = DnsSettings(
        domain=args.domain, ttl=args.ttl, upstreams=tuple(args.upstream), stub_domains=stubs
    )
    run_dns_server(
        DnsServerOptions(
            console.target_kubeconfig(args), args.context, args.address, args.port, settings
        )
    )
    return 0


COMMAND = Command(HELP, EXAMPLES, add_dns_arguments, run_dns_command)
