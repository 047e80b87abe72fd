"""AOTAutograd and the autograd engine."""
