"""The cluster's network: addresses for sandboxes, and connections between addresses."""
