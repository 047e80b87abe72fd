"""Rules that change lines of a program: each a file, with what it needs to be legal and what it gives up."""
