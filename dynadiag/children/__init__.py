"""Our child processes: workers that speak JSON lines, children forked for one question, and what their answers were before."""
