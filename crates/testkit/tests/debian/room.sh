# A room for clusters of Debian's postgresql-common: sourced, in a mount namespace of its own, with
# an empty directory of the test as $home, the folder of command and library as $bin, and the major
# as $version.
mkdir -p "$home/etc" "$home/lib" "$home/log"
cp -a /etc/. "$home/etc/"
rm -rf "$home"/etc/postgresql/* "$home/etc/tidelock"
chown postgres:postgres "$home/lib" "$home/log"
mount --bind "$home/etc" /etc
mount --bind "$home/lib" /var/lib/postgresql
mount --bind "$home/log" /var/log/postgresql
mount -t tmpfs none /run
mkdir -p /run/postgresql /run/lock
chown postgres:postgres /run/postgresql
PATH=$bin:$PATH
HOME=/root
export PATH HOME
unset TIDELOCK_RUN_DIR XDG_CONFIG_HOME XDG_STATE_HOME XDG_RUNTIME_DIR || :
unset PGHOST PGPORT PGUSER PGDATA || :
port=5499
data=/var/lib/postgresql/$version
log=/var/log/postgresql/postgresql-$version-one.log

# expect WHAT ANSWER QUERY
expect() {
    answer=$(psql -X -h /run/postgresql -p $port -U postgres -Atc "$3" postgres)
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
contains() { case $1 in *"$2"*) ;; *) return 1 ;; esac; }
step() { echo "step: $*"; }
