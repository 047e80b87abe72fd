"""FX graphs from the text of a log: parsed, checked against an allow-list, rebuilt node by node, given inputs, run, written as a script.

Importing this package needs no torch. `source_text`, `annotations`, `sizes` and `stack_notes` never do; the other modules import torch.
"""
