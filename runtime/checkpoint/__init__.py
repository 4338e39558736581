"""Aligned-barrier checkpoints. The deciding files are pure; driver.py does the I/O."""
