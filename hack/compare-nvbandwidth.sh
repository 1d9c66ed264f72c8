#!/bin/sh
# Runs p2pbw and nvbandwidth in turn on the same GPUs and keeps what both print as
# JSON, to compare their medians.
#
#   hack/compare-nvbandwidth.sh P2PBW OUT [RUNS] -- NVBANDWIDTH [ARG...]
#
# NVBANDWIDTH may be a command with arguments, such as an ld.so with a library path.
# Writes OUT/p2pbw-N.json, OUT/nvbandwidth-N.json and OUT/seconds.txt.
#
#   ours (devices[], pairs[]: direction, method, load)    theirs
#   h2d, d2h ce / sm                                      host_to_device_memcpy_ce / _sm, device_to_host_…
#   local ce / sm                                         device_local_copy
#   load-latency h2d                                      host_device_latency_sm
#   write, read ce / sm                                   device_to_device_memcpy_write_ce, …_read_ce, …_sm
#   write, read ce / sm, load opposed and total           device_to_device_bidirectional_memcpy_write_ce, …
#   load-latency read                                     device_to_device_latency_sm (a mean: see "mean")
set -eu
[ $# -ge 4 ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 64; }
p2pbw=$1 out=$2
shift 2
runs=5
[ "$1" = -- ] || { runs=$1; shift; }
[ "$1" = -- ] && shift
mkdir -p "$out"
: >"$out/seconds.txt"
timed() { # NAME COMMAND...: the command's exit code says what it found, not whether it ran
	name=$1
	shift
	start=$(date +%s.%N)
	"$@" >"$out/$name.json" 2>"$out/$name.log" || echo "$name: exit code $?" >&2
	end=$(date +%s.%N)
	echo "$name $start $end" >>"$out/seconds.txt"
}
i=1
while [ "$i" -le "$runs" ]; do
	timed "p2pbw-$i" "$p2pbw" --json --profile=full --size=512MiB --samples=10 --sweep=none
	timed "nvbandwidth-$i" "$@" -j -b 512 -i 10
	i=$((i + 1))
done
