"""What sinks of table formats have in common: data files that one commit makes visible."""
