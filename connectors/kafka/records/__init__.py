"""Record batches of version 2 (KIP-98), read and written: no I/O."""
