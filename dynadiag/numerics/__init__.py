"""`dynadiag numerics`: where compiled values leave eager's, whether that is rounding, and which option ends it."""
