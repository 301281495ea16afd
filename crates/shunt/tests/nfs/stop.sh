# Ends the NFS server and then the pool.
server=$(cat server)
kill "$server"
for _ in $(seq 100); do
    kill -0 "$server" 2> /dev/null || break
    sleep 0.1
done
for _ in $(seq 50); do
    umount pool 2> /dev/null && break
    sleep 0.1
done
! mountpoint -q pool
