package systemd

import (
	"context"
	"os/exec"
	"regexp"
	"strings"
	"time"
)

const (
	// logLines are asked for, logTime is how long the answer may take.
	logLines = "12"
	logTime  = 10 * time.Second
)

// Log is the end of a unit's log, without secrets. That it cannot be read is said
// in its place.
func Log(ctx context.Context, unit string) string {
	ctx, cancel := context.WithTimeout(ctx, logTime)
	defer cancel()
	out, err := exec.CommandContext(ctx, "journalctl", "-u", unit, "-n", logLines, "--no-pager", "-o", "cat").Output()
	if err != nil {
		return "the log of " + unit + " cannot be read"
	}
	return WithoutSecrets(strings.TrimSpace(string(out)))
}

// hides are what programs write into logs that nobody else may read: the value of a
// flag or a field that is called so, what follows a scheme of authorisation, the user
// part of a URL, and tokens by their form (a JWT, kubeadm's).
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
