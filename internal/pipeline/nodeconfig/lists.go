package nodeconfig

import (
	"encoding/base64"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/refit-dev/refit/internal/model"
)

// SSHKeys are the keys of one user.
type SSHKeys struct {
	User string
	Keys []string
}

// many are arguments that may be there more than once with different values.
var many = []string{"console", "earlycon", "modprobe.blacklist", "module_blacklist", "rd.driver.blacklist", "rd.driver.pre", "rd.luks.uuid", "rd.luks.name", "rd.lvm.lv", "rd.md.uuid",
	"ip", "nameserver", "rd.znet", "systemd.wants", "systemd.mask", "systemd.setenv", "hugepagesz", "hugepages", "cgroup_disable", "initcall_blacklist"}

// arguments appends a source's kernel arguments: in the order of the sources'
// names, each source's own order kept, the same one once.
func (m *merger) arguments(s Source) {
	for _, arg := range s.KernelArguments {
		if why := model.KeptArgument(arg); why != "" {
			m.refuse(s.Name, fmt.Sprintf("kernel argument %q is refused: %s", arg, why))
			continue
		}
		if m.c.OS == nil {
			m.c.OS = &model.ConfigOS{}
		}
		if slices.Contains(m.c.OS.KernelArguments, arg) {
			continue
		}
		key, _, _ := strings.Cut(arg, "=")
		thing := "kernel argument " + key
		if owner, taken := m.owner[thing]; taken && owner != s.Name && !slices.Contains(many, key) {
			m.take(thing, s.Name)
			continue
		}
		m.owner[thing] = s.Name
		m.c.OS.KernelArguments = append(m.c.OS.KernelArguments, arg)
	}
}

// keyFile is where a user's keys are.
func keyFile(user string) string {
	if user == "root" {
		return "/root/.ssh/authorized_keys"
	}
	return "/home/" + user + "/.ssh/authorized_keys"
}

// sshKeys puts a source's keys of a user with those of others.
func (m *merger) sshKeys(source string, k SSHKeys) {
	if !validUser(k.User) {
		m.refuse(source, fmt.Sprintf("%q is no name of a user", k.User))
		return
	}
	keys := m.keys[k.User]
	if keys == nil {
		if !m.take("file "+keyFile(k.User), source) {
			return
		}
		keys = map[string]string{}
		m.keys[k.User] = keys
	}
	for i, line := range k.Keys {
		id, why := keyOf(line)
		if why != "" {
			m.refuse(source, fmt.Sprintf("ssh key %d of user %s is refused: %s", i+1, k.User, why))
			continue
		}
		line = strings.TrimSpace(line)
		// The same key with two comments is one key; the smaller line stands for it, in
		// any order of the sources.
		if have, ok := keys[id]; !ok || line < have {
			keys[id] = line
		}
	}
}

func validUser(u string) bool {
	return u != "" && !strings.ContainsFunc(u, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '_'
	})
}

// keyOf is what makes a public key, or why it is none. What was given is not
// repeated: it may be the private half.
func keyOf(line string) (id, why string) {
	words := strings.Fields(line)
	switch {
	case model.LooksSecret("", []byte(line)) != "":
		return "", "it is a private key; give the public half"
	case strings.ContainsAny(strings.TrimSpace(line), "\n\r"):
		return "", "it has more than one line"
	case len(words) < 2 || !strings.HasPrefix(words[0], "ssh-") && !strings.HasPrefix(words[0], "ecdsa-") && !strings.HasPrefix(words[0], "sk-"):
		return "", "it does not begin with a type such as ssh-ed25519 (options in front are not taken)"
	}
	if _, err := base64.StdEncoding.DecodeString(words[1]); err != nil {
		return "", "its second word is no base64"
	}
	return words[0] + " " + words[1], ""
}

// keyFiles makes the users' files, when all sources were seen.
func (m *merger) keyFiles() {
	for user, keys := range m.keys {
		lines := make([]string, 0, len(keys))
		for _, l := range keys {
			lines = append(lines, l)
		}
		sort.Strings(lines)
		text := "# Written by refit: NodeConfig.spec.sshAuthorizedKeys\n"
		for _, l := range lines {
			text += l + "\n"
		}
		m.c.Files = append(m.c.Files, model.ConfigFile{Path: keyFile(user), Mode: 0o600, Owner: user, Group: user, Data: []byte(text), Disruption: model.DisruptionNone, Own: true})
	}
}

// packages adds the packages of a source; several sources may name the same one.
func (m *merger) packages(s Source) {
	for _, p := range s.Packages {
		if !validPackage(p) {
			m.refuse(s.Name, fmt.Sprintf("%q is no name of a package", p))
			continue
		}
		if !slices.Contains(m.c.Packages, p) {
			m.c.Packages = append(m.c.Packages, p)
		}
	}
}

// validPackage: the name is put into a shell command of a build.
func validPackage(p string) bool {
	for i, r := range p {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		if !letter && (i == 0 || !strings.ContainsRune("+._-", r)) {
			return false
		}
	}
	return p != ""
}
