"""Delta Lake: tables, and commits that have their ledger in them."""
