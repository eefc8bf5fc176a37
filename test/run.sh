#!/usr/bin/env bash
# run runs every test of the module, and of the module in providers, and prints the events of `go test -json`.
# `run.sh race` runs instead, with the race detector, the packages that use goroutines, in code or in
# tests. Other packages cannot race. The lab and test/ drive programs that are built without the
# detector, so they are left out, and so are packages that compute long and whose tests alone start
# goroutines, to bound them. The detector doubles the CPU time of these tests and of linking them, so it
# has a run of its own.
# The tests on nodes of the lab wait more than they compute, so they run beside all others. The longest
# come first, so that the last minutes do not wait for one package.
# Tests borrow their API servers from one process, which resets them between tests: to start one takes
# seconds of CPU time.
# go test does not repeat what passed with the same code, files and variables. Tests on nodes and with
# API servers always run; GOFLAGS=-count=1 runs the others too.
set -uo pipefail
cd "$(dirname "$0")/.."
goroutines='^[[:space:]]*go (func|[a-z])|errgroup|\.Go\('
packages=$(git ls-files '*_test.go' ':!:*testdata*' ':!:providers' | xargs -n1 dirname | sort -u)
# in_front prints the lines of its input, those of its arguments first.
in_front() {
	local all first
	all=$(cat)
	for first in "$@"; do grep -x "$first" <<<"$all"; done
	grep -vxF "$(printf '%s\n' "$@")" <<<"$all"
}
# Without paths in the programs, what was compiled in one checkout, by make build or by a test, serves in
# every other one.
export GOFLAGS="${GOFLAGS:-} -trimpath"
failed=0
# Three packages at once: most wait for servers and clocks. Without tables for a debugger a test program
# is linked in half the time.
run() { # arguments of go test, then packages on standard input
	xargs -I{} echo ./{} | xargs go test -json -vet=off -timeout 60m -ldflags="-s -w" -p 3 "$@"
}
scratch=$(mktemp -d)
events=$scratch/events
finish() {
	[ -z "${lender:-}" ] || { kill "$lender" && wait "$lender"; }
	rm -rf "$scratch"
} 2>/dev/null
trap finish EXIT
lend() {
	go test -c -vet=off -ldflags="-s -w" -o "$scratch/lender" ./internal/controller/apitest || return
	REFIT_LEND_API_SERVERS=$scratch/servers "$scratch/lender" >&2 &
	lender=$!
	until [ -S "$scratch/servers" ]; do kill -0 "$lender" 2>/dev/null || return; sleep 0.1; done
	export REFIT_API_SERVERS=$scratch/servers
}
if [ "${1:-}" = race ]; then
	raced=$(git ls-files 'internal/*.go' 'cmd/*.go' | grep -vE '^internal/(lab|filesystem|cli/installcmd|cli/inputs)/[^/]*$' | xargs grep -lE "$goroutines" | xargs -n1 dirname | sort -u)
	lend || echo "no lender: each package starts API servers of its own" >&2
	# Races go to files: in the output of parallel tests they would stand with any of them. The detector
	# waits a second at each end otherwise.
	mkdir -p bin
	rm -f bin/race.*
	export CGO_ENABLED=1 GORACE="atexit_sleep_ms=20 log_path=$PWD/bin/race"
	comm -12 <(echo "$packages") <(echo "$raced") | in_front internal/controller internal/agent internal/cli/bundlecmd internal/cli | run -race
	exit
fi
labs=$(in_front test/e2e test/simhost internal/lab <<<"$packages" | head -3)
packages=$(grep -vxF "$labs" <<<"$packages")
# Their events, and those of providers, come at the end: lines of two writers would mix.
run -count 1 -p 2 <<<"$labs" >"$events" &
beside=$!
# Compiling and linking the clouds' libraries takes what time the others leave.
nice -n 10 go -C providers test -json -vet=off -timeout 20m -ldflags="-s -w" -p 3 ./... >"$scratch/providers" &
providers=$!
lend || echo "no lender: each package starts API servers of its own" >&2
in_front internal/controller internal/controller/bootimages test/trust internal/agent internal/controller/imagetracks internal/cli/bundlecmd internal/cli <<<"$packages" | run || failed=1
wait "$beside" || failed=1
wait "$providers" || failed=1
cat "$events" "$scratch/providers"
exit $failed
