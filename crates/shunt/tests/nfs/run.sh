# An NFS server in user space above a pool, and a client that keeps its handles while both servers are started anew. In namespaces of its own.
set -eu
cd "$1"
scripts=$2
ip link set lo up
mount -t tmpfs run /run
mkdir -p /run/rpcbind /run/ganesha /var/run/ganesha
mkdir a b pool
mount -t tmpfs a a
mount -t tmpfs b b
mkdir a/d b/d
echo one > a/d/one
head -c 3000000 /dev/urandom > b/d/large
rpcbind -f -i >> log 2>&1 &
sleep 1
set -- "$PWD/a=RW,id=one:$PWD/b=RW,id=two"
. "$scripts/servers.sh"
timeout 60 python3 "$scripts/client.py" "$PWD" "$scripts" < /dev/null || exit $?
sh "$scripts/stop.sh"
