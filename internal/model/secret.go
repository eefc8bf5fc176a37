package model

import (
	"bytes"
	"path"
	"strings"
)

// secretMarks are in files that hold keys or passwords.
var secretMarks = []struct{ mark, why string }{
	{"PRIVATE KEY-----", "it holds a private key"},
	{`"auths"`, "it holds the credentials of a registry"},
	{"client-key-data:", "it holds the key of a kubeconfig"},
	{"AGE-SECRET-KEY-", "it holds a private key"},
}

// secretPaths are files that hold passwords wherever they come from.
var secretPaths = []string{
	"/etc/shadow", "/etc/gshadow", "/etc/ostree/auth.json", "/usr/lib/ostree/auth.json", "/etc/NetworkManager/system-connections/*",
	"/etc/wireguard/*", "/etc/ssh/ssh_host_*_key", "/root/.docker/config.json", "/var/lib/kubelet/config.json", "/etc/crypttab.d/*",
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
