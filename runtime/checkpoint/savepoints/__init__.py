"""Savepoints: checkpoints that are the user's, in folders of their own or pinned in the job's."""
