"""Aggregation: groups that other API servers serve, behind this one."""
