"""Decoding: prompts, the one loop, ensembles, scores."""
