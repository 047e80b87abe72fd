"""Dynamo: what it compiles, captures, counts and breaks at."""
