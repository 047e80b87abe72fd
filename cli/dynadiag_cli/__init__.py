"""The `dynadiag` command: one thin file a verb, over the library."""
