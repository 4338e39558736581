"""What the user's functions get besides records: parameters, a log, metrics, and a life of their own."""
