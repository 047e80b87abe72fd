"""Whether a compiled call gave the same as eager: one judge, one record of a difference, eager's own noise, what a call gave.

Part of it runs in the user's process (`--parity`): the standard library and torch only.
"""
