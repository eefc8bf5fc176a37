package install

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/refit-dev/refit/internal/osimage"
)

// nextBoot is what a host has after the boot into a deployment: the deployment's own files, the /etc
// that libostree merges, and the /var that stays.
type nextBoot struct {
	root, deployment string
	// transient: /etc is the image's at every boot.
	transient bool
}

func newNextBoot(root, deployment string) nextBoot {
	n := nextBoot{root: filepath.Join("/", root), deployment: deployment}
	for _, name := range []string{"usr/etc/ostree/prepare-root.conf", "usr/lib/ostree/prepare-root.conf"} {
		if text, err := os.ReadFile(filepath.Join(deployment, name)); err == nil {
			n.transient = osimage.EtcTransient(string(text))
			break
		}
	}
	return n
}

// withoutAgent says what keeps the agent from starting, "" if nothing does.
func (n nextBoot) withoutAgent() string {
	program, ok := n.starts(Unit)
	switch {
	case !ok:
		return "no " + Unit + " that starts a program"
	case !n.isProgram(program):
		return "no program " + program
	case !n.isEnabled(Unit):
		return "nothing that starts " + Unit
	case !n.transient && exists(filepath.Join(n.root, "etc", agentConfig())) && n.etc(agentConfig()) == "":
		return "no /etc/" + agentConfig()
	}
	return ""
}

// etc is the file that /etc has after the merge, "" if it has none: a file that was changed on the node
// stays, all others are those of the new image.
func (n nextBoot) etc(name string) string {
	mine, base, next := filepath.Join(n.root, "etc", name), filepath.Join(n.root, "usr/etc", name), filepath.Join(n.deployment, "usr/etc", name)
	if !n.transient && !isSame(mine, base) {
		next = mine
	}
	if !exists(next) {
		return ""
	}
	return next
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// isSame reports whether two files are as libostree compares them, by kind, mode and content, or
// both are missing.
func isSame(a, b string) bool {
	x, errA := os.Lstat(a)
	y, errB := os.Lstat(b)
	switch {
	case errA != nil || errB != nil:
		return errA != nil && errB != nil
	case x.Mode() != y.Mode():
		return false
	case x.Mode()&fs.ModeSymlink != 0:
		s, errA := os.Readlink(a)
		t, errB := os.Readlink(b)
		return errA == nil && errB == nil && s == t
	case !x.Mode().IsRegular():
		return true
	}
	s, errA := os.ReadFile(a)
	t, errB := os.ReadFile(b)
	return errA == nil && errB == nil && bytes.Equal(s, t)
}

// unitDirs of images, in the order in which systemd reads them after /etc.
var unitDirs = []string{"/usr/local/lib/systemd/system", "/usr/lib/systemd/system"}

// starts is the program that a unit starts, by its absolute path.
func (n nextBoot) starts(unit string) (program string, ok bool) {
	files := []string{n.etc("systemd/system/" + unit)}
	for _, dir := range unitDirs {
		files = append(files, n.find(dir+"/"+unit))
	}
	for _, file := range files {
		if file == "" {
			continue
		}
		text, err := os.ReadFile(file) // a unit that is masked has no text
		if err != nil {
			return "", false
		}
		return commandOf(string(text))
	}
	return "", false
}

// commandOf is the program of the last ExecStart of a unit.
func commandOf(unit string) (program string, ok bool) {
	for line := range strings.Lines(unit) {
		if command, is := strings.CutPrefix(strings.TrimSpace(line), "ExecStart="); is {
			program, _, _ = strings.Cut(strings.TrimLeft(command, "-@:+!|"), " ")
		}
	}
	return program, filepath.IsAbs(program)
}

func (n nextBoot) isEnabled(unit string) bool {
	const wants = "systemd/system/multi-user.target.wants/"
	return n.etc(wants+unit) != "" || n.find("/usr/lib/"+wants+unit) != ""
}

func (n nextBoot) isProgram(path string) bool {
	file := n.find(path)
	if file == "" {
		return false
	}
	st, err := os.Stat(file)
	return err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0
}

// maxLinks that lead to one file.
const maxLinks = 40

// find is where a file of the next boot is now, "" if there is none. Links of the image are followed as
// the host does after the boot: /usr/local or /opt may lead into /var.
func (n nextBoot) find(path string) string {
	at, rest, links := "/", strings.Split(filepath.Clean(path), "/"), 0
	for len(rest) > 0 {
		at, rest = filepath.Join(at, rest[0]), rest[1:]
		file := n.place(at)
		st, err := os.Lstat(file)
		if err != nil {
			return ""
		}
		if st.Mode()&fs.ModeSymlink == 0 {
			continue
		}
		to, err := os.Readlink(file)
		if links++; err != nil || links > maxLinks {
			return ""
		}
		if at = filepath.Dir(at); filepath.IsAbs(to) {
			at = "/"
		}
		rest = append(strings.Split(filepath.Clean(to), "/"), rest...)
	}
	return n.place(at)
}

// place is where a path is without links in it.
func (n nextBoot) place(path string) string {
	if path == "/var" || strings.HasPrefix(path, "/var/") {
		return filepath.Join(n.root, path)
	}
	if name, ok := strings.CutPrefix(path, "/etc/"); ok {
		if file := n.etc(name); file != "" {
			return file
		}
	}
	return filepath.Join(n.deployment, path)
}
