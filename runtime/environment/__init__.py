"""What is around a job on its machine: Java, the program's files, other jobs, a process that stands still."""
