"""The program `kube-apiserver` of envtest: `python -m transom.cluster.envtest.apiserver FLAGS`.

The help and the check of the flags need none of the API server, so that envtest, which reads the
help first, does not wait for it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from transom.cluster.envtest.flags import flags_help, parse_go_flags
from transom.kit.lazy import lazy_import
from transom.kit.user_errors import UserError

if TYPE_CHECKING:
    from transom.cluster.envtest import serving
else:
    serving = lazy_import("transom.cluster.envtest.serving")

RELEASE_FLAG = "transom-release"
_PURPOSE = "The API server of Transom, for tests: no controllers, no scheduler, no nodes."
_FLAGS = {
    "anonymous-auth": "whether requests without credentials are anonymous (default true)",
    "api-audiences": "the audiences of service account tokens (default: the issuer)",
    "bind-address": "the address to listen on (default 0.0.0.0)",
    "cert-dir": "the folder of apiserver.crt and apiserver.key",
    "client-ca-file": "the certificate authority of clients",
    "disable-admission-plugins": "admission plugins to turn off",
    "etcd-prefix": "the prefix of keys in a real etcd (default /registry)",
    "etcd-servers": "the address of etcd: the program beside this one, or a real etcd",
    "feature-gates": "feature gates: Name=true,Other=false",
    "requestheader-client-ca-file": "the certificate authority of front proxies",
    "requestheader-uid-headers": "the headers of the UID, published for aggregated API servers",
    "runtime-config": "API versions to turn on or off",
    "secure-port": "the port to listen on (default 6443)",
    "service-account-issuer": "the issuer of service account tokens",
    "service-account-key-file": "public keys or certificates that verify service account tokens",
    "service-account-signing-key-file": "the key that signs service account tokens",
    "service-cluster-ip-range": "the range of cluster IPs (default 10.0.0.0/24)",
    "service-node-port-range": "the range of node ports (default 30000-32767)",
    "tls-cert-file": "the serving certificate, instead of the one in --cert-dir",
    "tls-private-key-file": "its key",
    "token-auth-file": "a file with lines of token,user,uid,groups",
    RELEASE_FLAG: "the Kubernetes release to serve",
}
# What the server does in any case, or what has no meaning in it.
_WITHOUT_EFFECT = {
    "advertise-address",
    "allow-privileged",
    "authorization-mode",
    "enable-admission-plugins",
    "insecure-port",
    "profiling",
    "v",
}
_SWITCHES = ("allow-privileged", "anonymous-auth", "profiling")


def main() -> int:
    arguments = sys.argv[1:]
    if {"--help", "-h"} & set(arguments):
        sys.stdout.write(flags_help("kube-apiserver", _PURPOSE, _FLAGS))
        return 0
    try:
        flags = parse_go_flags(arguments, _SWITCHES)
        mode = flags.words("authorization-mode")
        if mode and "RBAC" not in mode:
            raise ValueError(f"--authorization-mode: RBAC is needed, not {','.join(mode)}")
    except ValueError as problem:
        sys.stderr.write(f"kube-apiserver: {problem}\n")
        return 2
    for name in flags.names():
        if name not in _FLAGS and name not in _WITHOUT_EFFECT:
            sys.stderr.write(f"kube-apiserver: --{name} has no effect on Transom\n")
    try:
        serving.serve_envtest_api_server(flags, flags.get(RELEASE_FLAG))
    except UserError as problem:
        sys.stderr.write(f"kube-apiserver: {problem.message}; {problem.hint}\n")
        return problem.code
    except OSError as problem:
        sys.stderr.write(f"kube-apiserver: {problem}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
