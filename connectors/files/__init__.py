"""Files in folders and object stores: read once each, and exactly on from where a checkpoint was."""
