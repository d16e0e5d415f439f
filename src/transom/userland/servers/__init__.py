"""Server programs, and programs that only wait."""
