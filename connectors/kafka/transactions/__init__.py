"""Output held until its checkpoint is durable, and committed once: transactions and the ledger."""
