"""Inductor: its passes, its C++, its CUDA graphs."""
