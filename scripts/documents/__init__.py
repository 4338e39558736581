"""What makes the generated pages and pictures of docs/, and the hooks of its site."""
