package simhost

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/refit-dev/refit/internal/agent/host/osdriver"
	"github.com/refit-dev/refit/internal/lab/machine"
)

// OSName is the stateroot.
const OSName = "sim"

// Platform of the images.
const Platform = "linux/amd64"

// Host is one machine.
type Host struct {
	t testing.TB
	// Dir has the disk (root) and what is laid over /usr (tools).
	Dir string
	// Boots counts, so that every boot has another ID.
	Boots int

	unshare *exec.Cmd
	pid     int
	ended   chan struct{} // closed when all of the last boot has ended
}

// Needs skips a test that cannot run here.
func Needs(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: hosts are made of mounts and namespaces")
	}
	for _, program := range []string{"ostree", "unshare", "nsenter", "chattr", "strace"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("needs %s: make deps installs it", program)
		}
	}
}

// New installs an image on an empty disk, with arguments of the machine's own. tools
// are programs that the host has in addition to this machine's.
func New(t testing.TB, layout string, kargs []string, tools map[string]string) *Host {
	t.Helper()
	Needs(t)
	h := &Host{t: t, Dir: t.TempDir()}
	t.Cleanup(h.destroy)
	if err := h.sysroot().Install(t.Context(), layout, kargs); err != nil {
		t.Fatal(err)
	}
	h.tools(tools)
	return h
}

func (h *Host) disk() string { return filepath.Join(h.Dir, "root") }

func (h *Host) sysroot() machine.OSTreeDisk { return machine.OSTreeDisk{Dir: h.disk(), OSName: OSName} }

// Stateroot is where the deployments and /var are, seen from outside.
func (h *Host) Stateroot() string { return h.sysroot().Stateroot() }

// tools writes the programs that are played.
func (h *Host) tools(more map[string]string) {
	h.t.Helper()
	bin := filepath.Join(h.Dir, "tools/bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		h.t.Fatal(err)
	}
	for name, text := range map[string]string{
		"systemctl":  "#!/bin/sh\n[ \"$1\" = reboot ] && : > /run/reboot-asked\nexit 0\n",
		"journalctl": "#!/bin/sh\ncat /var/lib/last-shutdown 2>/dev/null; exit 0\n",
	} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(text), 0o755); err != nil {
			h.t.Fatal(err)
		}
	}
	for name, from := range more {
		if err := os.Link(from, filepath.Join(bin, name)); err != nil {
			h.must("cp", from, filepath.Join(bin, name))
		}
	}
}

func (h *Host) must(argv ...string) {
	h.t.Helper()
	if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
		h.t.Fatalf("%s: %v: %s", strings.Join(argv, " "), err, out)
	}
}

// Entries are those of the boot loader, the one that boots first; their folders are
// seen from outside.
func (h *Host) Entries() []machine.BootEntry {
	h.t.Helper()
	out, err := h.sysroot().Entries()
	if err != nil {
		h.t.Fatal(err)
	}
	return out
}

// Boot starts the machine from the first entry of the boot loader.
func (h *Host) Boot() { h.t.Helper(); h.BootPick(0) }

// BootPick starts it from another one, as a person at the boot menu does.
func (h *Host) BootPick(n int) {
	h.t.Helper()
	entries := h.Entries()
	if n >= len(entries) {
		h.t.Fatalf("the boot menu has %d entries", len(entries))
	}
	h.Boots++
	if err := os.WriteFile(filepath.Join(h.Dir, "cmdline"), []byte(entries[n].Options+"\n"), 0o644); err != nil {
		h.t.Fatal(err)
	}
	var console bytes.Buffer
	c := exec.Command("unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private", "sh", "-c", start, "start",
		entries[n].Deployment, h.disk(), filepath.Join(h.Dir, "cmdline"), filepath.Join(h.Dir, "tools"), h.Stateroot()+"/var")
	c.Stdout, c.Stderr = &console, &console
	if _, err := c.StdinPipe(); err != nil { // it ends with us: the machine does not outlive the test
		h.t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		h.t.Fatal(err)
	}
	ended := make(chan struct{})
	h.unshare, h.ended = c, ended
	go func() { _ = c.Wait(); close(ended) }()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		select {
		case <-ended:
			h.t.Fatalf("the machine did not boot: %s", console.String())
		default:
		}
		if pid := h.first(); pid > 0 {
			h.pid = pid
			return
		}
		if time.Now().After(deadline) {
			h.t.Fatal("the machine did not boot within a minute")
		}
	}
}

// first is pid 1 of the machine, once it is up.
func (h *Host) first() int {
	u := h.unshare.Process.Pid
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", u, u))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0
	}
	comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil || strings.TrimSpace(string(comm)) != "cat" {
		return 0
	}
	return pid
}

// start makes the root of a boot and becomes its first process.
const start = `set -e
dep=$1 disk=$2 cmdline=$3 tools=$4 var=$5
mount --bind "$dep" "$dep"; cd "$dep"
mount -t proc proc proc; mount --bind "$cmdline" proc/cmdline
mount -t sysfs sysfs sys; mount --rbind /dev dev
mount -t tmpfs tmpfs run; mount -t tmpfs tmpfs tmp; : > run/ostree-booted
mount --bind "$disk" sysroot; mount --bind "$disk/boot" boot; mount --bind "$var" var
mount -t overlay -o "ro,lowerdir=$tools:$dep/usr:/usr" overlay usr
mount --make-rprivate /
pivot_root . .; umount -l .
exec env -i PATH=/usr/sbin:/usr/bin /usr/bin/cat
`

// Up reports whether the machine runs.
func (h *Host) Up() bool { return h.pid > 0 }

// Root is where its files are, seen from outside.
func (h *Host) Root() string { return fmt.Sprintf("/proc/%d/root", h.pid) }

// Host is the machine for a driver.
func (h *Host) Host() osdriver.Host { return osdriver.Host{Runner: h, Root: h.Root()} }

// Run runs a program on the machine.
func (h *Host) Run(ctx context.Context, stdin io.Reader, argv ...string) ([]byte, error) {
	c := exec.CommandContext(ctx, "nsenter", append([]string{"-t", strconv.Itoa(h.pid), "-m", "-p", "-r", "-w", "--",
		"env", "-i", "PATH=/usr/sbin:/usr/bin", "LC_ALL=C.UTF-8"}, argv...)...)
	c.Stdin = stdin
	out, err := osdriver.Output(c)
	if tool, ok := err.(*osdriver.ToolError); ok { //nolint:errorlint // as Output makes it
		tool.Argv = argv
	}
	return out, err
}

// Must runs a program on the machine that has to succeed.
func (h *Host) Must(argv ...string) string {
	h.t.Helper()
	out, err := h.Run(h.t.Context(), nil, argv...)
	if err != nil {
		h.t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// Asked reports whether a program asked the machine to restart.
func (h *Host) Asked() bool {
	if !h.Up() {
		return false
	}
	_, err := os.Stat(h.Root() + "/run/reboot-asked")
	return err == nil
}

// Shutdown ends the machine in an orderly way: what is staged is finished first. before
// may run something on it in the very last moment.
func (h *Host) Shutdown(before ...string) {
	h.t.Helper()
	if len(before) > 0 {
		h.Must(before...)
	}
	said := ""
	if _, err := os.Stat(h.Root() + "/run/ostree/staged-deployment"); err == nil {
		if _, err := h.Run(h.t.Context(), nil, "ostree", "admin", "finalize-staged"); err != nil {
			said = err.Error() + "\n"
		}
	}
	if err := os.MkdirAll(h.Stateroot()+"/var/lib", 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(h.Stateroot()+"/var/lib/last-shutdown", []byte(said), 0o644); err != nil {
		h.t.Fatal(err)
	}
	h.PowerCut()
}

// PowerCut ends the machine where it is.
func (h *Host) PowerCut() {
	h.t.Helper()
	if !h.Up() {
		return
	}
	pid := h.pid
	h.pid = 0
	if err := h.unshare.Process.Kill(); err != nil {
		h.t.Log(err)
	}
	<-h.ended
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); os.IsNotExist(err) {
			return
		}
	}
	h.t.Fatal("the machine does not end")
}

// Reboot is an orderly shutdown and a boot.
func (h *Host) Reboot() { h.t.Helper(); h.Shutdown(); h.Boot() }

// destroy takes the machine away.
func (h *Host) destroy() {
	h.PowerCut()
	if err := h.sysroot().Remove(); err != nil {
		h.t.Error(err)
	}
}
