"""Finds problems of a cluster and their remedies, and collects data for bug reports. Read-only."""
