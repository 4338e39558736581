"""A user's types: what they are as columns, and how records are made of columns and columns of records."""
