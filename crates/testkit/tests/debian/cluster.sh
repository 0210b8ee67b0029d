#!/bin/sh
# A cluster of Debian's postgresql-common in a mount namespace of its own: protected, restarted,
# made plain again, and migrated both ways. $1 is an empty directory of this test, $2 has the
# command and the library.
set -eu
home=$1
version=15
mkdir -p "$home/etc" "$home/lib" "$home/log"
cp -a /etc/. "$home/etc/"
rm -rf "$home/etc/postgresql/$version" "$home/etc/tidelock"
chown postgres:postgres "$home/lib" "$home/log"
mount --bind "$home/etc" /etc
mount --bind "$home/lib" /var/lib/postgresql
mount --bind "$home/log" /var/log/postgresql
mount -t tmpfs none /run
mkdir -p /run/postgresql /run/lock
chown postgres:postgres /run/postgresql
PATH=$2:$PATH
HOME=/root
export PATH HOME
unset TIDELOCK_RUN_DIR XDG_CONFIG_HOME XDG_STATE_HOME XDG_RUNTIME_DIR || :
unset PGHOST PGPORT PGUSER PGDATA || :
data=/var/lib/postgresql/$version
log=/var/log/postgresql/postgresql-$version-one.log

# expect WHAT ANSWER QUERY
expect() {
    answer=$(psql -X -h /run/postgresql -p 5499 -U postgres -Atc "$3" postgres)
    if [ "$answer" != "$2" ]; then
        echo "$1: $3 answers $answer, not $2" >&2
        tail -20 "$log" >&2
        exit 1
    fi
}
sealed() { [ "$(head -c 5 "$1/global/pg_control" | tail -c 4)" = TDLK ]; }
loaded() { grep -q libtidelock_preload "/proc/$(head -1 "$1/postmaster.pid")/maps"; }
# A check in a list of checks, or a negated one, does not end a script by itself.
is() { "$@" || { echo "not: $*" >&2; exit 1; }; }
is_not() { ! "$@" || { echo "yet: $*" >&2; exit 1; }; }
step() { echo "step: $*"; }

pg_createcluster $version one -p 5499 -- -A trust > "$home/created"
trap 'pg_ctlcluster '$version' one stop -m fast || :' EXIT
pg_ctlcluster $version one start
expect created "SELECT 1000" "CREATE TABLE t AS SELECT g FROM generate_series(1, 1000) g"

step protect
tidelock protect postgresql@$version-one --no-recovery --keyring-copy "$home/copy" --yes
is sealed $data/one
is loaded $data/one
is [ -f "$home/copy" ]
expect protected 1000 "SELECT count(*) FROM t"
pg_ctlcluster $version one restart
is loaded $data/one
expect restarted 1000 "SELECT count(*) FROM t"

step unprotect
tidelock unprotect postgresql@$version-one --yes
is_not sealed $data/one
is_not loaded $data/one
is_not grep -q tidelock /etc/postgresql/$version/one/environment
expect unprotected 1000 "SELECT count(*) FROM t"

step migrate
tidelock migrate postgresql@$version-one $data/two --no-recovery --switch --yes
expect migrated $data/two "SHOW data_directory"
is sealed $data/two
is loaded $data/two
expect migrated 1000 "SELECT count(*) FROM t"
pg_ctlcluster $version one restart
expect restarted 1000 "SELECT count(*) FROM t"

step back
tidelock migrate postgresql@$version-one $data/three --without-keys --switch --yes
expect back $data/three "SHOW data_directory"
is_not sealed $data/three
is_not loaded $data/three
expect back 1000 "SELECT count(*) FROM t"
is_not [ -e /etc/tidelock/installed/postgresql@$version-one.toml ]
step done
