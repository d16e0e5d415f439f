"""Puts text in nftables' language in force in the namespace of the calling thread.

With the library when the machine has it, since a rule change is then a function call; else with the `nft` program.
"""

from __future__ import annotations

import ctypes
import subprocess
from ctypes.util import find_library


class FirewallError(Exception):
    """What nft said."""


def _load() -> ctypes.CDLL | None:
    name = find_library("nftables")
    try:
        library = ctypes.CDLL(name or "libnftables.so.1")
    except OSError:
        return None
    library.nft_ctx_new.argtypes = [ctypes.c_uint32]
    library.nft_ctx_new.restype = ctypes.c_void_p
    for function in (library.nft_ctx_free, library.nft_ctx_buffer_output, library.nft_ctx_buffer_error):
        function.argtypes = [ctypes.c_void_p]
    for function in (library.nft_ctx_get_output_buffer, library.nft_ctx_get_error_buffer):
        function.argtypes = [ctypes.c_void_p]
        function.restype = ctypes.c_char_p
    library.nft_run_cmd_from_buffer.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    return library


_library = _load()


def run(text: str) -> str:
    """All of it or nothing; the answer is what it prints."""
    if _library is None:
        done = subprocess.run(["nft", "-f", "-"], input=text, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise FirewallError(done.stderr)
        return done.stdout
    context = _library.nft_ctx_new(0)  # its socket belongs to the namespace that the thread is in now
    try:
        _library.nft_ctx_buffer_output(context)
        _library.nft_ctx_buffer_error(context)
        if _library.nft_run_cmd_from_buffer(context, text.encode()) != 0:
            raise FirewallError(_library.nft_ctx_get_error_buffer(context).decode(errors="replace"))
        return str(_library.nft_ctx_get_output_buffer(context).decode(errors="replace"))
    finally:
        _library.nft_ctx_free(context)
