package systemd

import (
	"context"
	"io"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/refit-dev/refit/internal/peerapi"
	"github.com/refit-dev/refit/internal/text"
)

const (
	// readLines are read, logLines of them reported; logTime is how long the answer may
	// take.
	readLines = "60"
	logLines  = 12
	logTime   = 10 * time.Second
)

// Log returns the end of a unit's log, without secrets and repeated lines, or the reason why it
// cannot be read.
func Log(ctx context.Context, unit string) string {
	ctx, cancel := context.WithTimeout(ctx, logTime)
	defer cancel()
	out, err := exec.CommandContext(ctx, "journalctl", "-u", unit, "-n", readLines, "--no-pager", "-o", "cat").Output()
	if err != nil {
		return "the log of " + unit + " cannot be read"
	}
	return text.HideSecrets(lastLines(strings.TrimSpace(string(out)), logLines))
}

// digits differ between two lines that report the same: times, process IDs, counters.
var digits = regexp.MustCompile(`[0-9]+`)

// lastLines returns the last lines of a log, and of repeated lines only the last. A unit that
// systemd restarts in a loop writes the same lines every time. Without this, a truncated message
// would lose the reason between them.
func lastLines(log string, most int) string {
	lines := strings.Split(log, "\n")
	seen := map[string]bool{}
	kept := make([]string, 0, most)
	for _, line := range slices.Backward(lines) {
		if key := digits.ReplaceAllString(line, "0"); !seen[key] && len(kept) < most {
			seen[key] = true
			kept = append(kept, line)
		}
	}
	slices.Reverse(kept)
	return strings.Join(kept, "\n")
}

// Journal writes lines of the agent's journal and of its check before the kubelet starts, without
// secrets.
func Journal(ctx context.Context, q peerapi.LogQuery, w io.Writer) error {
	out := text.NewSecretFilter(w)
	c := exec.CommandContext(ctx, "journalctl", "--no-pager", "--quiet", "--output=short-iso", "--unit=refit-agent", "--unit=refit-preflight", "--lines="+strconv.Itoa(q.Lines))
	if q.Since > 0 {
		c.Args = append(c.Args, "--since=-"+strconv.Itoa(int(q.Since/time.Second))+"s")
	}
	if q.Follow {
		c.Args = append(c.Args, "--follow")
	}
	c.Stdout = out
	c.WaitDelay = time.Second // the client left, and the program may not notice
	if err := c.Run(); err != nil {
		return err
	}
	return out.Flush()
}
