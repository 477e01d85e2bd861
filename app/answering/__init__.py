"""Prompts, citations, evidence, coverage and the answer itself."""
