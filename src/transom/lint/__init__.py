"""What a manifest will do on Windows nodes, told before it is there. Reads `transom.windows`, writes findings and fixes."""
