"""One function a command: parse, call the library, print."""
