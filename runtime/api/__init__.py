"""What a user writes a program with: the job, its streams, its keyed streams."""
