"""How sandboxes get addresses, and how bytes get from one address to another."""
