from __future__ import annotations
class Compiler:
    pass
