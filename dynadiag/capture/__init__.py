"""The one way to take over compiled code of a running script: at the n-th call of a compiled callable, or of a graph that Dynamo made.

The script runs unchanged. Either `ScriptCapture` runs it as `__main__` of this process and hands over a `CapturedCall`; the script never
goes on. Or the `sitecustomize.py` in `dynadiag/bootstrap` calls `start` in the script's own process, where `GraphWatch` writes.
Standard library and torch only: all this runs in the user's process.
"""
