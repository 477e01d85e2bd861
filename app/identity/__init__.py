"""Tenants, users, API keys, login sessions and the role table."""
