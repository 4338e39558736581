"""The tests of a place for checkpoints, on the one that a local path is."""

from onceflow.runtime.checkpoint.local_store import LocalStore
from onceflow.testing.kit import StoreKit


class TestLocalPath(StoreKit):
    def store(self) -> LocalStore:
        return LocalStore(f"{self.folder}/checkpoints")
