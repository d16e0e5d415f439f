"""WebSocket channels against the client library for Python, which speaks them for exec and
port-forward.
"""

from __future__ import annotations

from typing import Any

import pytest
from kubernetes import client, config, stream
from tests.kit.streaming.fake_api import Api

from transom.kit.streaming import channels


class Core:
    def __init__(self, api: Api, core: Any) -> None:
        self.api = api
        self.core = core

    def exec(self, *command: str, **more: Any) -> Any:
        options = {"stdout": True, "stderr": True, "_preload_content": False} | more
        return stream.stream(
            self.core.connect_get_namespaced_pod_exec,
            "p",
            "default",
            command=list(command),
            **options,
        )


@pytest.fixture(
    params=[(channels.V4, False), (channels.V5, False), (channels.V5, True)],
    ids=["v4", "v5", "two-hops"],
)
def core(request: pytest.FixtureRequest, served: Any) -> Core:
    version, served.api.two_hops = request.param
    served.api.websocket_protocols = (version,)
    served.api.spoken.clear()
    return Core(served.api, client.CoreV1Api(config.new_client_from_config(str(served.kubeconfig))))


def test_output_and_exit_code(core: Core) -> None:
    session = core.exec("fail", "42")
    session.run_forever(timeout=10)
    assert (session.read_stdout(), session.read_stderr(), session.returncode) == (
        "out\n",
        "err\n",
        42,
    )
    assert core.api.spoken == list(core.api.websocket_protocols)


def test_stdin_comes_back(core: Core) -> None:
    session = core.exec("cat", stdin=True)
    session.write_stdin("hello\n")
    assert session.readline_stdout(timeout=10) == "hello"
    session.close()


def test_port_forward(core: Core) -> None:
    forward = stream.portforward(
        core.core.connect_get_namespaced_pod_portforward, "p", "default", ports="80,81"
    )
    sock = forward.socket(80)
    sock.settimeout(10)
    sock.sendall(b"hello")
    assert sock.recv(100) == b"HELLO"
    sock.close()
    assert core.api.spoken == [channels.V4]
    assert forward.error(81) == "no listener"
