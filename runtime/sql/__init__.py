"""SQL over streams: a statement becomes steps of the DataStream API, and nothing else runs."""
