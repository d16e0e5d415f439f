"""Deploys the demo workload of `transom demo`."""
