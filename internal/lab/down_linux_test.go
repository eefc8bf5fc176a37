package lab_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/refit-dev/refit/internal/lab"
	"github.com/refit-dev/refit/internal/lab/kernel"
	"github.com/refit-dev/refit/internal/lab/supervisor"
)

// machineState is what a lab could change on the machine.
type machineState struct {
	links, mounts []string
	settings      map[string]string
	loops         map[string]string // device by file
}

func look() machineState {
	s := machineState{settings: map[string]string{}, loops: map[string]string{}}
	links, _ := net.Interfaces()
	for _, l := range links {
		s.links = append(s.links, l.Name)
	}
	mounts, _ := os.ReadFile("/proc/self/mounts")
	s.mounts = strings.Split(strings.TrimSpace(string(mounts)), "\n")
	for _, name := range []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys",
		"kernel/hostname", "net/ipv4/ip_forward", "net/ipv4/icmp_ratelimit", "kernel/core_pattern", "kernel/printk", "fs/file-max"} {
		value, _ := os.ReadFile("/proc/sys/" + name)
		s.settings[name] = string(value)
	}
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, f := range files {
		backing, err := os.ReadFile(f)
		if err == nil {
			s.loops[strings.TrimSpace(string(backing))] = strings.Split(f, "/")[3]
		}
	}
	return s
}

var namespaceKinds = []string{"net", "mnt", "pid", "uts", "ipc", "cgroup"}

// namespaces are those of a lab's supervisor and nodes that are not the machine's.
func namespaces(ctx context.Context, l *lab.Lab) ([]string, error) {
	status, err := l.Status(ctx)
	if err != nil {
		return nil, err
	}
	process, err := supervisor.LoadProcess(l.Dir)
	if err != nil {
		return nil, err
	}
	pids := []int{process.PID}
	for _, n := range status.Nodes {
		pids = append(pids, n.PID)
	}
	own := namespacesOf("self")
	var found []string
	for _, pid := range pids {
		for _, n := range namespacesOf(strconv.Itoa(pid)) {
			if !slices.Contains(own, n) {
				found = append(found, n)
			}
		}
	}
	if len(found) < len(status.Nodes)*len(namespaceKinds) {
		return nil, fmt.Errorf("only %d namespaces found: %v", len(found), found)
	}
	return found, nil
}

func namespacesOf(pid string) []string {
	var found []string
	for _, kind := range namespaceKinds {
		if name, err := os.Readlink("/proc/" + pid + "/ns/" + kind); err == nil {
			found = append(found, name)
		}
	}
	return found
}

// leftBehind describes what is left of a lab that was removed, "" if nothing. Other tests
// use the machine at the same time: their mounts, below their own folders, are ignored.
// So are processes in the lab's namespaces that began after down, in ticks since boot:
// the kernel gives the numbers of namespaces that are gone to the next.
func leftBehind(dir string, before machineState, inside []string, down uint64) string {
	var left []string
	after := look()
	notOthers := func(mounts []string) []string {
		return slices.DeleteFunc(slices.Clone(mounts), func(m string) bool { return ofATest(m) && !strings.Contains(m, dir) })
	}
	for what, diff := range map[string]string{"links": cmp.Diff(before.links, after.links), "mounts": cmp.Diff(notOthers(before.mounts), notOthers(after.mounts)),
		"kernel settings": cmp.Diff(before.settings, after.settings)} {
		if diff != "" {
			left = append(left, what+" (-before +after): "+diff)
		}
	}
	for file, device := range after.loops {
		if strings.HasPrefix(file, dir+"/") {
			left = append(left, device+" on "+file)
		}
	}
	for _, group := range controlGroups() {
		if strings.HasPrefix(filepath.Base(group), "refit-lab-"+filepath.Base(dir)+"-") {
			left = append(left, group)
		}
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		left = append(left, dir)
	}
	return strings.Join(append(left, processesIn(inside, dir, down)...), "; ")
}

// ofATest reports whether something is mounted where tests have their folders.
func ofATest(mount string) bool {
	f := strings.Fields(mount)
	return len(f) > 1 && slices.ContainsFunc([]string{os.TempDir() + "/", "/tmp/", "/var/tmp/"}, func(d string) bool { return strings.HasPrefix(f[1], d) })
}

// ofAnotherLab reports whether a process is one of a lab other than the one in dir:
// the kernel gives the numbers of namespaces that are gone to the next.
func ofAnotherLab(pid, dir string) bool {
	groups, _ := os.ReadFile("/proc/" + pid + "/cgroup")
	return strings.Contains(string(groups), "/refit-lab-") && !strings.Contains(string(groups), "/refit-lab-"+filepath.Base(dir)+"-")
}

// processesIn finds processes in one of the namespaces, or with the lab's directory in their command line.
func processesIn(inside []string, dir string, down uint64) []string {
	var left []string
	all, _ := os.ReadDir("/proc")
	for _, p := range all {
		if _, err := strconv.Atoi(p.Name()); err != nil || p.Name() == strconv.Itoa(os.Getpid()) {
			continue
		}
		command, _ := os.ReadFile("/proc/" + p.Name() + "/cmdline")
		state, began, ok := stateOf(p.Name())
		if !ok || state == "Z" {
			continue // what is left is for the machine's init to collect
		}
		strange := began <= down && !ofAnotherLab(p.Name(), dir) && slices.ContainsFunc(namespacesOf(p.Name()), func(n string) bool { return slices.Contains(inside, n) })
		if strange || strings.Contains(string(command), dir) {
			left = append(left, "process "+p.Name()+" "+strings.ReplaceAll(string(command), "\x00", " "))
		}
	}
	return left
}

// stateOf gives the state of a process and when it began, in ticks since boot: proc_pid_stat(5).
func stateOf(pid string) (state string, began uint64, ok bool) {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return "", 0, false
	}
	f := strings.Fields(string(stat[strings.LastIndex(string(stat), ")")+1:]))
	began, err = strconv.ParseUint(f[22-3], 10, 64)
	return f[0], began, err == nil
}

// ticksNow is the time now in ticks since boot, of which Linux counts 100 a second for programs.
func ticksNow() uint64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return math.MaxUint64 // then every process counts
	}
	return uint64(now.Nano() / 10_000_000)
}

// Two labs at once, with the same addresses; nodes without a cluster are enough.
func TestDownLeavesNothing(t *testing.T) {
	needsRoot(t)
	base, a, b := t.TempDir(), fmt.Sprintf("a-%d", os.Getpid()), fmt.Sprintf("b-%d", os.Getpid())
	before := look()
	ctx := timeLimit(t, 2*patience)
	inside := map[string][]string{}
	labs := map[string]*lab.Lab{}
	for _, name := range []string{a, b} {
		t.Cleanup(func() { _ = lab.DownIn(context.Background(), name, base) })
		l, err := lab.Up(ctx, lab.Options{Name: name, StateDir: base, Nodes: 2, Bare: true, DiskSize: map[string]int64{"n2": 600 << 20}})
		if err != nil {
			t.Fatal(err)
		}
		labs[name] = l
		if inside[name], err = namespaces(ctx, l); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := lab.Up(ctx, lab.Options{Name: a, StateDir: base, Bare: true}); !errors.As(err, &lab.ErrUp{}) {
		t.Errorf("a second lab of the same name: %v", err)
	}
	size := output(t, labs[a], "n2", "df", "--output=size", "-BM", "/")
	if megabytes, err := strconv.Atoi(strings.Trim(strings.Fields(size)[1], "M")); err != nil || megabytes > 600 {
		t.Errorf("the small disk of n2 has size %q", size)
	}
	medium := filepath.Join(t.TempDir(), "stick.img")
	if err := os.WriteFile(medium, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := labs[b].Insert(ctx, "n1", medium); err != nil {
		t.Fatal(err)
	}
	down := ticksNow()
	if err := lab.DownIn(ctx, a, base); err != nil {
		t.Fatal(err)
	}
	if left := leftBehind(filepath.Join(base, a), before, inside[a], down); left != "" {
		t.Error("left behind:", left)
	}
	output(t, labs[b], "n1", "systemctl", "is-active", "containerd") // the other one is not touched
	down = ticksNow()
	killSupervisor(t, labs[b])
	for range 2 { // the second time there is nothing to do
		if err := lab.DownIn(ctx, b, base); err != nil {
			t.Fatal(err)
		}
	}
	if left := leftBehind(filepath.Join(base, b), before, inside[b], down); left != "" {
		t.Error("left behind after the supervisor was killed:", left)
	}
	if files, err := os.ReadDir(base); err != nil || len(files) != 0 {
		t.Errorf("files left in the state directory: %v, %v", files, err)
	}
	if device := look().loops[medium]; device != "" {
		t.Errorf("the stick is still attached to %s", device)
	}
	if _, err := os.Stat("/run/refit-lab-inotify-instances"); err == nil && len(controlGroups()) == 0 {
		t.Error("the limit of inotify instances was not set back")
	}
}

// controlGroups are those of all labs on this machine.
func controlGroups() []string {
	var found []string
	hierarchies, _ := kernel.CgroupHierarchies()
	for _, h := range hierarchies {
		labs, _ := filepath.Glob(filepath.Join(h.Mount, "refit-lab-*"))
		found = append(found, labs...)
	}
	return found
}

func killSupervisor(t *testing.T, l *lab.Lab) {
	t.Helper()
	p, err := supervisor.LoadProcess(l.Dir)
	if err != nil || !p.Alive() {
		t.Fatalf("no supervisor: %v", err)
	}
	if err := unix.Kill(p.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

func TestRefusedOptionsNameTheFix(t *testing.T) {
	for sentence, c := range map[string]struct {
		options lab.Options
		want    string
	}{
		"a name with a slash":             {lab.Options{Name: "a/b"}, "lower-case letters"},
		"more control planes than nodes":  {lab.Options{Nodes: 2, ControlPlanes: 3}, "use 1 to 2"},
		"a release that is not published": {lab.Options{Version: "v1.2.3"}, "can build: choose one of v1.34.4, v1.35.4, v1.36.3"},
		"a state directory below /usr":    {lab.Options{StateDir: "/usr/share/labs"}, "choose another"},
		"a disk nothing fits on":          {lab.Options{DiskSize: map[string]int64{"n2": 1 << 20}}, "too small"},
	} {
		t.Run(sentence, func(t *testing.T) {
			_, err := lab.Up(t.Context(), c.options)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want something with %q", err, c.want)
			}
		})
	}
}
