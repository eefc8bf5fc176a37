package text

import (
	"bytes"
	"io"
	"regexp"
	"strings"
)

// hides match secrets that programs log: values of flags and fields with such a name, and
// credentials after an authorization scheme. They also match the user part of a URL, and tokens by
// their form (a JWT, kubeadm's).
var hides = []*regexp.Regexp{
	regexp.MustCompile(`(?i)((?:token|password|passwd|secret|credentials?|api-?key|private-?key|authorization)["']?\s*[=:]\s*["']?)(?:(?:bearer|basic)\s+)?[^\s"',;&]+`),
	regexp.MustCompile(`(?i)(\b(?:bearer|basic)\s+)[A-Za-z0-9+/_.~=-]{8,}`),
	regexp.MustCompile(`(://)[^/\s@]+(@)`),
	regexp.MustCompile(`()\beyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_.-]+`),
	regexp.MustCompile(`()\b[a-z0-9]{6}\.[a-z0-9]{16}\b`),
	regexp.MustCompile(`()\b(?:ghp|gho|ghs|github_pat|glpat|xox[abp])[_-][A-Za-z0-9_-]{16,}`),
	regexp.MustCompile(`()\b(?:AKIA|ASIA)[0-9A-Z]{16}\b`),
	regexp.MustCompile(`("auth["']?\s*:\s*["'])[A-Za-z0-9+/=]+`),
	regexp.MustCompile(`((?:client-key-data|AGE-SECRET-KEY-1)["']?:?\s*["']?)[A-Za-z0-9+/=]{8,}`),
}

// keyBlock is a key or a certificate in PEM, also one whose end is missing.
var keyBlock = regexp.MustCompile(`(?s)-----BEGIN [A-Z ]+-----.*?(?:-----END [A-Z ]+-----|$)`)

// HideSecrets takes out of a text, such as a log, what looks like a secret. It is a heuristic.
func HideSecrets(text string) string {
	text = keyBlock.ReplaceAllString(text, "[hidden]")
	for _, h := range hides {
		text = h.ReplaceAllString(text, "${1}[hidden]${2}")
	}
	return text
}

// maxSecretLine is how much of a line is kept until its end comes; maxKeyLines how many lines a
// key may have.
const maxSecretLine, maxKeyLines = 64 << 10, 200

// SecretFilter writes the lines of a text without what looks like a secret, each when it is
// complete. It is HideSecrets for a text that has no end yet.
type SecretFilter struct {
	w    io.Writer
	line []byte
	// key counts down the lines that may still belong to a key.
	key int
}

// NewSecretFilter makes a filter that writes to w.
func NewSecretFilter(w io.Writer) *SecretFilter { return &SecretFilter{w: w} }

// Write takes a part of the text.
func (f *SecretFilter) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		n := bytes.IndexByte(rest, '\n') + 1
		if n == 0 {
			n = len(rest)
		}
		f.line = append(f.line, rest[:n]...)
		rest = rest[n:]
		if f.line[len(f.line)-1] == '\n' || len(f.line) >= maxSecretLine {
			if err := f.Flush(); err != nil {
				return 0, err
			}
		}
	}
	return len(p), nil
}

// Flush writes a line that has no end.
func (f *SecretFilter) Flush() error {
	line := string(f.line)
	f.line = f.line[:0]
	if f.key > 0 {
		f.key--
		if _, after, ended := strings.Cut(line, "-----END "); ended {
			f.key, line = 0, "[hidden]"+after
		} else {
			return nil
		}
	}
	if i := strings.LastIndex(line, "-----BEGIN "); i >= 0 && strings.Contains(line[i+11:], "-----") && !strings.Contains(line[i:], "-----END ") {
		f.key, line = maxKeyLines, line[:i]+"[hidden]\n"
	}
	_, err := io.WriteString(f.w, HideSecrets(line))
	return err
}
