"""Windows programs other than the two shells."""
