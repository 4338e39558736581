"""Which windows a row belongs to, and when they fire."""
