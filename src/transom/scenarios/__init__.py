"""Known faults of Windows nodes as named, repeatable scenarios."""
