"""Who gives slots a place to run: this process, or Spark."""
