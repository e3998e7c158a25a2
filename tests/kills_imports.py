"""Imported by the process whose children tests/kills.py kills."""
import kills

kills.prepare()
