"""Reading topics: the source, its reader, and what becomes of records."""
