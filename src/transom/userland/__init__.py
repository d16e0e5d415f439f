"""The programs that run on emulated machines: shells, commands, servers.

`start.start_program` starts one. A program reaches its container only through the interfaces of
`api.ProgramContext`: no real files, processes or sockets. Commands are functions in tables
(`posix/commands/`, `windows/`), cmdlets are rows of tables in `powershell/`, servers are rows of
`launch/server_table.py`.
"""
