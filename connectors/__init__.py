"""Sources and formats. Each folder stands alone."""
