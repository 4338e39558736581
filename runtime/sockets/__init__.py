"""Connections between the processes of a job: who may open one, and who may read it."""
