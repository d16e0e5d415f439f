"""What real clients send after the upgrade, recorded: the events are the same in any segmentation."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transom.kit.streaming import portforward, remotecommand
from transom.kit.streaming.channels import STDIN, V4, V5

STREAMS = remotecommand.CommandStreams(stdin=True, stdout=True, stderr=True)
ECHOED = [
    remotecommand.CommandOpened(),
    remotecommand.CommandData(STDIN, b"hello\n"),
    remotecommand.CommandStreamEnded(STDIN),
]
FORWARDED = [
    portforward.ForwardConnected(1, 80),
    portforward.ForwardData(1, b"hello"),
    portforward.ForwardEnded(1),
]

EXEC_1_20 = """
80030001000000290000000100000000000078f9e3c6a7c26260606004a7b392a2d4c45c6851c29a0a0a6800000000ffff8003000100000017000000
03000000000000c22e555c92929907000000ffff800300010000001900000005000000000000c22ac5565c92925f5a02000000ffff80030001000000
1500000007000000000000c229975a5404000000ffff000000030000000668656c6c6f0a0000000301000000
"""
PORT_FORWARD_1_20 = """
800300010000003d0000000100000000000078f9e3c6a7c202253a703a2b294a4dcc851625aca9a0808614cb45a024cc6461c0c0c0c0590489c44c50
e2663400000000ffff0000000101000000800300010000001a00000003000000000000826a25a406d56850299508000000ffff000000030000000568
656c6c6f0000000301000000
"""
EXEC_1_32 = "8287a761b303a709d66fcb0eb9828237d4e0bbc8d4"
PORT_FORWARD_1_32 = """
8282d06594375066828269f7a9c169f68284d85a7cf4d85a7cc98284019461360194613782847c46c3427c46c3428281c900e8fbc98281217501ff21
82b3814a90d4f9b37312268892f1bb02698f85003b98974c9cd88dd6d54459809471e30c93a4bb66b99ecc8615c2b4e63974094a90d481b56f8284ab
a16ae9aba16ae88284299b072d289b072d8280fdce1f3e828230151445b0168282b4b60126b4b78284963f26a1963f26bb8284b6e58470b6e5847382
841ee2824e1ee2824e82814c8d34054c82814db95cb34d8290484a6a07ca202f924adf288ecc466e07484a95f88284c207e2a0c207e2a38284b492bb
3fb492bb3a8285025177846a341be86d82841ed0afdc1ed0afdf82847c91f6bd7d91f6bd82808c8a751a
"""
CAPTURES: dict[str, tuple[str, Any, list[Any]]] = {
    "kubectl-1.20-exec": (EXEC_1_20, lambda: remotecommand.SpdyCommandServer(STREAMS, V4), ECHOED),
    "kubectl-1.20-port-forward": (PORT_FORWARD_1_20, portforward.SpdyForwardServer, FORWARDED),
    "kubectl-1.32-exec": (
        EXEC_1_32,
        lambda: remotecommand.WebSocketCommandServer(STREAMS, V5),
        ECHOED,
    ),
    "kubectl-1.32-port-forward": (
        PORT_FORWARD_1_32,
        lambda: portforward.SpdyForwardServer(tunnel=True),
        FORWARDED,
    ),
}


@pytest.mark.parametrize(("text", "make", "expected"), CAPTURES.values(), ids=CAPTURES.keys())
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_captures(text: str, make: Any, expected: list[Any], size: int) -> None:
    raw = bytes.fromhex("".join(text.split()))
    session = make()
    events = session.start()
    for at in range(0, len(raw), size):
        events += session.receive_data(raw[at : at + size])
    assert events == expected


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(sorted(CAPTURES)),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=4),
)
def test_damage_ends_a_session_or_a_stream_but_never_raises(
    name: str, damage: list[tuple[int, int]]
) -> None:
    text, make, _ = CAPTURES[name]
    raw = bytearray.fromhex("".join(text.split()))
    for at, value in damage:
        raw[at % len(raw)] = value
    session = make()
    session.start()
    session.receive_data(bytes(raw))
    session.data_to_send()
    session.close()
    session.receive_eof()
    session.data_to_send()
    assert session.done
