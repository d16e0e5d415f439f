"""cmd.exe."""
