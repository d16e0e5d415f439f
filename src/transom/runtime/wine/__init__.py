"""Windows containers on Linux: Win32 programs under Wine, each with its own registry, accounts and
C: drive.
"""
