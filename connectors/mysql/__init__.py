"""Tables of MySQL and MariaDB: what its sink is made of."""
