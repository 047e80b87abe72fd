"""What a run says, looked up once for passes and advice: the user's own frames, guard sources, fingerprints, words for places."""
