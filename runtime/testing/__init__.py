"""Tools for users and connector authors: simulate, inject faults, check the contracts."""
