package scenario

import (
	"strings"

	"github.com/refit-dev/refit/internal/lab/supervisor"
)

// pullLog is the summary of the pulls in CRI-O's log; it has none without a log.
//
// CRI-O resolves the registry in an image's name before it reads its mirror
// configuration, to compare the addresses with the networks of insecure registries
// (CRI-O 1.34, internal/storage/image.go, isSecureIndex). No setting that it reloads
// without a restart ends that, and it ignores the answer if the pull goes to a mirror on
// loopback. One lookup is two questions, A and AAAA.
type pullLog struct {
	// byHost counts pulls by the host in the image's name.
	byHost map[string]int
	// elsewhere is set if a pull went to an address that is not on loopback.
	elsewhere bool
}

// readPullLog reads CRI-O's log.
func readPullLog(log string) pullLog {
	p := pullLog{byHost: map[string]int{}}
	for line := range strings.Lines(log) {
		if _, name, ok := strings.Cut(line, `msg="Pulling image: `); ok {
			host, _, _ := strings.Cut(name, "/")
			p.byHost[host]++
		}
		if _, place, ok := strings.Cut(line, `msg="Trying to access \"`); ok && !strings.HasPrefix(place, "127.0.0.1:") {
			p.elsewhere = true
		}
	}
	return p
}

// countLookups returns how many of these questions CRI-O asks by itself: all if there are at
// most two for each pull and every pull went to loopback, else none.
func (p pullLog) countLookups(a supervisor.Attempt) int {
	if a.Kind != "dns" || p.elsewhere || a.Count > 2*p.byHost[a.To] {
		return 0
	}
	return a.Count
}
