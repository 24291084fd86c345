"""Runnable studies over ragjax."""
