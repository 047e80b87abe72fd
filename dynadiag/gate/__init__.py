"""The gate (`dynadiag check`): what of a report fails, and how that is told to people, editors and CI."""
