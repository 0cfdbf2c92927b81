"""A local page to see the trade-off: `filet explore` serves it on this machine only, and asks what the command line asks."""
