"""Pictures for docs/concepts, drawn from runs of the simulation: what they show has happened so."""
