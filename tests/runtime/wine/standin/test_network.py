"""The network of a stand-in is that of the process itself: seen over the loopback."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest
from tests.runtime.wine.standin.half import run

from transom.runtime.wine.standin import network


def free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])


def test_a_web_server_in_a_script_answers_one_request_after_another(tmp_path: Path) -> None:
    (tmp_path / "drive_c").mkdir()
    port = free_port()
    script = f"""
        $listener = New-Object System.Net.HttpListener
        $listener.Prefixes.Add('http://*:{port}/')
        $listener.Start()
        $job = Start-Job {{ 1..2 | % {{ Invoke-RestMethod http://localhost:{port}/$_ }} }}
        1..2 | % {{
            $context = $listener.GetContext()
            $buffer = [System.Text.Encoding]::UTF8.GetBytes('page ' + $context.Request.Url.AbsolutePath)
            $context.Response.OutputStream.Write($buffer, 0, $buffer.Length)
            $context.Response.Close()
        }}
        Wait-Job $job | Out-Null
        Receive-Job $job
    """
    half = run(
        tmp_path, "powershell -Command -", given=[script.replace("\n", " ;").encode() + b"\n"]
    )
    assert half.output.decode() == "page /1\r\npage /2\r\n", half.error.decode()


async def test_ports_in_use() -> None:
    port = free_port()
    close = network.listen_stand_in(port, lambda connection: connection.close())
    with pytest.raises(OSError, match="in use"):
        network.listen_stand_in(port, lambda connection: connection.close())
    (await network.connect_stand_in(["127.0.0.1"], port)).close()
    close()
    with pytest.raises(ConnectionRefusedError):
        await network.connect_stand_in(["127.0.0.1"], port)


def test_datagrams_are_asked_and_answered() -> None:
    async def attempt() -> bytes:
        port = free_port()

        async def respond(payload: bytes, caller: str) -> bytes:
            return payload.upper() + caller.encode()

        close = network.answer_stand_in(port, respond)
        try:
            return await network.ask_stand_in("127.0.0.1", port, b"hi ")
        finally:
            close()

    assert asyncio.run(attempt()) == b"HI 127.0.0.1"
