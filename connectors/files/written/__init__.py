"""Files that a sink writes: hidden until their checkpoint is durable, then shown whole, each once."""
