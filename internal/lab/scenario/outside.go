package scenario

import (
	"context"
	"fmt"

	"github.com/refit-dev/refit/internal/lab"
	"github.com/refit-dev/refit/internal/lab/supervisor"
)

// Outside is what tried to leave the lab since it is up.
type Outside struct {
	// Requests counts packets to outside addresses, packets that could not be inspected,
	// and DNS questions for image hosts; Details has their kinds.
	Requests int64
	Details  []supervisor.Attempt
	// LookUps counts questions that are no request (pullLog).
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
	logs := map[string]pullLog{}
	for _, n := range s.Lab.Nodes() {
		if s.Lab.Runtime(n) != lab.RuntimeCRIO {
			continue
		}
		text, err := s.Output(ctx, n, "journalctl", "-u", "crio", "--no-pager", "-o", "cat")
		if err != nil {
			return out, fmt.Errorf("node %s: CRI-O's log: %w", n, err)
		}
		logs[s.Lab.Address(n)] = readPullLog(text)
	}
	for _, a := range seen.Details {
		of := int64(logs[a.From].countLookups(a))
		out.LookUps += of
		out.Requests -= of
		if of == 0 {
			out.Details = append(out.Details, a)
		}
	}
	return out, nil
}
