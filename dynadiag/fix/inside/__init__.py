"""What runs in the process of a proof: the script with new texts of its files, and what its compiled callables were given and gave."""
