"""What tests share is imported by its place: `from tests.corpus.planted_faults import backends`."""
