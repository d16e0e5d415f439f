"""Programs of Windows images, outside of the two shells."""
