package osdriver

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// ostreeEntry is one deployment as `ostree admin status` prints it.
type ostreeEntry struct {
	osname, checksum, serial string
	booted, staged, locked   bool
	pinned                   bool
	unlocked                 string
	d                        *Deployment
}

func (e *ostreeEntry) id() string { return e.checksum + "." + e.serial }

// deploymentLine may have several words at its end, and newer versions have some of two words.
var deploymentLine = regexp.MustCompile(`^([* ]) (\S+) ([0-9a-f]{64})\.([0-9]+)((?: \([\w -]+\))*)$`)

// parse reads what `ostree admin status` prints, in the order in which it boots.
func parse(out string) []ostreeEntry {
	var list []ostreeEntry
	for _, l := range strings.Split(out, "\n") {
		if m := deploymentLine.FindStringSubmatch(strings.TrimRight(l, " ")); m != nil {
			locked := strings.Contains(m[5], "(finalization locked)")
			list = append(list, ostreeEntry{booted: m[1] == "*", osname: m[2], checksum: m[3], serial: m[4], locked: locked, staged: locked || strings.Contains(m[5], "(staged)")})
			continue
		}
		if len(list) == 0 {
			continue
		}
		last := &list[len(list)-1]
		switch key, value, _ := strings.Cut(strings.TrimSpace(l), ":"); key {
		case "Unlocked":
			last.unlocked = strings.TrimSpace(value)
		case "Pinned":
			last.pinned = strings.TrimSpace(value) == "yes"
		}
	}
	return list
}

// bootOptions are the arguments of every deployment that the boot loader knows,
// without those that name it.
func bootOptions(root string) (map[string][]string, error) {
	dir := filepath.Join(root, "/boot/loader/entries")
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("entries of the boot loader: %w", err)
	}
	out := map[string][]string{}
	for _, f := range files {
		if filepath.Ext(f.Name()) != ".conf" {
			continue
		}
		b, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			return nil, fmt.Errorf("entries of the boot loader: %w", err)
		}
		for _, l := range strings.Split(string(b), "\n") {
			if options, ok := strings.CutPrefix(l, "options "); ok {
				args := SplitKargs(options)
				if id := deploymentOf(root, args); id != "" {
					out[id] = Machine(args)
				}
			}
		}
	}
	return out, nil
}

// deploymentOf follows the link that the arguments name, "" if it leads nowhere.
func deploymentOf(root string, args []string) string {
	for _, a := range args {
		if link, ok := strings.CutPrefix(a, "ostree="); ok {
			to, err := os.Readlink(filepath.Join(root, link))
			if err == nil {
				return filepath.Base(to)
			}
		}
	}
	return ""
}

// place puts a deployment where Status has it: libostree lists them in the order in
// which they boot, and the first older one after the booted is what a rollback is to.
func place(s *Status, e *ostreeEntry) {
	switch {
	case e.booted:
		s.Booted = e.d
	case e.staged:
		s.Staged = e.d
	case s.Rollback == nil:
		s.Rollback = e.d
	}
}

func drift(list []ostreeEntry) []Drift {
	var out []Drift
	for _, e := range list {
		if e.booted && e.unlocked != "" && e.unlocked != "none" {
			out = append(out, Drift{Kind: DriftOverlay, Detail: "/usr was unlocked on the node (" + e.unlocked + ")"})
		}
		if e.staged && e.d.Digest == "" {
			out = append(out, Drift{Kind: DriftForeign, Detail: "the staged deployment is not from a container image"})
		}
	}
	return out
}
