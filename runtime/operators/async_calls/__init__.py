"""Calls that are answered later: functions that ask a service for many records at a time."""
