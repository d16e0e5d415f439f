"""The request chain, and its two adapters: HTTP and in-process."""
