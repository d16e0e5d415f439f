"""`transom dns`: the cluster's DNS server alone, on a port of this machine."""

from __future__ import annotations

import argparse

from transom.cli import console

HELP = """\
Answer the names of a cluster's services on a port of this machine, UDP and TCP, until interrupted.

It watches the services of the API server of a kubeconfig and answers as the cluster's own DNS server does, so names can be
looked up from outside. `transom up` has its DNS server built in and needs none of this."""
EXAMPLES = """\
  transom dns --port 5353
  dig @127.0.0.1 -p 5353 kubernetes.default.svc.cluster.local
  transom dns --kubeconfig ./kubeconfig --upstream 192.0.2.1 --stub-domain corp.example=192.0.2.2,192.0.2.3"""


def arguments(parser: argparse.ArgumentParser) -> None:
    console.target_options(parser)
    parser.add_argument("--address", default="127.0.0.1", metavar="ADDRESS", help="where to listen (default: 127.0.0.1)")
    parser.add_argument("--port", type=console.port, default=5353, metavar="PORT", help="UDP and TCP (default: 5353)")
    parser.add_argument("--domain", default="cluster.local", metavar="DOMAIN", help="of the cluster (default: cluster.local)")
    parser.add_argument("--ttl", type=int, default=30, metavar="SECONDS", help="that answers are good for (default: 30)")
    parser.add_argument(
        "--upstream", action="append", default=[], metavar="SERVER",
        help="a name server for all other names; may be given several times (default: there are no other names)",
    )
    parser.add_argument(
        "--stub-domain", action="append", default=[], metavar="DOMAIN=SERVERS",
        help="name servers, with commas, for a domain; may be given several times",
    )


def run(args: argparse.Namespace) -> int:
    from transom.cluster import dns_alone
    from transom.cluster.errors import ClusterError
    from transom.dns.settings import Settings
    from transom.kit import logs

    stubs: dict[str, tuple[str, ...]] = {}
    for text in args.stub_domain:
        domain, equals, servers = text.partition("=")
        if not equals or not domain or not servers:
            raise ClusterError(f"--stub-domain {text} names no servers", "write it as corp.example=192.0.2.2,192.0.2.3")
        stubs[domain] = tuple(server.strip() for server in servers.split(","))
    logs.setup()
    settings = Settings(domain=args.domain, ttl=args.ttl, upstreams=tuple(args.upstream), stub_domains=stubs)
    dns_alone.run(dns_alone.Alone(console.target(args), args.context, args.address, args.port, settings))
    return 0
