package model

import (
	"bytes"
	"path"
	"regexp"
	"strings"

	"github.com/refit-dev/refit/internal/distribution"
)

// secretMarks are in files that hold keys or passwords.
var secretMarks = []struct{ mark, why string }{
	{"PRIVATE KEY-----", "it holds a private key"},
	{`"auths"`, "it holds the credentials of a registry"},
	{"client-key-data:", "it holds the key of a kubeconfig"},
	{"AGE-SECRET-KEY-", "it holds a private key"},
}

// secretPaths are files that hold passwords wherever they come from.
var secretPaths = append([]string{
	"/etc/shadow", "/etc/gshadow", "/etc/ostree/auth.json", "/usr/lib/ostree/auth.json", "/etc/NetworkManager/system-connections/*",
	"/etc/wireguard/*", "/etc/ssh/ssh_host_*_key", "/root/.docker/config.json", "/etc/crypttab.d/*",
}, registryLogins()...)

// registryLogins are the credentials of registries that kubelets read.
func registryLogins() (out []string) {
	for _, r := range distribution.Rows() {
		out = append(out, r.Places.KubeletDir+"/config.json")
	}
	return out
}

// LooksSecret says why a file is taken for a secret, "" if it is not. Secrets are
// put neither into images nor into configurations, which every node reads.
func LooksSecret(p string, data []byte) string {
	for _, pattern := range secretPaths {
		if ok, _ := path.Match(pattern, p); ok {
			return p + " is a place for secrets"
		}
	}
	for _, m := range secretMarks {
		if bytes.Contains(data, []byte(m.mark)) {
			return m.why
		}
	}
	return ""
}

// secretTexts are tokens and passwords by their form. A name that ends in _file or a
// value that refers to something (a variable, a path, a placeholder) is none.
var secretTexts = []struct {
	form *regexp.Regexp
	why  string
}{
	{regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}`), "it holds a token (JWT)"},
	{regexp.MustCompile(`\b(ghp|gho|ghs|github_pat|glpat|xox[abp])[_-][A-Za-z0-9_-]{16,}`), "it holds an access token"},
	{regexp.MustCompile(`\b(AKIA|ASIA)[0-9A-Z]{16}\b`), "it holds a cloud access key"},
	{regexp.MustCompile(`(?i)\bauthorization["']?\s*[:=]\s*\[?\s*["']?(basic|bearer)\s+[A-Za-z0-9+/=._-]{8,}`), "it holds credentials of an HTTP request"},
	{regexp.MustCompile(`\b[a-z][a-z0-9+.-]*://[^/\s:@"']+:[^/\s@"'$%{<]+@`), "it holds a URL with a password"},
	{regexp.MustCompile(`(?im)^\s*(export\s+)?["']?[a-z0-9_.-]*(password|passwd|passphrase|secret[_-]?key|secret[_-]?access[_-]?key|client[_-]?secret|api[_-]?key|auth[_-]?token|access[_-]?token|bearer[_-]?token|\bpsk|wpa-psk|privatekey)["']?\s*[:=]\s*["']?[^\s"'$%{</#,;][^\s"']{5,}`), "it holds a password or a key"},
}

// NodeSecret says why a file of a NodeConfig is taken for a secret, "" if it is not: what
// LooksSecret says, and tokens and passwords by their form. It is a heuristic. Connections
// of NetworkManager are classified by their content, not by their path.
func NodeSecret(p string, data []byte) string {
	if path.Dir(p) == "/etc/NetworkManager/system-connections" {
		p = ""
	}
	if why := LooksSecret(p, data); why != "" {
		return why
	}
	for _, s := range secretTexts {
		if s.form.Match(data) {
			return s.why
		}
	}
	return ""
}

// keptArguments belong to the boot loader, to libostree or to the installation.
var keptArguments = map[string]string{
	"ostree": "it names the deployment that is booted", "root": "the disk was laid out when the machine was installed", "rootflags": "the disk was laid out when the machine was installed",
	"rootfstype": "the disk was laid out when the machine was installed", "BOOT_IMAGE": "the boot loader writes it", "initrd": "the boot loader writes it", "init": "it replaces the whole system",
	"boot": "the disk was laid out when the machine was installed", "systemd.machine_id": "it is of one machine", "fips": "it is set when the machine is installed, and cannot be changed",
	"ignition.firstboot": "Ignition sets it", "ignition.platform.id": "it is of the platform", "systemd.unit": "the node would start as something else",
}

// KeptArgument says why a kernel argument is not set by a configuration, "" if it
// may be.
func KeptArgument(arg string) string {
	if arg == "" || strings.ContainsFunc(arg, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\'' || r == '\\' }) {
		return "it must be one word of printable characters, without quotes"
	}
	key, _, _ := strings.Cut(arg, "=")
	return keptArguments[key]
}
