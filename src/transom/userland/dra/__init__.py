"""Simulated drivers of dynamic resource allocation."""
