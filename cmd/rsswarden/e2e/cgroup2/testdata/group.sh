unset RSSWARDEN
export XDG_STATE_HOME=/disk
grow='BEGIN { s = sprintf("%1000000s", ""); while (1) { a[++n] = s n; if (n % 5 == 0) system("sleep 0.1") } }'
for group in 1 0; do
	dir=/sys/fs/cgroup/group$group
	mkdir $dir
	echo 104857600 >$dir/memory.max
	echo $group >$dir/memory.oom.group
	sh -c 'echo 0 >$1/cgroup.procs; exec /guest/program run --record /disk/records -- awk "$2"' sh $dir "$grow"
	status=$?
	read -r now rest </proc/uptime
	>/tmp/now
	echo "@ended $status"
	echo "@killed $now $(dmesg -c | sed -n 's/^\[ *\([0-9.]*\)\] oom-kill:.*/\1/p' | head -n 1)"
	echo "@now $(stat -c %y /tmp/now)"
	echo "@all"
	/guest/program report last --json
	echo "@journal"
	rm -r /disk/records
	/guest/program report last --json
	echo "@done"
	rm -r /disk/rsswarden
done
