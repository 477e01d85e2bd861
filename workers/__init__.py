"""Celery entry points: thin wrappers around the job handlers of `app`."""
