"""Schema migrations, run as role fullread_owner (`fullread migrate` or `python -m app.bootstrap`)."""
