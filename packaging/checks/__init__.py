"""The checks behind packaging/check.py."""
