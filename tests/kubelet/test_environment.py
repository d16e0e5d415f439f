from base64 import b64encode
from typing import Any

import pytest
from tests.kubelet.machines import Machine, pod

from transom.kubelet.failures import ContainerFailure


def service(name: str, ip: str, *ports: dict[str, Any], namespace: str = "ns") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"clusterIP": ip, "ports": list(ports)},
    }


def machine(**settings: Any) -> Machine:
    made = Machine(**settings)
    made.api.put(
        "configmaps",
        "conf",
        {"data": {"a": "1", "b.c": "2", "0bad": "3"}, "binaryData": {"bin": "AA=="}},
    )
    made.api.put("secrets", "sec", {"data": {"password": b64encode(b"p$(a)w").decode()}})
    return made


def env_of(
    made: Machine, ips: tuple[str, ...] = ("10.1.2.3", "fd00::3"), **container: Any
) -> dict[str, str]:
    return dict(made.config(pod(container), ips=ips).env)


def test_whole_objects_come_first_and_are_overridden() -> None:
    made = machine()
    variables = env_of(
        made,
        envFrom=[
            {"prefix": "P_", "configMapRef": {"name": "conf"}},
            {"secretRef": {"name": "sec"}},
            {"configMapRef": {"name": "none", "optional": True}},
        ],
        env=[{"name": "P_a", "value": "own"}, {"name": "SUM", "value": "$(P_a)-$(password)-$$(x)"}],
    )
    assert variables == {
        "P_a": "own",
        "P_b.c": "2",
        "P_0bad": "3",
        "password": "p$(a)w",
        "SUM": "own-p$(a)w-$(x)",
    }
    assert made.events.recorded == []


@pytest.mark.parametrize(
    "container",
    [
        {
            "env": [
                {"name": "A0", "value": "x" * 100},
                *({"name": f"A{n}", "value": f"$(A{n - 1})" * 2} for n in range(1, 60)),
            ]
        },
        {
            "env": [
                {"name": "A", "value": "x" * 1_000_000},
                *({"name": f"B{n}", "value": "$(A)"} for n in range(10_000)),
            ]
        },
        {"env": [{"name": "A", "value": "x" * 1000}], "args": ["$(A)"] * 1_000_000},
        {"env": [{"name": "A", "value": "x" * 1_000_000}], "command": ["$(A)" * 100_000]},
    ],
    ids=["doubling", "many", "arguments", "command"],
)
def test_variables_that_multiply_end_the_container(container: dict[str, Any]) -> None:
    """A pod of 2 KB would become terabytes."""
    with pytest.raises(ContainerFailure, match="argument list too long") as failure:
        env_of(machine(), **container)
    assert failure.value.reason == "CreateContainerConfigError"


def test_invalid_names_are_skipped_and_reported() -> None:
    made = machine()
    assert "0bad" not in env_of(made, envFrom=[{"configMapRef": {"name": "conf"}}])
    assert made.events.recorded == [
        (
            "InvalidEnvironmentVariableNames",
            "Keys [0bad] from the EnvFrom configMap ns/conf were skipped since they are "
            "considered invalid environment variable "
            "names.",
        )
    ]


def test_since_1_30_every_key_becomes_a_variable() -> None:
    made = machine(version="v1.30.0")
    prefixed = [{"prefix": prefix, "secretRef": {"name": "sec"}} for prefix in ("1-", "#@!")]
    variables = env_of(made, envFrom=[{"configMapRef": {"name": "conf"}}, *prefixed])
    assert (variables["0bad"], variables["1-password"]) == ("3", "p$(a)w")
    assert variables["#@!password"] == "p$(a)w"
    assert made.events.recorded == []


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ({"fieldRef": {"fieldPath": "metadata.name"}}, "web"),
        ({"fieldRef": {"fieldPath": "metadata.labels['app']"}}, "web"),
        ({"fieldRef": {"fieldPath": "metadata.annotations['none']"}}, ""),
        ({"fieldRef": {"fieldPath": "spec.nodeName"}}, "node-1"),
        ({"fieldRef": {"fieldPath": "spec.serviceAccountName"}}, "default"),
        ({"fieldRef": {"fieldPath": "status.hostIP"}}, "192.168.0.5"),
        ({"fieldRef": {"fieldPath": "status.podIP"}}, "10.1.2.3"),
        ({"fieldRef": {"fieldPath": "status.podIPs"}}, "10.1.2.3,fd00::3"),
        ({"resourceFieldRef": {"resource": "limits.cpu"}}, "1"),  # 250m, rounded up
        ({"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}, "250"),
        (
            {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}},
            "8000",
        ),  # not set: all of the node
        ({"resourceFieldRef": {"resource": "requests.memory"}}, "0"),
        ({"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Gi"}}, "8"),
        ({"configMapKeyRef": {"name": "conf", "key": "a"}}, "1"),
        ({"secretKeyRef": {"name": "sec", "key": "password"}}, "p$(a)w"),
        ({"configMapKeyRef": {"name": "conf", "key": "none", "optional": True}}, None),
        ({"secretKeyRef": {"name": "none", "key": "x", "optional": True}}, None),
    ],
)
def test_values_from(source: dict[str, Any], value: str | None) -> None:
    variables = env_of(
        machine(), env=[{"name": "V", "valueFrom": source}], resources={"limits": {"cpu": "250m"}}
    )
    assert variables.get("V") == value


@pytest.mark.parametrize(
    ("container", "message"),
    [
        (
            {"env": [{"name": "V", "valueFrom": {"configMapKeyRef": {"name": "x", "key": "k"}}}]},
            'configmap "x" not found',
        ),
        (
            {"env": [{"name": "V", "valueFrom": {"secretKeyRef": {"name": "sec", "key": "k"}}}]},
            "couldn't find key k in Secret ns/sec",
        ),
        (
            {
                "env": [
                    {"name": "V", "valueFrom": {"configMapKeyRef": {"name": "conf", "key": "bin"}}}
                ]
            },
            "couldn't find key bin in ConfigMap ns/conf",
        ),
        ({"envFrom": [{"secretRef": {"name": "y"}}]}, 'secret "y" not found'),
    ],
)
def test_what_is_missing(container: dict[str, Any], message: str) -> None:
    with pytest.raises(ContainerFailure) as caught:
        env_of(machine(), **container)
    assert (caught.value.reason, str(caught.value)) == ("CreateContainerConfigError", message)


def test_services_of_the_namespace() -> None:
    made = Machine()
    made.services.services = [
        service(
            "kubernetes",
            "10.96.0.1",
            {"name": "https", "port": 443, "protocol": "TCP"},
            namespace="default",
        ),
        service("other", "10.96.0.2", {"port": 1}, namespace="default"),
        service(
            "my-db",
            "10.96.0.3",
            {"name": "sql-x", "port": 5432},
            {"name": "u", "port": 9, "protocol": "UDP"},
        ),
        service("headless", "None", {"port": 1}),
    ]
    variables = env_of(
        made,
        env=[
            {"name": "URL", "value": "$(MY_DB_PORT)"},
            {"name": "MY_DB_SERVICE_HOST", "value": "mine"},
        ],
    )
    assert variables["URL"] == "tcp://10.96.0.3:5432"
    assert variables["MY_DB_SERVICE_HOST"] == "mine"
    assert {k: v for k, v in variables.items() if k.startswith("MY_DB")} == {
        "MY_DB_SERVICE_HOST": "mine",
        "MY_DB_SERVICE_PORT": "5432",
        "MY_DB_SERVICE_PORT_SQL_X": "5432",
        "MY_DB_SERVICE_PORT_U": "9",
        "MY_DB_PORT": "tcp://10.96.0.3:5432",
        "MY_DB_PORT_5432_TCP": "tcp://10.96.0.3:5432",
        "MY_DB_PORT_5432_TCP_PROTO": "tcp",
        "MY_DB_PORT_5432_TCP_PORT": "5432",
        "MY_DB_PORT_5432_TCP_ADDR": "10.96.0.3",
        "MY_DB_PORT_9_UDP": "udp://10.96.0.3:9",
        "MY_DB_PORT_9_UDP_PROTO": "udp",
        "MY_DB_PORT_9_UDP_PORT": "9",
        "MY_DB_PORT_9_UDP_ADDR": "10.96.0.3",
    }
    assert variables["KUBERNETES_SERVICE_HOST"] == "10.96.0.1"
    assert not any(name.startswith(("OTHER", "HEADLESS")) for name in variables)

    without = dict(made.config(pod(enableServiceLinks=False)).env)
    assert {name.split("_")[0] for name in without} == {"KUBERNETES"}


def test_services_with_more_ports_than_a_program_can_have_variables_for() -> None:
    """Linux starts no program with more than 2 MiB of arguments and variables."""
    made = machine()
    ports = [{"port": n + 1, "name": f"p{n}"} for n in range(3_000)]
    made.services.services = [service(f"s{n}", "10.96.0.1", *ports) for n in range(3)]
    unlinked = {"enableServiceLinks": False}
    assert len(made.config(pod({}, enableServiceLinks=True)).env) > 45_000
    many = [{"port": n + 1, "name": f"p{n}"} for n in range(30_000)]
    for services in (
        [service(f"s{n}", "10.96.0.1", *ports) for n in range(6)],
        [service("s", "10.96.0.1", *many)],
    ):
        made.services.services = services
        with pytest.raises(ContainerFailure, match="argument list too long"):
            made.config(pod({}, enableServiceLinks=True))
        assert made.config(pod({}, **unlinked)).env == ()
