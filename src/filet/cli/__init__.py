"""The `filet` command: run files, options, output, one thin function a command."""
