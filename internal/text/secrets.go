package text

import "regexp"

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
