"""Calling webhooks: connections, requests and responses."""
