"""Taking a compiled graph out of a running script, with its real inputs, before it is compiled or called.

`dynadiag minify` puts `bootstrap` on PYTHONPATH; the `sitecustomize.py` there waits for torch and hands over to `inside`. Standard library
and torch only: it runs in the user's process.
"""
