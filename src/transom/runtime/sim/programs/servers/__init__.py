"""Programs that wait for connections, and those that just wait."""
