#!/bin/sh
# A cluster of Debian's postgresql-common in a mount namespace of its own: protected, restarted,
# made plain again, and migrated both ways. $1 is an empty directory of this test, $2 has the
# command and the library.
set -eu
home=$1
bin=$2
version=15
. "$(dirname "$0")/room.sh"

pg_createcluster $version one -p $port -o listen_addresses= -- -A trust > "$home/created"
trap 'pg_ctlcluster '$version' one stop -m fast || :' EXIT
pg_ctlcluster $version one start
expect created "SELECT 1000" "CREATE TABLE t AS SELECT g FROM generate_series(1, 1000) g"

step refused
# What the unit would be refused is told before the server stops.
environment=/etc/postgresql/$version/one/environment
cp -p $environment "$home/environment"
echo "LD_PRELOAD = '/other.so'" >> $environment
is_not tidelock protect postgresql@$version-one --no-recovery --no-keyring-copy --yes
is_not tidelock migrate postgresql@$version-one $data/two --no-recovery --yes
cp -p "$home/environment" $environment
is_not tidelock migrate postgresql@$version-one "$data/a:b" --no-recovery --yes
# refused_for WHAT WORDS...
refused_for() {
    what=$1
    shift
    set -- postgresql@$version-one $data/two --no-recovery --yes "$@"
    if said=$(tidelock migrate "$@" 2>&1); then
        exit 1
    fi
    is contains "$said" "$what"
}
# With these keys the unit would not come back.
refused_for "restart of the machine" --provider env:KEY
refused_for "lies in memory" --provider file:/run/key
# What is in the caller's home alone, the unit does not find.
mkdir -m 700 "$home/caller"
head -c 32 /dev/urandom > "$home/caller/key"
if said=$(HOME=$home/caller tidelock protect postgresql@$version-one --no-recovery \
    --no-keyring-copy --yes --provider 'command:cat ~/key' 2>&1); then exit 1; fi
is contains "$said" "postgresql@$version-one would not come back: the key command failed"
# The new line would not count.
included=/etc/postgresql/$version/one/conf.d/dir.conf
echo "data_directory = '$data/one'" > $included
refused_for $included
rm $included
# The server would start on its own directory, and stay plain.
install -d -o postgres -g postgres -m 700 $data/other
cp -p $data/one/PG_VERSION $data/other
if said=$(tidelock protect postgresql@$version-one -D $data/other --no-recovery \
    --no-keyring-copy --yes 2>&1); then exit 1; fi
is contains "$said" "not in $data/other"
rm -r $data/other
is_not sealed $data/one
is_not [ -e $data/two ]
expect running 1000 "SELECT count(*) FROM t"

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
