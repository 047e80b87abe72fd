"""Where a failure comes from: a script that is run, a recording, a script that torch wrote. Each becomes a folder of captured graphs."""
