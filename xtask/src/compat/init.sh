#!/bin/busybox sh
# The first program of a guest. It loads the modules, makes the files of the host its root (read-only, changes stay in
# memory) and becomes the shell that runs /job. The kernel logs to the first serial port, the job writes to the second.
bb=/bin/busybox
$bb mount -t proc proc /proc
$bb mount -t sysfs sysfs /sys
$bb mount -t devtmpfs devtmpfs /dev
for module in /modules/*; do $bb insmod "$module"; done

options=trans=virtio,version=9p2000.L,msize=524288,cache=loose,ro
$bb mount -t 9p -o $options host /host &&
    $bb mount -t tmpfs changes /changes &&
    $bb mkdir /changes/upper /changes/work &&
    $bb mount -t overlay -o lowerdir=/host,upperdir=/changes/upper,workdir=/changes/work root /root ||
    $bb reboot -f

for place in proc sys dev; do $bb mount --move /$place /root/$place; done
$bb mkdir -p /root/dev/pts /root/dev/shm
$bb mount -t devpts devpts /root/dev/pts
# Lower folders of tests are in these: overlayfs, the rest of this root, may be stacked too deep for passthrough.
for place in dev/shm run tmp var/tmp; do $bb mount -t tmpfs -o mode=1777 tmpfs /root/$place; done
$bb mount -t fusectl fusectl /root/sys/fs/fuse/connections
$bb mount -t cgroup2 cgroup2 /root/sys/fs/cgroup
# As udev does.
$bb chmod 0666 /root/dev/fuse
$bb ip link set lo up
$bb stty -F /root/dev/ttyS1 raw
$bb mkdir /root/run/compat
$bb cp $bb /job /root/run/compat
exec $bb switch_root /root /bin/sh /run/compat/job
