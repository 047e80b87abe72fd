"""What a reduction is made of, whatever is reduced: the search, the verdicts, the journal, children, failures."""
