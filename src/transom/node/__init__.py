"""Nodes: a machine, a network, a container runtime and the programs that make it a node."""
