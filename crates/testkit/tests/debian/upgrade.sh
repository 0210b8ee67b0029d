#!/bin/sh
# A protected cluster of Debian's postgresql-common goes from one major to another, as docs/tools.md
# says. pg_upgradecluster refuses it first, and nothing has changed then. $1 is an empty directory
# of this test, $2 has the command and the library, $3 the folder of another major's build, $4 that
# major.
set -eu
home=$1
bin=$2
built=$3
newer=$4
version=15
. "$(dirname "$0")/room.sh"
new=/var/lib/postgresql/$newer/one

# Both majors where Debian has them.
servers=/usr/lib/postgresql
mkdir -p "$home/servers/$version" "$home/servers/$newer"
mount --bind $servers/$version "$home/servers/$version"
mount --bind "$built" "$home/servers/$newer"
mount --rbind "$home/servers" $servers
# What `service install` puts in front of Debian's programs.
mkdir "$home/local"
mount --bind "$home/local" /usr/local/bin

clusters() { pg_lsclusters -h | awk '{ print $1, $2, $4 }'; }
as_postgres() { su postgres -s /bin/sh -c "cd /var/lib/postgresql && $*"; }

pg_createcluster $version one -p $port -o listen_addresses= -- -A trust > "$home/created"
stop() { pg_ctlcluster "$1" one stop -m fast || :; }
trap 'stop $version; stop $newer' EXIT
pg_ctlcluster $version one start
expect created "SELECT 1000" "CREATE TABLE t AS SELECT g FROM generate_series(1, 1000) g"
# Debian's minor release marks columns in a way that stops pg_upgrade of plain clusters too.
for database in postgres template1; do
    psql -X -h /run/postgresql -p $port -U postgres -q -d $database -c \
        "UPDATE pg_attribute SET attoptions = NULL WHERE attoptions::text LIKE '%pg_attver%'"
done
tidelock protect postgresql@$version-one --no-recovery --keyring-copy "$home/copy" --yes

step refused
for how in "-v $newer" "-v $newer -m link"; do
    # shellcheck disable=SC2086 # words
    if told=$(pg_upgradecluster $how $version one 2>&1); then
        echo "pg_upgradecluster $how went on: $told" >&2
        exit 1
    fi
    is contains "$told" "is protected"
    is contains "$told" "docs/tools.md"
done
# Debian's own, past the one in front of it.
if told=$(/usr/bin/pg_upgradecluster -v $newer $version one 2>&1); then
    echo "Debian's pg_upgradecluster went on: $told" >&2
    exit 1
fi
is contains "$told" "Invalid pg_controldata output"
is [ "$(clusters)" = "$version one online" ]
expect untouched 1000 "SELECT count(*) FROM t"

step upgrade
pg_ctlcluster $version one stop
# As the page says.
old=$data/one
install -d -o postgres -g postgres "$(dirname $new)"
tidelock init --owner postgres --no-recovery $new
as_postgres tidelock exec -D $new -- $servers/$newer/bin/initdb -D $new
as_postgres tidelock exec -D $old -D $new -- $servers/$newer/bin/pg_upgrade \
    -b $servers/$version/bin -B $servers/$newer/bin -d $old -D $new \
    -o "'-c config_file=/etc/postgresql/$version/one/postgresql.conf'" > "$home/upgraded" || {
    cat "$home/upgraded" >&2
    exit 1
}
is grep -q "Upgrade Complete" "$home/upgraded"
pg_createcluster $newer one -d $new -p 5498 -o listen_addresses= > "$home/taken"
tidelock service install postgresql@$newer-one
tidelock service unlock postgresql@$newer-one
pg_ctlcluster $newer one start
is sealed $new
is loaded $new

step old one gone
tidelock service remove postgresql@$version-one
pg_dropcluster $version one
is [ "$(clusters)" = "$newer one online" ]
pg_ctlcluster $newer one restart
is loaded $new
port=5498
log=/var/log/postgresql/postgresql-$newer-one.log
expect upgraded 1000 "SELECT count(*) FROM t"
expect upgraded t "SELECT current_setting('server_version_num')::int / 10000 = $newer"
tidelock verify -D $new
step done
