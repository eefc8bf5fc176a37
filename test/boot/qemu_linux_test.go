package boot

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// line of the console, with the time since the start.
type line struct {
	at   time.Duration
	text string
}

// machine is a QEMU without KVM: its console is read with times, its second serial port runs
// commands, and its monitor takes snapshots.
type machine struct {
	t     testing.TB
	dir   string
	cmd   *exec.Cmd
	start time.Time

	mu      sync.Mutex
	lines   []line
	answers map[string]answer
	ended   bool
	log     *os.File

	shell, monitor net.Conn
	commands       int
}

// answer of a command in the machine.
type answer struct {
	code int
	out  string
}

// boot starts a machine from a disk; data is a second, read-only disk.
func boot(t testing.TB, dir, disk, data string, more ...string) *machine {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "console.log"))
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{t: t, dir: dir, start: time.Now(), answers: map[string]answer{}, log: log}
	shell, monitor := filepath.Join(dir, "shell"), filepath.Join(dir, "monitor")
	_ = os.Remove(shell)   // of an earlier run
	_ = os.Remove(monitor) // of an earlier run
	args := []string{"qemu-system-x86_64", "-M", "pc", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "1", "-m", "1024",
		"-nodefaults", "-display", "none", "-vga", "none",
		"-drive", "file=" + disk + ",if=virtio,format=qcow2,cache=unsafe", "-drive", "file=" + data + ",if=virtio,format=raw,readonly=on",
		"-serial", "stdio", "-serial", "unix:" + shell + ",server=on,wait=off", "-qmp", "unix:" + monitor + ",server=on,wait=off",
		"-device", "i6300esb", "-action", "watchdog=reset", "-nic", "user,model=virtio-net-pci"}
	m.cmd = exec.Command("nice", append([]string{"-n", "5"}, append(args, more...)...)...)
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	m.cmd.Stderr = log
	if err := m.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.stop)
	go m.readConsole(out)
	m.shell, m.monitor = m.dial(shell), m.dial(monitor)
	go m.readAnswers()
	m.qmp("qmp_capabilities", nil)
	return m
}

func (m *machine) dial(path string) net.Conn {
	m.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		c, err := net.Dial("unix", path)
		if err == nil {
			return c
		}
		if time.Now().After(deadline) {
			m.t.Fatalf("QEMU does not answer: %v", err)
		}
	}
}

var escapes = regexp.MustCompile(`\x1b\[[0-9;?]*[a-zA-Z]|\x1bc`)

func (m *machine) readConsole(r io.Reader) {
	s := bufio.NewScanner(r)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		l := line{time.Since(m.start), strings.TrimSpace(escapes.ReplaceAllString(s.Text(), ""))}
		m.mu.Lock()
		m.lines = append(m.lines, l)
		fmt.Fprintf(m.log, "%8.2f %s\n", l.at.Seconds(), l.text)
		m.mu.Unlock()
	}
	m.mu.Lock()
	m.ended = true
	m.mu.Unlock()
}

func (m *machine) readAnswers() {
	s := bufio.NewScanner(m.shell)
	s.Buffer(nil, 4<<20)
	for s.Scan() {
		f := strings.Fields(s.Text())
		if len(f) < 2 || !strings.HasPrefix(f[0], "R") {
			continue
		}
		code, err := strconv.Atoi(f[1])
		out := []byte{}
		if err == nil && len(f) > 2 {
			out, err = base64.StdEncoding.DecodeString(f[2])
		}
		if err == nil {
			m.mu.Lock()
			m.answers[f[0]] = answer{code, strings.TrimSpace(string(out))}
			m.mu.Unlock()
		}
	}
}

// qmp sends a command to QEMU's monitor; its answers are not read.
func (m *machine) qmp(name string, args map[string]string) {
	m.t.Helper()
	b, err := json.Marshal(map[string]any{"execute": name, "arguments": args})
	if args == nil {
		b, err = json.Marshal(map[string]any{"execute": name})
	}
	if err == nil {
		_, err = m.monitor.Write(append(b, '\n'))
	}
	if err != nil {
		m.t.Fatalf("QEMU's monitor: %v", err)
	}
}

// mark is the number of lines so far.
func (m *machine) mark() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.lines)
}

// since are the console's lines after a mark.
func (m *machine) since(mark int) []line {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]line(nil), m.lines[mark:]...)
}

// wait until do reports success.
func (m *machine) wait(what string, limit time.Duration, do func() bool) {
	m.t.Helper()
	for deadline := time.Now().Add(limit); !do(); time.Sleep(100 * time.Millisecond) {
		m.mu.Lock()
		ended := m.ended
		m.mu.Unlock()
		if ended || time.Now().After(deadline) {
			m.t.Fatalf("%s: not within %s (QEMU ended: %v). The end of the console:\n%s", what, limit, ended, m.tail(60))
		}
	}
}

func (m *machine) tail(n int) string {
	var b strings.Builder
	all := m.since(0)
	for _, l := range all[max(0, len(all)-n):] {
		fmt.Fprintf(&b, "%8.2f %s\n", l.at.Seconds(), l.text)
	}
	return b.String()
}

// waitLine waits for a line of the console after a mark.
func (m *machine) waitLine(words string, mark int, limit time.Duration) line {
	m.t.Helper()
	var found line
	m.wait(words, limit, func() bool {
		for _, l := range m.since(mark) {
			if strings.Contains(l.text, words) {
				found = l
				return true
			}
		}
		return false
	})
	return found
}

var errNoAnswer = errors.New("no answer")

// try runs a command in the machine.
func (m *machine) try(command string, limit time.Duration) (answer, error) {
	m.commands++
	id := "R" + strconv.Itoa(m.commands)
	if _, err := fmt.Fprintf(m.shell, "%s %s\n", id, base64.StdEncoding.EncodeToString([]byte(command))); err != nil {
		return answer{}, err
	}
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		m.mu.Lock()
		a, ok := m.answers[id]
		m.mu.Unlock()
		if ok {
			return a, nil
		}
	}
	return answer{}, errNoAnswer
}

// run runs a command that must succeed.
func (m *machine) run(command string) string {
	m.t.Helper()
	a, err := m.try(command, 15*time.Minute)
	if err != nil || a.code != 0 {
		m.t.Fatalf("%s: %v, code %d: %s\n%s", command, err, a.code, a.out, m.tail(40))
	}
	return a.out
}

// ready waits until the machine answers. What is sent while it boots may be lost, or before the
// state of a snapshot is loaded, so that it is asked again. An answer to any question counts,
// because a machine without CPU time answers late.
func (m *machine) ready(limit time.Duration) {
	m.t.Helper()
	first, asked := m.commands+1, time.Time{}
	m.wait("an answer of the machine", limit, func() bool {
		if time.Since(asked) > 15*time.Second {
			asked = time.Now()
			if _, err := m.try("true", 0); !errors.Is(err, errNoAnswer) {
				return false
			}
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		for id := range m.answers {
			if n, err := strconv.Atoi(strings.TrimPrefix(id, "R")); err == nil && n >= first {
				return true
			}
		}
		return false
	})
}

// snapshot keeps memory and disk of the machine in its disk file.
func (m *machine) snapshot(name string) {
	m.t.Helper()
	m.qmp("human-monitor-command", map[string]string{"command-line": "savevm " + name})
	m.ready(5 * time.Minute)
}

// cpu are the seconds of CPU that QEMU has used.
func (m *machine) cpu() float64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", m.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	user, _ := strconv.ParseFloat(string(f[11]), 64) // the kernel writes numbers
	system, _ := strconv.ParseFloat(string(f[12]), 64)
	return (user + system) / 100
}

func (m *machine) stop() {
	m.mu.Lock()
	ended := m.ended
	m.mu.Unlock()
	if !ended && m.monitor != nil {
		_, _ = m.monitor.Write([]byte(`{"execute":"quit"}` + "\n"))
	}
	done := make(chan struct{})
	go func() { _ = m.cmd.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		_ = m.cmd.Process.Kill()
		<-done
	}
	m.log.Close()
}
