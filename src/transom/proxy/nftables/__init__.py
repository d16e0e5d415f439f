"""The service proxy of a Linux node: services as one nftables table for each family."""
