"""State that was kept by an earlier program, read as the present one declares it."""
