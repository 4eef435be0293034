#!/usr/bin/env bash
# What rsswarden does, shown without Slurm and without Python.
#
# lmdbload (examples/lmdbload) reads an LMDB of 300 MB in four worker processes.
# What a worker has read stays in its map and counts in its RSS, so the sum grows
# to 1.2 GB. standin (examples/standin) stands in for a slurmstepd that kills on
# summed RSS: it adds up once a second and kills everything above 400 MiB.
#
#   1. without a limit      the checksum to be reached
#   2. with it, bare        killed
#   3. with it, wrapped     rsswarden has the workers replaced in time: it ends
#                           with status 0 and the same checksum
#
# --limit is 40 MiB below the stand-in's: a slurmstepd counts rsswarden too. A
# real one rsswarden finds, with its limit, by itself.
#
# In 2 and 3 lmdbload grows by at most 80 MB a second, so that a limit that is
# looked at once a second is not overrun between two looks.
#
# Exit status: 0 where the story came true, 1 where it did not. It needs Go, a C
# compiler and 400 MB in $TMPDIR; all it writes is there, and removed at the end.
set -u

root=$(cd "$(dirname "$0")/../.." && pwd) || exit 1
dir=$(mktemp -d "${TMPDIR:-/tmp}/rsswarden-demo.XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

fail() {
	printf '\nThe demo FAILED: %s\n' "$*"
	exit 1
}

say() { printf '\n== %s\n' "$*"; }

# try COMMAND...: shows and runs it, then sets status and checksum.
try() {
	printf '$ %s\n' "$(printf '%q ' "$@")"
	"$@" >"$dir/out"
	status=$?
	checksum=$(sed -n 's/^checksum //p' "$dir/out")
	cat "$dir/out"
	printf 'exit status %d\n' "$status"
}

say "Building (the first time a minute at most)"
build() {
	(cd "$root" && go build -o "$dir/" "$@") >"$dir/log" 2>&1 || {
		cat "$dir/log"
		fail "cannot build $*"
	}
}
# DEMO_RSSWARDEN names a program to be used in place of the one built here.
if [ -n "${DEMO_RSSWARDEN:-}" ]; then
	build ./examples/lmdbload ./examples/standin
	ln -s "$DEMO_RSSWARDEN" "$dir/rsswarden" || exit 1
else
	build ./examples/lmdbload ./examples/standin ./cmd/rsswarden
fi
PATH=$dir:$PATH
unset "${!RSSWARDEN@}" SLURM_JOB_ID # settings of yours are not part of the story
export XDG_STATE_HOME=$dir/state     # and the record goes when the demo ends
cd "$dir" || exit 1

load=(lmdbload -data demo.lmdb -epochs "${DEMO_EPOCHS:-2}")
paced=("${load[@]}" -growth 80 -v)

say "1. Without a limit (makes the LMDB of 300 MB first)"
try "${load[@]}"
[ "$status" = 0 ] && [ -n "$checksum" ] || fail "lmdbload does not run here"
want=$checksum

say "2. With a limit of 400 MiB on summed RSS, bare"
try standin -limit 400M -- "${paced[@]}"
bare=$status
[ "$bare" = 137 ] || fail "the bare run was to be killed (137), its status is $bare"

say "3. With the same limit, under rsswarden"
try standin -limit 400M -- rsswarden run --limit 360M --accounting rss \
	--worker-signal TERM --worker-match 'lmdbload worker' -- "${paced[@]}"

say "The three runs"
printf '  %-22s status %3d   checksum %s\n' \
	"without a limit" 0 "$want" \
	"400 MiB, bare" "$bare" "none: killed" \
	"400 MiB, rsswarden" "$status" "${checksum:-none}"
[ "$status" = 0 ] || fail "the wrapped run was to end with 0, its status is $status"
[ "$checksum" = "$want" ] || fail "the wrapped run has another checksum"
printf '\nSame data in the same order, inside the limit.\n'

say "What that run was (its record goes when the demo ends)"
rsswarden report last || fail "there is no report"
# DEMO_SVG names a file for the report's timeline.
[ -z "${DEMO_SVG:-}" ] || rsswarden report last --svg "$DEMO_SVG" || fail "there is no picture"
