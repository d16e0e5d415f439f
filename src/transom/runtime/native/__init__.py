"""Containers that are real processes of this machine: what those for Linux and those for Windows have in common."""
