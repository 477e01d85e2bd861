#!/bin/sh
# Makes every secret of docker-compose.yml once, below infra/docker/secrets. Existing ones are kept.
# The folder is closed (0700); the files are readable (0444) because each container has a user of its own.
set -eu
cd "$(dirname "$0")"
umask 077
mkdir -p secrets
chmod 700 secrets
cd secrets

random() { od -An -v -N32 -tx1 /dev/urandom | tr -d ' \n'; }
keep() { # keep NAME VALUE: write the file unless it is there
  [ -s "$1" ] && return 0
  printf '%s\n' "$2" > "$1"
  chmod 444 "$1"
}
value() { tr -d '\n' < "$1"; }

for name in POSTGRES_PASSWORD VALKEY_PASSWORD QDRANT_API_KEY ENGINE_API_KEY EMBEDDINGS_API_KEY FULLREAD_SECRET_KEY \
            owner_password app_password platform_password bi_password; do
  keep "$name" "$(random)"
done
database() { printf 'postgresql+psycopg://fullread_%s:%s@postgres:5432/fullread' "$1" "$(value "$1_password")"; }
keep DATABASE_OWNER_URL "$(database owner)"
keep DATABASE_URL "$(database app)"
keep DATABASE_PLATFORM_URL "$(database platform)"
keep REDIS_URL "redis://:$(value VALKEY_PASSWORD)@valkey:6379/0"
keep roles.json "{\"fullread_owner\":\"$(value owner_password)\",\"fullread_app\":\"$(value app_password)\",\"fullread_platform\":\"$(value platform_password)\",\"fullread_bi\":\"$(value bi_password)\"}"
keep valkey.conf "requirepass $(value VALKEY_PASSWORD)
save \"\"
appendonly no
maxmemory-policy noeviction
dir /tmp"
keep qdrant.yaml "service:
  api_key: $(value QDRANT_API_KEY)
telemetry_disabled: true"
echo "secrets lie in infra/docker/secrets"
