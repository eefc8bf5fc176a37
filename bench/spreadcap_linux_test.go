package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/refit-dev/refit/internal/lab/kernel"
	"github.com/refit-dev/refit/internal/pipeline/transfer"
)

const (
	// capWindow is over how long what went over a wire is averaged, and capLook how
	// often it is read.
	capWindow = 2 * time.Second
	capPoll   = 250 * time.Millisecond
	// capPromise is what a window may have of what is sent: a tenth of a second that was
	// saved up, and the headers of packets.
	capPromise = 1.1
	// capKernel is what may have come to a host beyond its limit, at any time: what its
	// peers sent waits in its kernel until the agent takes it.
	capKernel = 4 << 20
	// capLowered is what may go beyond a limit that was lowered, each way: what was
	// written at the higher one waits in kernels. No promise, but with it is seen that
	// the new limit counts: without, it would be some 50 MiB.
	capLowered = 12 << 20
	capRuns    = 2
)

// cappedSizes are the files in the bundle, in MiB: 50 together.
var cappedSizes = []int64{25, 15, 10}

// cappedCase has the bandwidth flags of the controller.
type cappedCase struct {
	name   string
	before transfer.Bandwidth // until a quarter has come; the zero value: from the start
	flags  transfer.Bandwidth
}

var cappedCases = []cappedCase{
	{name: "-node-bandwidth 5 MiB/s", flags: transfer.Bandwidth{Node: 5 << 20}},
	{name: "-site-bandwidth 24 MiB/s", flags: transfer.Bandwidth{Site: 24 << 20}},
	{name: "-node-bandwidth lowered from 8 to 3 MiB/s", before: transfer.Bandwidth{Node: 8 << 20}, flags: transfer.Bandwidth{Node: 3 << 20}},
}

// cappedRun is one try. What is "of" a limit is the busiest window's mean, as bytes at
// the interfaces, against it.
type cappedRun struct {
	LoadBefore string `json:"loadBefore"`
	// Share is the limit of each host, in bytes a second; Windows how many were evaluated.
	Share   int64   `json:"shareOfANode"`
	Windows int     `json:"windows"`
	Seconds float64 `json:"seconds"`
	// OfBound is against one copy at the share.
	OfBound    float64 `json:"ofBound"`
	MostSent   float64 `json:"mostSentOfShare"`
	MostTaken  float64 `json:"mostTakenOfShare"`
	MostOfAll  float64 `json:"mostSentByAllOfTheirShares"`
	OriginMean float64 `json:"originMeanOfShare"`
	// TakenBeyond and SentBeyond are by how many bytes a host had taken and sent more
	// than its share at most, over any time.
	TakenBeyond int64 `json:"takenBeyondShareBytes"`
	SentBeyond  int64 `json:"sentBeyondShareBytes"`
	// SettledAfter a limit was lowered, in seconds, every window of every host is within
	// the promise: what was sent before waits in kernels, too.
	SettledAfter float64 `json:"settledAfterSeconds,omitempty"`
	// Sent is bytes at each host's interface, from the beginning to the end.
	Sent map[string]uint64 `json:"sentBytes"`
}

type cappedResult struct {
	What    string                 `json:"what"`
	Machine machine                `json:"machine"`
	Hosts   int                    `json:"hosts"`
	Size    int64                  `json:"sizeBytes"`
	Window  float64                `json:"windowSeconds"`
	Promise float64                `json:"promiseSentOfShare"`
	Kernel  int64                  `json:"promiseTakenBeyondShareBytes"`
	Lowered int64                  `json:"bearableBeyondALoweredShareBytes"`
	Method  string                 `json:"method"`
	Runs    map[string][]cappedRun `json:"runs"`
}

// Eight hosts keep to the bandwidth limit that the controller is configured with, although
// their links are faster. This holds for each host and for all together, also when the
// limit changes while they copy.
func TestSpreadCapped(t *testing.T) {
	resultsDir(t)
	work, err := os.MkdirTemp("/dev/shm", "refit-capped-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(work) })
	path, size, _ := spreadBundle(t, work, cappedSizes)
	r := cappedResult{What: "one stick in one of eight hosts; bytes at every host's interface against what it may send and take",
		Machine: thisMachine(), Hosts: spreadHosts, Size: size, Window: capWindow.Seconds(), Promise: capPromise, Kernel: capKernel, Lowered: capLowered,
		Method: fmt.Sprintf("as spread.json, links of %d Mbit/s each way (go test ./bench -run TestSpreadCapped). Every host has the share that the controller computes for eight nodes. The counters of the switch's ports are read every %s, and every window of %s counts; after a limit was lowered, only windows that start later. Packet headers count, too", spreadMegabits, capPoll, capWindow),
		Runs:   map[string][]cappedRun{}}
	for range capRuns {
		for _, c := range cappedCases {
			run := capped(t, filepath.Join(work, "hosts"), path, size, c)
			r.Runs[c.name] = append(r.Runs[c.name], run)
			t.Logf("%s: %.1f s, %.2f of the bound. Of a host's share at most %.2f was sent (%d bytes beyond it) and %.2f received (%d), by all together %.2f. The origin sent %.2f in the mean; settled after %.1f s; load %s",
				c.name, run.Seconds, run.OfBound, run.MostSent, run.SentBeyond, run.MostTaken, run.TakenBeyond, run.MostOfAll, run.OriginMean, run.SettledAfter, run.LoadBefore)
			run.checkPromises(t, c)
			if run.Windows == 0 {
				t.Errorf("%s: it ended before it could be measured", c.name)
			}
		}
	}
	writeResult(t, "spread-capped.json", r)
}

// checkPromises checks the limits of a run. After a limit was lowered it checks none, but
// logs from when on every window is within it.
func (r cappedRun) checkPromises(t *testing.T, c cappedCase) {
	t.Helper()
	if c.before != (transfer.Bandwidth{}) {
		if most := max(r.TakenBeyond, r.SentBeyond); most > capLowered {
			t.Errorf("%s: a host sent or took %d bytes beyond it, more than %d", c.name, most, capLowered)
		}
		return
	}
	if r.MostOfAll > capPromise {
		t.Errorf("%s: all together sent %.2f of what they may in %s, the promise is %.2f", c.name, r.MostOfAll, capWindow, capPromise)
	}
	if r.MostSent > capPromise {
		t.Errorf("%s: a host sent %.2f of what it may in %s, the promise is %.2f", c.name, r.MostSent, capWindow, capPromise)
	}
	if r.TakenBeyond > capKernel {
		t.Errorf("%s: a host took %d bytes more than it may, the promise is %d", c.name, r.TakenBeyond, capKernel)
	}
}

// wires is what has gone over every host's wire until a moment.
type wires struct {
	at          time.Time
	sent, taken [spreadHosts + 1]uint64
}

func readWires(t *testing.T, n *kernel.Network) (w wires) {
	t.Helper()
	w.at = time.Now()
	var err error
	for k := 1; k <= spreadHosts; k++ {
		if w.sent[k], err = n.SentBytes(k); err != nil {
			t.Fatal(err)
		}
		if w.taken[k], err = n.ReceivedBytes(k); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// capped runs one case once.
func capped(t *testing.T, dir, bundle string, size int64, c cappedCase) cappedRun {
	share := c.flags.Share(spreadHosts)
	first := share
	if c.before != (transfer.Bandwidth{}) {
		first = c.before.Share(spreadHosts)
	}
	n, all, end := startAll(t, dir, bundle, spreadCase{bandwidth: first})
	defer end()
	run := cappedRun{LoadBefore: load(), Share: share, Sent: map[string]uint64{}}
	looks := []wires{readWires(t, n)}
	from := looks[0].at // what is evaluated begins here
	for k := 2; k <= spreadHosts; k++ {
		all[k].send("go")
	}
	waits, giveUp := spreadHosts-1, time.After(spreadTime)
	for lowered := first == share; waits > 0; {
		select {
		case <-giveUp:
			t.Fatalf("%s: %d hosts have not come to an end", c.name, waits)
		case <-time.After(capPoll):
		}
		now := readWires(t, n)
		looks = append(looks, now)
		if !lowered && now.sent[1]-looks[0].sent[1] > uint64(size/4) {
			for _, h := range all {
				h.sendShare(share)
			}
			lowered, from = true, time.Now()
		}
		for k := 2; k <= spreadHosts; k++ {
			select {
			case s, ok := <-all[k].messages:
				if !ok || s.Done == nil || !s.Done.Whole {
					t.Fatalf("%s: host %d has not got all: %+v", c.name, k, s.Done)
				}
				run.Seconds = max(run.Seconds, s.Done.Seconds)
				waits--
			default:
			}
		}
	}
	run.evaluate(looks, from)
	run.OfBound = run.Seconds * float64(share) / float64(size)
	return run
}

// sendShare gives a host another limit.
func (h *host) sendShare(bytesPerSecond int64) {
	_, _ = h.in.Write([]byte(strconv.FormatInt(bytesPerSecond, 10) + "\n")) // one that was killed hears nothing
}

// evaluate finds the busiest window.
func (r *cappedRun) evaluate(looks []wires, from time.Time) {
	share := float64(r.Share)
	last := looks[len(looks)-1]
	for k := 1; k <= spreadHosts; k++ {
		r.Sent[hostName(k)] = last.sent[k] - looks[0].sent[k]
	}
	origin := looks[0]
	for i, a := range looks {
		if a.at.Before(from) {
			continue
		}
		if origin.at.Before(from) {
			origin = a
		}
		if sent := r.window(a, looks[i:]); sent > capPromise && from.After(looks[0].at) {
			r.SettledAfter = a.at.Sub(from).Seconds() + capPoll.Seconds()
		}
	}
	r.OriginMean = float64(last.sent[1]-origin.sent[1]) / last.at.Sub(origin.at).Seconds() / share
}

// window evaluates the one that begins with a look, and gives what the busiest host sent in
// it of its share.
func (r *cappedRun) window(a wires, looks []wires) (busiest float64) {
	share := float64(r.Share)
	measured := false
	for _, b := range looks {
		span := b.at.Sub(a.at)
		allowed, together := share*span.Seconds(), 0.0
		for k := 1; k <= spreadHosts; k++ {
			sent, taken := float64(b.sent[k]-a.sent[k]), float64(b.taken[k]-a.taken[k])
			r.TakenBeyond, r.SentBeyond = max(r.TakenBeyond, int64(taken-allowed)), max(r.SentBeyond, int64(sent-allowed))
			if measured || span < capWindow {
				continue
			}
			together += sent
			busiest = max(busiest, sent/allowed)
			r.MostTaken = max(r.MostTaken, taken/allowed)
		}
		if !measured && span >= capWindow {
			measured = true
			r.Windows++
			r.MostSent, r.MostOfAll = max(r.MostSent, busiest), max(r.MostOfAll, together/allowed/spreadHosts)
		}
	}
	return busiest
}
