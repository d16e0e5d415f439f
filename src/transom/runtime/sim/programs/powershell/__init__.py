"""Windows PowerShell and pwsh, as far as manifests and their scripts go."""
