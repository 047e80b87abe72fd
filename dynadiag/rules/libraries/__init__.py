"""The atlas of libraries: what their functions do under `torch.compile`, and the cure on the user's own line.

One TOML file for each package, by the name that it is imported by. `benchmarks/library_atlas.py` runs each entry's two programs and writes
what torch counted; nothing is in the atlas that was not run on the versions that it names.
"""
