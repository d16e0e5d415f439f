"""Windows PowerShell and pwsh, as far as scripts in manifests need them."""
