"""The user's code, read and never run: what its functions do with tensors and numbers."""
