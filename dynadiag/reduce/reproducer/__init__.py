"""The file that comes out: written from a reduced graph or script, proven in fresh processes, with the report beside it."""
