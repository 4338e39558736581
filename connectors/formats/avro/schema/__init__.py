"""Avro schemas: parsed, derived from columns, fitted to columns, and kept in registries."""
