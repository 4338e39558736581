"""KeyedProcess: the user's function with state and timers, and the operator that calls it."""
