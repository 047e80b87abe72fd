"""What runs in an arm's own process: the standard library, torch and the user's program."""
