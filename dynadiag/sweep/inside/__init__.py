"""What runs in the interpreter of a task: the standard library, torch, and the library that a suite is of."""
