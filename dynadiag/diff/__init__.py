"""Two runs compared (`dynadiag diff`): what came, what is gone, and whether it got worse."""
