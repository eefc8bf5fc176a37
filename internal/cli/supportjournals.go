package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/peerapi"
	"github.com/refit-dev/refit/internal/text"
)

const (
	// maxJournals is how many nodes are asked for their journal: those in trouble first.
	maxJournals = 50
	// maxJournal is how much of one journal is kept, its end, in bytes.
	maxJournal = 256 << 10
	// journalsAtOnce leaves the controller readers for other people.
	journalsAtOnce = 6
	// journalTime is how long one node may take, journalsTime all of them.
	journalTime, journalsTime = 20 * time.Second, 2 * time.Minute
	// maxGapNames is how many nodes a gap names.
	maxGapNames = 20
)

// supportAgent is a node whose journal an archive should have.
type supportAgent struct {
	node string
	// reported: its agent has a key and an address.
	reported bool
	// rank is lower for a node that a reader of the archive wants first.
	rank int
}

// journalRank is 0 for a node whose run did not succeed, 1 for one that reports a problem or
// waits, 2 for others.
func journalRank(s *v1alpha1.NodeUpdateStatus) int {
	switch {
	case s.Run != nil && s.Run.State != v1alpha1.RunSucceeded:
		return 0
	case len(s.Problems) > 0 || s.Message != "":
		return 1
	}
	return 2
}

// gatherJournals reads the ends of the agents' journals as `refit logs` does. A node that gives
// none is a gap.
func (g *supportGathering) gatherJournals(ctx context.Context, o *options) {
	slices.SortStableFunc(g.agents, func(a, b supportAgent) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), strings.Compare(a.node, b.node))
	})
	var asked, silent []string
	for _, a := range g.agents {
		if a.reported {
			asked = append(asked, a.node)
		} else {
			silent = append(silent, a.node)
		}
	}
	g.journalGap(silent, "no agent has reported: run refit-agent install on the node")
	if len(asked) > maxJournals {
		g.journalGap(asked[maxJournals:], fmt.Sprintf("an archive has the journals of %d nodes, those in trouble first: refit logs NODE", maxJournals))
		asked = asked[:maxJournals]
	}
	if len(asked) == 0 {
		return
	}
	token, err := o.logToken(ctx)
	if err != nil {
		g.journalGap(asked, err.Error())
		return
	}
	g.addJournals(asked, o.readJournals(ctx, asked, token))
}

// journalAnswer is the end of a node's journal, or why there is none.
type journalAnswer struct {
	log []byte
	err error
}

// readJournals asks all nodes, a few at a time.
func (o *options) readJournals(ctx context.Context, nodes []string, token string) []journalAnswer {
	ctx, cancel := context.WithTimeout(ctx, journalsTime)
	defer cancel()
	out := make([]journalAnswer, len(nodes))
	slots := make(chan struct{}, journalsAtOnce)
	var wg sync.WaitGroup
	for i, node := range nodes {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			out[i].log, out[i].err = o.readJournal(ctx, node, token)
		})
	}
	wg.Wait()
	return out
}

func (o *options) readJournal(ctx context.Context, node, token string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, journalTime)
	defer cancel()
	body, err := o.openLog(ctx, node, token, peerapi.LogQuery{Lines: peerapi.DefaultLogLines})
	if err == nil {
		defer body.Close()
		var log []byte
		if log, err = io.ReadAll(io.LimitReader(body, peerapi.MaxLogBytes)); err == nil {
			return lastLines(log, maxJournal), nil
		}
	}
	if ctx.Err() != nil && !errors.Is(ctx.Err(), context.Canceled) {
		return nil, fmt.Errorf("no answer within %s; journalctl -u refit-agent on the node shows it", journalTime)
	}
	return nil, err
}

// lastLines are the last whole lines of at most so many bytes.
func lastLines(log []byte, most int) []byte {
	if len(log) <= most {
		return log
	}
	log = log[len(log)-most:]
	return log[bytes.IndexByte(log, '\n')+1:]
}

// addJournals adds what came, and one gap for each reason.
func (g *supportGathering) addJournals(nodes []string, answers []journalAnswer) {
	var reasons []string
	missing := map[string][]string{}
	for i, a := range answers {
		if a.err != nil {
			why := a.err.Error()
			if missing[why] == nil {
				reasons = append(reasons, why)
			}
			missing[why] = append(missing[why], nodes[i])
			continue
		}
		g.addLog(inputs.SupportJournals+"/"+nodes[i]+".log", a.log)
	}
	for _, why := range reasons {
		g.journalGap(missing[why], why)
	}
}

func (g *supportGathering) journalGap(nodes []string, why string) {
	if len(nodes) == 0 {
		return
	}
	slices.Sort(nodes)
	g.leftOut("journal of "+text.FirstOf(nodes, maxGapNames, ", "), why)
}
