#!/bin/sh
# Secrets come as files: each one named like a variable becomes that variable, for this process only.
set -eu
for file in /run/secrets/[A-Z]*; do
  [ -f "$file" ] || continue
  export "$(basename "$file")=$(cat "$file")"
done
exec "$@"
