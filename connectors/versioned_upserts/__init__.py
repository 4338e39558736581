"""Upserts into stores that have no transaction over many rows: a checkpoint's rows go there once it is
durable, as many small writes that may be repeated, and a ledger beside them says which checkpoint is
whole."""
