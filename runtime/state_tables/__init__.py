"""The state of a job as tables, without the job's code: of a checkpoint or of a savepoint."""
