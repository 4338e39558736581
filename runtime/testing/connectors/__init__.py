"""Small connectors that use every part of the contracts: for the suites, for tests, and to learn from."""
