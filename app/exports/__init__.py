"""What leaves the platform as flat rows for reporting tools: datasets, cursors, CSV files."""
