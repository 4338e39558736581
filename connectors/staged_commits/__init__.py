"""Sinks on systems that can commit rows and a ledger in one step: a checkpoint's rows go there once it is
durable, owner by owner."""
