"""From the steps that a user wrote to the job graph that tasks run, checked on the way. Pure."""
