"""Taking a compiled graph out of a running script, with its real inputs, before it is compiled or called.

The `sitecustomize.py` in `dynadiag/bootstrap` hands over to `inside` where `dynadiag minify` captures. Standard library and torch only: it
runs in the user's process.
"""
