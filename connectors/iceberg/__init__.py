"""Apache Iceberg: tables of a catalog, and commits that have their ledger in them."""
