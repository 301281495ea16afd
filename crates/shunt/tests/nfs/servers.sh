# Starts the pool with its branches in this order, and the NFS server above it. In a folder with the branches `a` and `b` and the mount point `pool`.
timeout 90 "$SHUNT" mount --foreground --handles --create mfs --minfreespace 0 "$1" "$PWD/pool" >> log 2>&1 < /dev/null &
for _ in $(seq 100); do
    mountpoint -q pool && break
    sleep 0.1
done
cat > ganesha.conf << END
NFS_CORE_PARAM {
    Protocols = 3; NFS_Port = 12049; MNT_Port = 12050; Enable_NLM = false; Enable_RQUOTA = false;
}
EXPORT_DEFAULTS { Access_Type = RW; Squash = No_Root_Squash; SecType = sys; Protocols = 3; Transports = TCP; }
EXPORT { Export_Id = 7; Path = $PWD/pool; Pseudo = /pool; Filesystem_Id = 7.7; FSAL { Name = VFS; } }
END
timeout 90 ganesha.nfsd -F -f "$PWD/ganesha.conf" -L "$PWD/log" -p "$PWD/pid" -N NIV_EVENT >> log 2>&1 < /dev/null &
echo $! > server
# 12050 is 2f12.
for _ in $(seq 100); do
    grep -q ':2F12 .* 0A ' /proc/net/tcp /proc/net/tcp6 && break
    sleep 0.1
done
