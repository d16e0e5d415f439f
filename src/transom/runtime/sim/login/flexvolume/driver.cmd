@echo off
rem A FlexVolume driver: the kubelet calls DRIVER COMMAND ARGUMENTS... and reads one JSON object.
powershell.exe -NoLogo -NoProfile -ExecutionPolicy Bypass -File "%~dpn0.ps1" %*
