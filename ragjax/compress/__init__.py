"""Compressors behind one contract."""
