"""What a machine offers to `torch.compile` and to us, without importing torch here: `examine` looks, `as_text` and `as_dict` show."""

from dynadiag.doctor.checkup import Checkup, TorchFacts, as_dict, as_text, examine

__all__ = ["Checkup", "TorchFacts", "as_dict", "as_text", "examine"]
