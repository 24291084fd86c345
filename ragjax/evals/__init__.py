"""Evaluation: normalisers, metrics, statistics, the reader, and resumable runs."""
