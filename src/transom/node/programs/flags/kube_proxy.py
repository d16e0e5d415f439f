"""kube-proxy.exe's command line: all flags of 1.20 on Windows. `proxy.config` interprets those with
an effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Final

from transom.kit.goquote import go_quote
from transom.kit.lazy_dataclass import dataclass
from transom.machinery.releases.kube_proxy import proxy_accepts
from transom.node.programs.flags import klog
from transom.node.programs.flags.golang import (
    ADDRESS,
    BOOL,
    BOOL_MAP,
    DURATION,
    FLOAT,
    INT32,
    STRING,
    STRINGS,
    FlagError,
    FlagKind,
    ParsedFlags,
    Table,
    parse_pflag,
)
from transom.proxy.config import FLAGS

_BOOLS: Final = """
bind-address-hard-fail cleanup cleanup-ipvs conntrack-tcp-be-liberal enable-dsr forward-healthcheck-vip help init-only
iptables-localhost-nodeports ipvs-strict-arp masquerade-all profiling windows-service
"""
_STRINGS: Final = """
azure-container-registry-config cluster-cidr config detect-local-mode healthz-bind-address hostname-override
ipvs-scheduler kube-api-content-type kubeconfig master metrics-bind-address network-name pod-bridge-interface
pod-interface-name-prefix proxy-mode proxy-port-range root-hnsendpoint-name show-hidden-metrics-for-version source-vip
write-config-to
"""
_NUMBERS: Final = """
conntrack-max-per-core conntrack-min healthz-port iptables-masquerade-bit kube-api-burst metrics-port oom-score-adj
"""
_DURATIONS: Final = """
config-sync-period conntrack-tcp-timeout-close-wait conntrack-tcp-timeout-established conntrack-udp-timeout
conntrack-udp-timeout-stream iptables-min-sync-period iptables-sync-period ipvs-min-sync-period ipvs-sync-period
ipvs-tcp-timeout ipvs-tcpfin-timeout ipvs-udp-timeout udp-timeout
"""
TABLE: Final[Table] = {
    **klog.TABLE,
    **dict.fromkeys(_BOOLS.split(), BOOL),
    **dict.fromkeys(_STRINGS.split(), STRING),
    **dict.fromkeys(_NUMBERS.split(), INT32),
    **dict.fromkeys(_DURATIONS.split(), DURATION),
    **dict.fromkeys(("ipvs-exclude-cidrs", "nodeport-addresses"), STRINGS),
    "bind-address": ADDRESS,
    "feature-gates": BOOL_MAP,
    "kube-api-qps": FLOAT,
    "version": FlagKind("version[=true]", str, alone="true"),
}
_OF_THE_DOCUMENTS: Final[Table] = {"service": BOOL}
_ELSEWHERE: Final = frozenset(
    ("cleanup", "config", "help", "service", "version", "windows-service")
)


_EFFECTIVE: Final = frozenset((*FLAGS, *_ELSEWHERE, *klog.TABLE))


@dataclass(frozen=True, slots=True)
class KubeProxyFlags:
    logging: klog.KlogSettings
    service: bool
    help: bool
    version: bool
    cleanup: bool
    config_file: str
    flags: dict[str, str]  # for `proxy.config.from_flags`
    unused: tuple[str, ...]  # flags without an effect on a simulated node


@cache
def kube_proxy_flag_table(release: tuple[int, int]) -> Table:
    """The flags that the kube-proxy of a release has, as its help lists them."""
    return {name: kind for name, kind in TABLE.items() if proxy_accepts(release, name)}


def parse_kube_proxy_flags(argv: Sequence[str], release: tuple[int, int] = (1, 20)) -> ParsedFlags:
    """Raises FlagError."""
    parsed = parse_pflag({**kube_proxy_flag_table(release), **_OF_THE_DOCUMENTS}, argv)
    if any(parsed.arguments):
        listed = " ".join(go_quote(word) for word in parsed.arguments)
        raise FlagError(f'"kube-proxy" does not take any arguments, got [{listed}]')
    return parsed


def kube_proxy_flags(parsed: ParsedFlags) -> KubeProxyFlags:
    return KubeProxyFlags(
        logging=klog.logging_of(parsed),
        service=parsed.get("windows-service", False) or parsed.get("service", False),
        help=parsed.get("help", False),
        version=parsed.get("version", "false") != "false",
        cleanup=parsed.get("cleanup", False),
        config_file=parsed.get("config", ""),
        flags={name: text for name, text in parsed.texts.items() if name in FLAGS},
        unused=tuple(name for name in parsed.texts if name not in _EFFECTIVE),
    )
