"""Applies nftables scripts in the namespace of the calling thread.

Uses the library if installed, because a rule change is then a function call; otherwise the `nft`
program.
"""

from __future__ import annotations

import ctypes

from transom.kit.programs import run_program


class FirewallError(Exception):
    """The output of nft."""


def _load() -> ctypes.CDLL | None:
    try:
        # ctypes.util.find_library would run compilers to find it
        library = ctypes.CDLL("libnftables.so.1")
    except OSError:
        return None
    library.nft_ctx_new.argtypes = [ctypes.c_uint32]
    library.nft_ctx_new.restype = ctypes.c_void_p
    for function in (
        library.nft_ctx_free,
        library.nft_ctx_buffer_output,
        library.nft_ctx_buffer_error,
    ):
        function.argtypes = [ctypes.c_void_p]
    for function in (library.nft_ctx_get_output_buffer, library.nft_ctx_get_error_buffer):
        function.argtypes = [ctypes.c_void_p]
        function.restype = ctypes.c_char_p
    library.nft_run_cmd_from_buffer.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    return library


_library = _load()


def run_nft(text: str) -> str:
    """Applies all of it or nothing; returns the output."""
    if _library is None:
        done = run_program(["nft", "-f", "-"], input=text.encode())
        if done.returncode != 0:
            raise FirewallError(done.stderr.decode(errors="replace"))
        return done.stdout.decode(errors="replace")
    context = _library.nft_ctx_new(0)  # its socket belongs to the thread's current namespace
    try:
        _library.nft_ctx_buffer_output(context)
        _library.nft_ctx_buffer_error(context)
        if _library.nft_run_cmd_from_buffer(context, text.encode()) != 0:
            raise FirewallError(_library.nft_ctx_get_error_buffer(context).decode(errors="replace"))
        return str(_library.nft_ctx_get_output_buffer(context).decode(errors="replace"))
    finally:
        _library.nft_ctx_free(context)
