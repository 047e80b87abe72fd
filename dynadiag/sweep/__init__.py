"""`dynadiag sweep`: many programs by many configurations, each as a process of its own, with one row for each."""
