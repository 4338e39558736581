"""Keyed state in this process's memory: the implementation behind `state/table.py`. Operators get it from
`state/tables.py` and import nothing from here."""
