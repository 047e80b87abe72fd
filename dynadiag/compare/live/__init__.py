"""The comparison in the program: a compiled graph's real calls, run a second time in eager on copies of their inputs, and compared.

Runs in the user's process: the standard library and torch only.
"""
