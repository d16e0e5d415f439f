"""kubectl as users with few permissions: rejections have Kubernetes' messages, and what is allowed
works.
"""

from __future__ import annotations

import base64
import json
import secrets
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.e2e.identities import (
    CLIENT_SIGNER,
    KUBELET_SIGNER,
    As,
    authority,
    become,
    csr,
    holder,
    issued,
    legacy_token,
    requested,
    signing_request,
    token_request,
)

from transom.kit import pki

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


@pytest.fixture
def ns(kubectl: Any) -> Iterator[str]:
    name = f"who-{secrets.token_hex(3)}"
    kubectl("create", "namespace", name)
    yield name
    kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def someone(kubectl: Any) -> Iterator[str]:
    """The name of a user; what is bound to it at the cluster scope goes with it."""
    name = f"jane-{secrets.token_hex(3)}"
    yield name
    kubectl("delete", "clusterrolebinding,clusterrole", "-l", f"of={name}")


def bind_cluster_role(kubectl: Any, user: str, *rules: str) -> None:
    """A ClusterRole of these rules (VERBS RESOURCES, as kubectl takes them), bound to the user."""
    for number, rule in enumerate(rules):
        verbs, _, what = rule.partition(" ")
        kubectl("create", "clusterrole", f"{user}-{number}", f"--verb={verbs}", *what.split())
        kubectl(
            "create",
            "clusterrolebinding",
            f"{user}-{number}",
            f"--clusterrole={user}-{number}",
            f"--user={user}",
        )
    names = [f"{user}-{n}" for n in range(len(rules))]
    kubectl("label", "clusterrole,clusterrolebinding", *names, f"of={user}")


def denied(user: str, verb: str, resource: str, ns: str = "", name: str = "", why: str = "") -> str:
    """What Kubernetes says to a user who may not; `resource` is PLURAL or PLURAL.GROUP."""
    plural, _, group = resource.partition(".")
    which = f'{resource} "{name}"' if name else resource
    where = f'in the namespace "{ns}"' if ns else "at the cluster scope"
    text = (
        f'{which} is forbidden: User "{user}" cannot {verb} resource "{plural}" in API group '
        f'"{group}" {where}'
    )
    return f"{text}: {why}" if why else text


def rules(who: As, *args: str) -> dict[str, list[set[str]]]:
    """`kubectl auth can-i --list`: resource or path -> the verbs of each of its lines."""
    out: dict[str, list[set[str]]] = {}
    text = who("auth", "can-i", "--list", "--no-headers", *args).stdout
    for line in text.splitlines():
        what = line.split()[0].strip("[]")
        out.setdefault(what, []).append(set(line.rpartition("[")[2].rstrip("] ").split()))
    return out


def test_user_with_a_signed_certificate(
    kubectl: Any, ns: str, someone: str, tmp_path: Path
) -> None:
    jane = requested(kubectl, tmp_path, signing_request(someone, "devs"), someone, namespace=ns)
    assert jane.refused("get", "configmaps") == (
        f'configmaps is forbidden: User "{someone}" cannot list resource "configmaps" in API '
        f'group "" in the namespace "{ns}"'
    )
    kubectl("-n", ns, "create", "rolebinding", "viewers", "--clusterrole=view", "--group=devs")
    kubectl("-n", ns, "create", "configmap", "a", "--from-literal=k=v")
    assert jane("get", "configmap", "a", "-o", "jsonpath={.data.k}").stdout == "v"

    csrs, crds = (
        "certificatesigningrequests.certificates.k8s.io",
        "customresourcedefinitions.apiextensions.k8s.io",
    )
    refused = {
        ("get", "configmaps", "-A"): denied(someone, "list", "configmaps"),
        ("get", "secret", "s"): denied(someone, "get", "secrets", ns, "s"),
        ("get", "secrets"): denied(someone, "list", "secrets", ns),
        ("create", "configmap", "b"): denied(someone, "create", "configmaps", ns),
        ("label", "cm", "a", "x=y"): denied(someone, "patch", "configmaps", ns, "a"),
        ("delete", "deployment", "x"): denied(someone, "delete", "deployments.apps", ns, "x"),
        ("delete", "--raw", f"/api/v1/namespaces/{ns}/pods"): denied(
            someone, "deletecollection", "pods", ns
        ),
        ("-n", "default", "get", "pods"): denied(someone, "list", "pods", "default"),
        ("get", "nodes"): denied(someone, "list", "nodes"),
        ("get", "namespace", "default"): denied(someone, "get", "namespaces", "default", "default"),
        ("get", "crd"): denied(someone, "list", crds),
        ("certificate", "approve", "x"): denied(someone, "get", csrs, name="x"),
        ("get", "cm", "--as=admin"): denied(someone, "impersonate", "users", name="admin"),
        ("get", "--raw", "/metrics"): f'forbidden: User "{someone}" cannot get path "/metrics"',
    }
    assert {args: jane.refused(*args) for args in refused} == refused


def test_can_i_lists_what_a_viewer_may(kubectl: Any, ns: str, someone: str, tmp_path: Path) -> None:
    jane = issued(kubectl, tmp_path, someone, namespace=ns)
    kubectl(
        "-n",
        ns,
        "create",
        "role",
        "one-map",
        "--verb=get,update",
        "--resource=configmaps",
        "--resource-name=only",
    )
    kubectl("-n", ns, "create", "rolebinding", "one-map", "--role=one-map", f"--user={someone}")
    base_rules = rules(jane, "-n", "default")
    assert base_rules["selfsubjectaccessreviews.authorization.k8s.io"] == [{"create"}]
    assert base_rules["/apis/*"] == [{"get"}] and {"/healthz", "/version", "/openapi"} <= set(
        base_rules
    )
    assert "configmaps" not in base_rules and "pods" not in base_rules

    assert set(rules(jane)) - set(base_rules) == {"configmaps"} and rules(jane)["configmaps"] == [
        {"get", "update"}
    ]
    assert " [only] " in jane("auth", "can-i", "--list").stdout
    kubectl("-n", ns, "create", "rolebinding", "view", "--clusterrole=view", f"--user={someone}")
    mine = rules(jane)
    assert {"get", "list", "watch"} in mine["configmaps"] and mine["deployments.apps"] == [
        {"get", "list", "watch"}
    ]
    assert "secrets" not in mine and "pods/exec" not in mine

    answers = {
        ("get", "configmaps/only"): "yes",
        ("update", "configmaps/only"): "yes",
        ("update", "configmaps/other"): "no",
        ("get", "pods", "--subresource=log"): "yes",
        ("create", "pods", "--subresource=exec"): "no",
        ("get", "/version"): "yes",
        ("get", "/metrics"): "no",
        ("list", "pods", "-n", "default"): "no",
    }
    assert {q: jane("auth", "can-i", *q, check=False).stdout.split()[0] for q in answers} == answers


def test_service_account_in_its_namespace(kubectl: Any, ns: str, tmp_path: Path) -> None:
    kubectl("-n", ns, "create", "serviceaccount", "robot")
    secret, legacy = legacy_token(kubectl, ns, "robot")
    tokens = {"legacy": legacy, "requested": token_request(kubectl, ns, "robot")}
    if "token" in kubectl("create", "--help").stdout:
        tokens["created"] = kubectl("-n", ns, "create", "token", "robot").stdout.strip()
    kubectl(
        "-n",
        ns,
        "create",
        "rolebinding",
        "robot",
        "--clusterrole=edit",
        f"--serviceaccount={ns}:robot",
    )

    robots = {}
    for name, token in tokens.items():
        (tmp_path / name).mkdir()
        robots[name] = become(kubectl, tmp_path / name, {"token": token}, ns)
    user = f"system:serviceaccount:{ns}:robot"
    for name, robot in robots.items():
        robot("create", "configmap", name)
        robot("delete", "configmap", name)
        assert robot.refused("get", "roles") == denied(
            user, "list", "roles.rbac.authorization.k8s.io", ns
        )
        assert robot.refused("-n", "kube-system", "get", "secrets") == denied(
            user, "list", "secrets", "kube-system"
        )
    mine = rules(robots["legacy"])
    assert {"create", "delete", "deletecollection", "patch", "update"} <= set.union(
        *mine["deployments.apps"]
    )
    assert "roles.rbac.authorization.k8s.io" not in mine and "impersonate" in set.union(
        *mine["serviceaccounts"]
    )

    # What a token stands on is gone: so is the token, at once.
    kubectl("-n", ns, "delete", "secret", secret)
    logged_out = "You must be logged in to the server ("
    assert logged_out in robots["legacy"]("get", "configmaps", check=False).stderr
    robots["requested"]("get", "configmaps")
    kubectl("-n", ns, "delete", "serviceaccount", "robot")
    assert logged_out in robots["requested"]("get", "configmaps", check=False).stderr


def test_tokens_for_other_audiences_or_missing_accounts(
    kubectl: Any, ns: str, tmp_path: Path
) -> None:
    kubectl("-n", ns, "create", "serviceaccount", "robot")
    foreign = token_request(kubectl, ns, "robot", audiences=["vault"])
    head, payload, signature = token_request(kubectl, ns, "robot").split(".")
    for token in (
        foreign,
        f"{head}.{payload}.{signature[::-1]}",
        f"{head}.{payload}.",
        "abcdef.0123456789abcdef",
    ):
        answer = become(kubectl, tmp_path, {"token": token}, ns)("get", "pods", check=False)
        assert "You must be logged in to the server (" in answer.stderr, token


def test_certificates_of_the_past_or_of_others(kubectl: Any, tmp_path: Path) -> None:
    masters = ("admin", ["system:masters"])
    expired = pki.issue_client(authority(kubectl), *masters, days=1, now=time.time() - 3 * 86400)
    answer = holder(kubectl, tmp_path, expired)("get", "pods", check=False, timeout=8)
    assert "You must be logged in to the server (" in answer.stderr
    foreign = holder(kubectl, tmp_path, pki.issue_client(pki.make_ca("kubernetes"), *masters))
    answer = foreign("get", "pods", check=False, timeout=8)  # at once: kubectl does not try again
    assert "remote error: tls: unknown certificate authority" in answer.stderr


def test_anonymous_sees_health_and_version_only(cluster: Any) -> None:
    (entry,) = yaml.safe_load(cluster.kubeconfig.read_text())["clusters"]
    trust = ssl.create_default_context(
        cadata=base64.b64decode(entry["cluster"]["certificate-authority-data"]).decode()
    )
    server = entry["cluster"]["server"]

    def get(path: str) -> str:
        try:
            with urllib.request.urlopen(server + path, context=trust, timeout=10) as answer:
                return answer.read().decode()
        except urllib.error.HTTPError as refused:
            return json.load(refused)["message"]

    assert (get("/healthz"), json.loads(get("/version"))["gitVersion"]) == ("ok", "v1.20.15")
    assert get("/api") == 'forbidden: User "system:anonymous" cannot get path "/api"'
    assert get("/api/v1/secrets") == (
        'secrets is forbidden: User "system:anonymous" cannot list resource "secrets" in API '
        'group "" at the cluster scope'
    )


def test_node_reads_what_its_pods_need(kubectl: Any, ns: str, tmp_path: Path) -> None:
    name = f"n-{secrets.token_hex(3)}"
    request = signing_request(f"system:node:{name}", "system:nodes")
    node = requested(kubectl, tmp_path, request, name, signer=KUBELET_SIGNER, namespace=ns)
    user = f"system:node:{name}"
    other = f"other-{name}"
    try:
        node("create", "-f", "-", stdin=bare_node(name))
        kubectl("create", "-f", "-", stdin=bare_node(other))
        assert node.refused("label", "node", other, "a=b") == (
            f'nodes "{other}" is forbidden: node "{name}" is not allowed to modify node "{other}"'
        )
        assert node.refused("label", "node", name, "node-restriction.kubernetes.io/a=b") == (
            f'nodes "{name}" is forbidden: is not allowed to modify labels: '
            "node-restriction.kubernetes.io/a"
        )
        assert node.refused("taint", "node", name, "a=b:NoSchedule") == (
            f'nodes "{name}" is forbidden: node "{name}" is not allowed to modify taints'
        )
        for secret in ("mine", "theirs"):
            kubectl("-n", ns, "create", "secret", "generic", secret, "--from-literal=k=v")
        unrelated = f"no relationship found between node '{name}' and this object"
        not_mine = denied(user, "get", "secrets", ns, "mine", unrelated)
        assert node.refused("get", "secret", "mine") == not_mine
        kubectl("-n", ns, "create", "-f", "-", stdin=pod_on(name, "mine"))
        assert node("get", "secret", "mine", "-o", "jsonpath={.data.k}").stdout == "dg=="
        leases = "leases.coordination.k8s.io"
        refused = {
            ("get", "secret", "theirs"): denied(user, "get", "secrets", ns, "theirs", unrelated),
            ("get", "configmap", "x"): denied(user, "get", "configmaps", ns, "x", unrelated),
            ("get", "secrets"): denied(user, "list", "secrets", ns, why="No Object name found"),
            ("create", "configmap", "b"): denied(
                user, "create", "configmaps", ns, why="can only read resources of this type"
            ),
            ("-n", "kube-node-lease", "get", "lease", other): denied(
                user,
                "get",
                leases,
                "kube-node-lease",
                other,
                "can only access node lease with the same name as the requesting node",
            ),
            (
                "run",
                "x",
                "--image=x",
                "--restart=Never",
            ): 'pods "x" is forbidden: pod does not have "kubernetes.io/config.mirror" annotation, '
            f'node "{name}" can only create mirror pods',
        }
        assert {args: node.refused(*args) for args in refused} == refused

        listed = node("auth", "can-i", "--list")
        incomplete = (
            "arning: the list may be incomplete: node authorizer does not support user rule "
            "resolution\n"
        )
        assert listed.stderr.endswith(incomplete)
        assert leases not in rules(node)
        assert node("auth", "can-i", "get", "secrets/mine").stdout.strip() == "yes"
        kubectl("-n", ns, "delete", "pod", "user-of-mine", "--grace-period=0", "--force")
        assert node.refused("get", "secret", "mine") == not_mine
    finally:
        kubectl("delete", "node", name, other, "--ignore-not-found")


def bare_node(name: str) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})


def pod_on(node: str, secret: str) -> str:
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"user-of-{secret}"},
            "spec": {
                "nodeName": node,
                "containers": [{"name": "c", "image": "x"}],
                "volumes": [{"name": "s", "secret": {"secretName": secret}}],
            },
        }
    )


def test_impersonation(kubectl: Any, ns: str, someone: str, tmp_path: Path) -> None:
    as_jane = ("-n", ns, f"--as={someone}")
    admin = As(kubectl.binary, kubectl.cluster.kubeconfig, kubectl.cluster.env)
    assert admin.refused("get", "configmaps", *as_jane) == denied(someone, "list", "configmaps", ns)
    kubectl("-n", ns, "create", "rolebinding", "testers", "--clusterrole=view", "--group=testers")
    kubectl("get", "configmaps", *as_jane, "--as-group=testers")
    assert (
        kubectl("auth", "can-i", "list", "pods", *as_jane, "--as-group=testers").stdout == "yes\n"
    )
    assert "*.*" in kubectl("auth", "can-i", "--list", *as_jane, "--as-group=system:masters").stdout
    account = f"system:serviceaccount:{ns}:default"
    assert admin.refused("-n", ns, "get", "pods", f"--as={account}") == denied(
        account, "list", "pods", ns
    )
    kubectl(
        "-n",
        ns,
        "create",
        "rolebinding",
        "accounts",
        "--clusterrole=view",
        f"--group=system:serviceaccounts:{ns}",
    )
    kubectl("-n", ns, "get", "pods", f"--as={account}")

    # Who may impersonate one user may not take his groups, nor be another.
    bind_cluster_role(kubectl, someone, "impersonate --resource=users --resource-name=bob")
    jane = issued(kubectl, tmp_path, someone, namespace=ns)
    groups = ("--as=bob", "--as-group=system:masters")
    assert jane.refused("get", "cm", "--as=bob") == denied("bob", "list", "configmaps", ns)
    assert jane.refused("get", "cm", "--as=eve") == denied(
        someone, "impersonate", "users", name="eve"
    )
    assert jane.refused("get", "cm", *groups) == denied(
        someone, "impersonate", "groups", name="system:masters"
    )
    assert jane.refused("get", "cm", f"--as={account}") == denied(
        someone, "impersonate", "serviceaccounts", ns, "default"
    )


def test_no_user_escalates_permissions(kubectl: Any, ns: str, someone: str, tmp_path: Path) -> None:
    kubectl("-n", ns, "create", "rolebinding", "edit", "--clusterrole=edit", f"--user={someone}")
    policy = ",".join(
        f"{kind}.rbac.authorization.k8s.io"
        for kind in ("roles", "rolebindings", "clusterrolebindings")
    )
    csrs = "certificatesigningrequests.certificates.k8s.io"
    bind_cluster_role(
        kubectl,
        someone,
        f"get,list,create,update,patch --resource={policy}",
        f"* --resource={csrs},{csrs}/approval",
    )
    eve = issued(kubectl, tmp_path, someone, namespace=ns)
    held = (
        f'is forbidden: user "{someone}" (groups=["system:authenticated"]) is attempting to '
        "grant RBAC permissions not "
        "currently held:\n"
    )
    star = '{APIGroups:["*"], Resources:["*"], Verbs:["*"]}'
    assert eve.refused("create", "role", "r", "--verb=get", "--resource=nodes") == (
        f'roles.rbac.authorization.k8s.io "r" {held}{{APIGroups:[""], Resources:["nodes"], '
        f'Verbs:["get"]}}'
    )
    eve("create", "role", "allowed", "--verb=get,list", "--resource=configmaps")
    eve("create", "rolebinding", "allowed", "--role=allowed", "--user=friend")
    assert eve.refused(
        "patch",
        "role",
        "allowed",
        "--type=json",
        "-p",
        '[{"op":"replace","path":"/rules/0/resources","value":["*"]}]',
    ) == (
        f'roles.rbac.authorization.k8s.io "allowed" {held}{{APIGroups:[""], Resources:["*"], '
        f'Verbs:["get" "list"]}}'
    )
    assert eve.refused(
        "create", "rolebinding", "b", "--clusterrole=cluster-admin", f"--user={someone}"
    ) == (
        f'rolebindings.rbac.authorization.k8s.io "b" {held}{star}\n{{NonResourceURLs:["*"], '
        f'Verbs:["*"]}}'
    )
    assert eve.refused(
        "create", "clusterrolebinding", "b", "--clusterrole=view", f"--user={someone}"
    ).startswith(f'clusterrolebindings.rbac.authorization.k8s.io "b" {held}')
    masters = csr(f"m-{someone}", signing_request("root", "system:masters"))
    done = eve("create", "-f", "-", stdin=masters, check=False).stderr
    assert (
        f'{csrs} "m-{someone}" is forbidden: use of {CLIENT_SIGNER} signer with '
        "system:masters group is not allowed"
    ) in done
    eve("create", "-f", "-", stdin=csr(f"own-{someone}", signing_request("admin")))
    try:
        assert eve.refused("certificate", "approve", f"own-{someone}") == (
            f'{csrs} "own-{someone}" is forbidden: user not permitted to approve requests '
            "with signerName "
            f'"{CLIENT_SIGNER}"'
        )
    finally:
        kubectl("delete", "csr", f"own-{someone}")
    # An editor may be each account of his namespace, none elsewhere.
    token = "/api/v1/namespaces/kube-system/serviceaccounts/default/token"
    body = '{"kind":"TokenRequest","apiVersion":"authentication.k8s.io/v1","spec":{}}'
    elsewhere = denied(someone, "create", "serviceaccounts", "kube-system", "default")
    assert eve.refused("create", "--raw", token, "-f", "-", stdin=body) == (
        elsewhere.replace('resource "serviceaccounts"', 'resource "serviceaccounts/token"')
    )
    account = f"system:serviceaccount:{ns}:default"
    assert eve.refused("get", "pods", f"--as={account}") == denied(account, "list", "pods", ns)
    assert eve.refused("get", "pods", "--as=system:serviceaccount:kube-system:default") == (
        denied(someone, "impersonate", "serviceaccounts", "kube-system", "default")
    )
