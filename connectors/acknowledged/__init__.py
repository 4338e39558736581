"""What sources share whose messages are delivered again until they are acknowledged."""
