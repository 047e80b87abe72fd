"""Our child processes, and what they answered before."""
