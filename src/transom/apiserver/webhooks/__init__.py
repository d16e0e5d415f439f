"""Calling webhooks: how to reach them, what to send, what their answers mean."""
