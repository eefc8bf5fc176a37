package dnsaudit

import (
	"strings"

	"github.com/refit-dev/refit/internal/lab/supervisor"
)

// Pulls is what CRI-O's log says of them. Without a log there were none.
type Pulls struct {
	// by host of the name that is pulled.
	by map[string]int
	// elsewhere: a place was asked that is not on loopback.
	elsewhere bool
}

// Read reads CRI-O's log.
func Read(log string) Pulls {
	p := Pulls{by: map[string]int{}}
	for line := range strings.Lines(log) {
		if _, name, ok := strings.Cut(line, `msg="Pulling image: `); ok {
			host, _, _ := strings.Cut(name, "/")
			p.by[host]++
		}
		if _, place, ok := strings.Cut(line, `msg="Trying to access \"`); ok && !strings.HasPrefix(place, "127.0.0.1:") {
			p.elsewhere = true
		}
	}
	return p
}

// Of is how many of these questions CRI-O asks by itself.
func (p Pulls) Of(a supervisor.Attempt) int {
	if a.Kind != "dns" || p.elsewhere || a.Count > 2*p.by[a.To] {
		return 0
	}
	return a.Count
}
