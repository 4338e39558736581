"""One slot: the tasks in it, its thread, its process, and who watches over a call that hangs."""
