package scenario

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/refit-dev/refit/internal/lab"
	"github.com/refit-dev/refit/internal/lab/mains"
)

// Outside is what tried to leave the lab since it is up.
type Outside struct {
	// Requests counts packets for anything outside, packets that could not be
	// looked at, and questions for the name of an image host; Details are kinds of
	// them.
	Requests int64
	Details  []mains.Attempt
	// LookUps counts questions that are no request: see lookUps.
	LookUps int64
}

// Outside counts what tried to leave the lab, without the look-ups of a name that
// CRI-O makes for every pull, wherever that pull goes.
func (s *Scenario) Outside(ctx context.Context) (Outside, error) {
	seen, err := s.Lab.RegistryRequests(ctx)
	if err != nil {
		return Outside{}, err
	}
	out := Outside{Requests: int64(seen.Packets + seen.Lost + seen.Questions)}
	logs := map[string]pulls{}
	for _, n := range s.Lab.Nodes() {
		if s.Lab.Runtime(n) != lab.RuntimeCRIO {
			continue
		}
		text, err := s.Output(ctx, n, "journalctl", "-u", "crio", "--no-pager", "-o", "cat")
		if err != nil {
			return out, fmt.Errorf("node %s: CRI-O's log: %w", n, err)
		}
		logs[s.Lab.Address(n)] = readPulls(text)
	}
	for _, a := range seen.Details {
		of := int64(lookUps(a, logs[a.From]))
		out.LookUps += of
		out.Requests -= of
		if of == 0 {
			out.Details = append(out.Details, a)
		}
	}
	return out, nil
}

// pulls is what CRI-O's log says of them.
type pulls struct {
	// by host of the name that is pulled.
	by map[string]int
	// elsewhere are places that were asked and are not on loopback.
	elsewhere []string
}

// lookUps is how many of these questions CRI-O asks for every pull by itself: it
// has the addresses of the registry in an image's name looked up before it reads
// where its configuration sends the pull, to compare them with the networks of
// insecure registries (CRI-O 1.34, internal/storage/image.go, isSecureIndex). No
// configuration that it reads again without a restart ends that, and nothing is
// done with the answer when the pull goes to a mirror on loopback. One look-up is
// two questions, A and AAAA. They are taken for that only if they are no more than
// two for each pull in its log, and if no pull in it went anywhere but to
// loopback: all or none.
func lookUps(a mains.Attempt, p pulls) int {
	if a.Kind != "dns" || len(p.elsewhere) > 0 || a.Count > 2*p.by[a.To] {
		return 0
	}
	return a.Count
}

func readPulls(log string) pulls {
	p := pulls{by: map[string]int{}}
	for line := range strings.Lines(log) {
		if _, name, ok := strings.Cut(line, `msg="Pulling image: `); ok {
			host, _, _ := strings.Cut(name, "/")
			p.by[host]++
		}
		if _, place, ok := strings.Cut(line, `msg="Trying to access \"`); ok && !strings.HasPrefix(place, "127.0.0.1:") {
			place, _, _ = strings.Cut(place, `\"`)
			if !slices.Contains(p.elsewhere, place) {
				p.elsewhere = append(p.elsewhere, place)
			}
		}
	}
	return p
}
