package kernel

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// CgroupHierarchy is one mounted control group hierarchy.
type CgroupHierarchy struct {
	Mount   string // where it is mounted
	Options string // for a legacy hierarchy: what to pass to mount, like "cpu,cpuacct" or "none,name=systemd"
	Unified bool
}

// CgroupHierarchies lists the hierarchies of this machine.
func CgroupHierarchies() ([]CgroupHierarchy, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	found := parseHierarchies(string(data))
	if len(found) == 0 {
		return nil, errors.New("no control group hierarchy is mounted: mount /sys/fs/cgroup first")
	}
	return found, nil
}

// parseHierarchies reads the lines of /proc/PID/mountinfo.
func parseHierarchies(mountinfo string) []CgroupHierarchy {
	var all []CgroupHierarchy
	for line := range strings.Lines(mountinfo) {
		before, after, ok := strings.Cut(strings.TrimSpace(line), " - ")
		fields, super := strings.Fields(before), strings.Fields(after)
		// Only whole hierarchies, not parts of one that are bound elsewhere.
		if !ok || len(fields) < 5 || len(super) < 3 || fields[3] != "/" {
			continue
		}
		h := CgroupHierarchy{Mount: fields[4]}
		switch super[0] {
		case "cgroup":
			h.Options = mountOptions(super[2])
		case "cgroup2":
			h.Unified = true
		default:
			continue
		}
		same := func(o CgroupHierarchy) bool { return o.Options == h.Options && o.Unified == h.Unified }
		if !slices.ContainsFunc(all, same) {
			all = append(all, h)
		}
	}
	return all
}

// mountOptions keeps of a legacy hierarchy's options those that name it.
func mountOptions(super string) string {
	var names []string
	for _, o := range strings.Split(super, ",") {
		switch {
		case o == "rw", o == "ro", o == "xattr", o == "noprefix", o == "clone_children", o == "cpuset_v2_mode", strings.HasPrefix(o, "release_agent="):
		case strings.HasPrefix(o, "name="):
			names = append([]string{"none"}, o)
		default:
			names = append(names, o)
		}
	}
	return strings.Join(names, ",")
}

// CreateCgroup makes group, a relative path, in every hierarchy.
func CreateCgroup(group string) error {
	all, err := CgroupHierarchies()
	if err != nil {
		return err
	}
	for _, h := range all {
		if err := h.create(group); err != nil {
			return fmt.Errorf("control group %s in %s: %w", group, h.Mount, err)
		}
	}
	return nil
}

func (h CgroupHierarchy) create(group string) error {
	dir := h.Mount
	for part := range strings.SplitSeq(group, "/") {
		above := dir
		dir = filepath.Join(dir, part)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := h.inherit(above, dir); err != nil {
			return err
		}
	}
	return nil
}

// inherit copies to a new group what the kernel does not. A legacy cpuset has no
// processors and accepts no process until some are written to it. A unified group has only
// the controllers that its parent enables for it.
func (h CgroupHierarchy) inherit(above, dir string) error {
	if h.Unified {
		controllers, err := os.ReadFile(filepath.Join(above, "cgroup.controllers"))
		if err != nil {
			return err
		}
		for name := range strings.FieldsSeq(string(controllers)) {
			// A controller that cannot be handed down is one the nodes do without.
			_ = os.WriteFile(filepath.Join(above, "cgroup.subtree_control"), []byte("+"+name), 0)
		}
		return nil
	}
	if !slices.Contains(strings.Split(h.Options, ","), "cpuset") {
		return nil
	}
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(above, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), value, 0); err != nil {
			return err
		}
	}
	return nil
}

// JoinCgroup moves this process, with all its threads, into group in every hierarchy.
func JoinCgroup(group string) error {
	all, err := CgroupHierarchies()
	if err != nil {
		return err
	}
	for _, h := range all {
		if err := h.join(group); err != nil {
			return fmt.Errorf("joining control group %s in %s: %w", group, h.Mount, err)
		}
	}
	return nil
}

func (h CgroupHierarchy) join(group string) error {
	err := os.WriteFile(filepath.Join(h.Mount, group, "cgroup.procs"), []byte("0"), 0)
	if h.Unified && errors.Is(err, unix.EBUSY) {
		// A unified group that hands controllers down holds no processes itself:
		// the node's systemd has put its own into this one.
		return os.WriteFile(filepath.Join(h.Mount, group, "init.scope", "cgroup.procs"), []byte("0"), 0)
	}
	return err
}

// CgroupProcesses lists who is in group or below it, in any hierarchy.
func CgroupProcesses(group string) ([]int, error) {
	all, err := CgroupHierarchies()
	if err != nil {
		return nil, err
	}
	seen := map[int]bool{}
	for _, h := range all {
		for _, dir := range listGroups(filepath.Join(h.Mount, group)) {
			data, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
			if err != nil {
				continue // gone meanwhile
			}
			for field := range strings.FieldsSeq(string(data)) {
				if pid, err := strconv.Atoi(field); err == nil && pid > 0 {
					seen[pid] = true
				}
			}
		}
	}
	var pids []int
	for pid := range seen {
		pids = append(pids, pid)
	}
	slices.Sort(pids)
	return pids, nil
}

// KillCgroup ends every process in group and below, and returns when none is left.
// This process is spared.
func KillCgroup(group string, patience time.Duration) error {
	deadline := time.Now().Add(patience)
	for {
		pids, err := CgroupProcesses(group)
		if err != nil {
			return err
		}
		pids = slices.DeleteFunc(pids, func(pid int) bool { return pid == os.Getpid() })
		if len(pids) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("processes %v of %s do not end; inspect them with ps and try again", pids, group)
		}
		for _, pid := range pids {
			killMember(pid, group)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// isCgroupMember reads /proc/PID/cgroup.
func isCgroupMember(cgroups, group string) bool {
	for line := range strings.Lines(cgroups) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) == 3 && (parts[2] == "/"+group || strings.HasPrefix(parts[2], "/"+group+"/")) {
			return true
		}
	}
	return false
}

// RemoveCgroup takes group and everything below it away, in every hierarchy. Its
// processes must have ended; the kernel may need a moment to let go of them.
func RemoveCgroup(group string, patience time.Duration) error {
	all, err := CgroupHierarchies()
	if err != nil {
		return err
	}
	deadline := time.Now().Add(patience)
	for {
		var left error
		for _, h := range all {
			left = errors.Join(left, removeTree(filepath.Join(h.Mount, group)))
		}
		if left == nil || time.Now().After(deadline) {
			return left
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// EmptyCgroup removes what is below group, as far as it can: what the last boot of a node left.
func EmptyCgroup(group string) {
	all, _ := CgroupHierarchies()
	for _, h := range all {
		dirs := listGroups(filepath.Join(h.Mount, group))
		for _, dir := range slices.Backward(dirs) {
			if dir != filepath.Join(h.Mount, group) {
				_ = unix.Rmdir(dir)
			}
		}
	}
}

func removeTree(dir string) error {
	var failed error
	for _, d := range slices.Backward(listGroups(dir)) {
		if err := unix.Rmdir(d); err != nil && err != unix.ENOENT {
			failed = errors.Join(failed, fmt.Errorf("removing control group %s: %w", d, err))
		}
	}
	return failed
}

// listGroups lists dir and the directories in it, those above first.
func listGroups(dir string) []string {
	var dirs []string
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return nil // gone meanwhile
	})
	return dirs
}

// FreezeCgroup stops every process in group and below where it is, until thaw.
func FreezeCgroup(group string, patience time.Duration) (thaw func() error, err error) {
	all, err := CgroupHierarchies()
	if err != nil {
		return nil, err
	}
	for _, h := range all {
		var f freezer
		switch {
		case slices.Contains(strings.Split(h.Options, ","), "freezer"):
			f = freezer{filepath.Join(h.Mount, group, "freezer.state"), "FROZEN", "THAWED", filepath.Join(h.Mount, group, "freezer.state"), "FROZEN"}
		case h.Unified && len(all) == 1:
			f = freezer{filepath.Join(h.Mount, group, "cgroup.freeze"), "1", "0", filepath.Join(h.Mount, group, "cgroup.events"), "frozen 1"}
		default:
			continue
		}
		thaw = func() error { return os.WriteFile(f.file, []byte(f.thaw), 0) }
		if err := f.freezeNow(patience); err != nil {
			return nil, errors.Join(err, thaw())
		}
		return thaw, nil
	}
	return nil, errors.New("no control group hierarchy can freeze processes")
}

// freezer is how one hierarchy freezes.
type freezer struct{ file, freeze, thaw, says, frozen string }

func (f freezer) freezeNow(patience time.Duration) error {
	for deadline := time.Now().Add(patience); ; {
		// Asked again: a process that was just made may have slipped through.
		if err := os.WriteFile(f.file, []byte(f.freeze), 0); err != nil {
			return err
		}
		state, err := os.ReadFile(f.says)
		if err != nil || strings.Contains(string(state), f.frozen) {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s does not freeze", f.file)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
