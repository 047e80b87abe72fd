"""Changes of a program: one file for each, with what makes it legal, what it edits and what it gives up."""
