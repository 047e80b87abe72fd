"""`dynadiag bug`: a bug report to be sent: the form, the bundle, and what is taken out of both."""
