"""How the driver and the slots speak: token-authenticated TCP, JSON messages."""
