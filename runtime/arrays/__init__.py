"""Arrow's memory, where its own library does not go: offsets, and buffers that are used again."""
