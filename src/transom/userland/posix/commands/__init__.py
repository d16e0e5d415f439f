"""Commands: functions over a process, in tables by name."""
