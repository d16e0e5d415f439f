"""Aggregation: proxies API groups that other API servers serve."""
