"""`dynadiag fix`: what advice says is tried in a copy, proven against the original program in eager, and handed over as one patch."""
