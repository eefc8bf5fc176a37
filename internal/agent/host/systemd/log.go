package systemd

import (
	"context"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"
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
	return WithoutSecrets(lastLines(strings.TrimSpace(string(out)), logLines))
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

// hides match secrets that programs log: values of flags and fields with such a name, and
// credentials after an authorization scheme. They also match the user part of a URL, and tokens by
// their form (a JWT, kubeadm's).
var hides = []*regexp.Regexp{
	regexp.MustCompile(`(?i)((?:token|password|passwd|secret|credentials?|api-?key|private-?key|authorization)["']?\s*[=:]\s*["']?)(?:(?:bearer|basic)\s+)?[^\s"',;&]+`),
	regexp.MustCompile(`(?i)(\b(?:bearer|basic)\s+)[A-Za-z0-9+/_.~=-]{8,}`),
	regexp.MustCompile(`(://)[^/\s@]+(@)`),
	regexp.MustCompile(`()\beyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_.-]+`),
	regexp.MustCompile(`()\b[a-z0-9]{6}\.[a-z0-9]{16}\b`),
}

// keyBlock is a key or a certificate in PEM, also one whose end is missing.
var keyBlock = regexp.MustCompile(`(?s)-----BEGIN [A-Z ]+-----.*?(?:-----END [A-Z ]+-----|$)`)

// WithoutSecrets takes out of a log what looks like a secret.
func WithoutSecrets(text string) string {
	text = keyBlock.ReplaceAllString(text, "[hidden]")
	for _, h := range hides {
		text = h.ReplaceAllString(text, "${1}[hidden]${2}")
	}
	return text
}
