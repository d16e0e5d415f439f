"""The cluster's DNS server."""
