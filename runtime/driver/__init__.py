"""The driver: it starts slots, hands out splits, commits for all writers, and tells what goes on."""
