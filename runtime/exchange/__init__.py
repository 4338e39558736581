"""How elements move between subtasks."""
