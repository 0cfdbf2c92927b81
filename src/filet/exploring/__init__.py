"""A local page to see the trade-off, by `filet explore`: the questions of the command line."""
