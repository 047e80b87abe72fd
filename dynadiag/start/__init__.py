"""`dynadiag start`: why the second start of a program compiles again, from two recordings."""
