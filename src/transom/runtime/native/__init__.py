"""Containers that are real processes of this machine: the common part for Linux and Windows
containers.
"""
