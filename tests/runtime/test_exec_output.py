from __future__ import annotations

import pytest

from transom.runtime import exec_output
from transom.runtime.api import ExecResult
from transom.runtime.exec_output import ExecOutput


def test_the_beginning_of_each_stream_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exec_output, "LARGEST_OUTPUT", 5)
    output = ExecOutput()
    for data in (b"abc", b"defg", b"h"):
        output("stdout", data)
    output("stderr", b"e")
    assert output.result(1) == ExecResult(b"abcde", b"e", 1)
