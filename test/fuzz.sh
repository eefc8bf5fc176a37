#!/usr/bin/env bash
# fuzz runs every fuzz target of the module for a while, one after another.
#   FUZZTIME  how long each target runs (60s)
#   TARGETS   only targets whose "package function" matches this expression
#   EVERY     N/M: the N-th of M parts of the list, so that CI takes turns
# A finding is kept in testdata/fuzz of its package, where `go test` runs it again.
# Go's own cache keeps the other inputs. Go would spend the whole time on minimizing
# the first input that is new, so it minimizes each only once.
set -uo pipefail
cd "$(dirname "$0")/.."
fuzztime=${FUZZTIME:-60s} targets=${TARGETS:-.} every=${EVERY:-1/1}
part=${every%/*} parts=${every#*/}
failed=() n=0 ran=0
# deadline_only holds when the one failure is the end of FUZZTIME itself: Go before 1.27 loses a race with its own
# deadline (golang/go#75804). A target that hangs, panics or fails says so in other words, and names its input.
deadline_only() {
	[ "$(grep -A1 -e '^--- FAIL' "$1" | sed 1d)" = "    context deadline exceeded" ] && ! grep -q 'Failing input written' "$1"
}
log=$(mktemp); trap 'rm -f "$log"' EXIT
while read -r folder name; do
	n=$((n + 1))
	[ $((n % parts)) = $((part % parts)) ] || continue
	ran=$((ran + 1))
	if go test -vet=off -run '^$' -fuzz "^$name\$" -fuzztime "$fuzztime" -fuzzminimizetime 1x -parallel "${PARALLEL:-2}" "./$folder" >"$log" 2>&1 || deadline_only "$log"; then
		execs=$(grep -o 'execs: [0-9]*' "$log" | tail -1)
		echo "ok   $folder $name (${execs:-no execution})"
	else
		failed+=("$folder $name")
		echo "FAIL $folder $name"
		cat "$log"
	fi
done < <(git ls-files '*_test.go' | xargs grep -Ho '^func Fuzz[A-Za-z0-9_]*(f \*testing.F)' |
	sed -E 's|/[^/]*_test\.go:func (Fuzz[A-Za-z0-9_]*).*| \1|' | sort -u | grep -E "$targets")
echo "fuzz: $ran targets, ${#failed[@]} failed"
[ "$ran" -gt 0 ] && [ ${#failed[@]} = 0 ]
