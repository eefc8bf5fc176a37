package kernel

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// clockCode asks the kernel for the time, and adds to seconds what follows it, for
// CLOCK_REALTIME (0) alone.
var clockCode = []byte{
	0xb8, 0xe4, 0x00, 0x00, 0x00, // mov eax, SYS_clock_gettime
	0x0f, 0x05, // syscall
	0x85, 0xff, // test edi, edi
	0x75, 0x0a, // jne to the ret
	0x48, 0x8b, 0x0d, 0x04, 0x00, 0x00, 0x00, // mov rcx, [the 8 bytes after ret]
	0x48, 0x01, 0x0e, // add [rsi], rcx
	0xc3, // ret
}

// jump is the opcode of a near jump, which is 5 bytes long.
const (
	jump     = 0xe9
	jumpSize = 5
)

// ShiftClock sets the wall clock of a process: so much before or after the machine's, in whole
// seconds; 0 is right. A second call replaces what the first set.
func ShiftClock(pid int, by time.Duration) error {
	if err := shiftSeconds(pid, int64(by/time.Second)); err != nil {
		return fmt.Errorf("clock of process %d: %w", pid, err)
	}
	return nil
}

func shiftSeconds(pid int, seconds int64) error {
	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer mem.Close()
	base, image, err := vdso(pid, mem)
	if err != nil {
		return err
	}
	entry, err := clockGettime(image)
	if err != nil {
		return err
	}
	value := make([]byte, 8)
	binary.LittleEndian.PutUint64(value, uint64(seconds))
	if image[entry] == jump { // patched before: one aligned word is written at once
		to := entry + jumpSize + int64(int32(binary.LittleEndian.Uint32(image[entry+1:])))
		_, err = mem.WriteAt(value, base+to+int64(len(clockCode)))
		return err
	}
	at, err := findRoom(image)
	if err != nil {
		return err
	}
	if _, err := mem.WriteAt(append(bytes.Clone(clockCode), value...), base+at); err != nil {
		return err
	}
	patch := bytes.Clone(image[entry : entry+8])
	patch[0] = jump
	binary.LittleEndian.PutUint32(patch[1:], uint32(int32(at-entry-jumpSize)))
	return whileStopped(pid, base, int64(len(image)), func() error {
		_, err := mem.WriteAt(patch, base+entry)
		return err
	})
}

// vdso reads the code that the kernel maps into a process.
func vdso(pid int, mem *os.File) (base int64, image []byte, err error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return 0, nil, err
	}
	for line := range strings.Lines(string(maps)) {
		if !strings.HasSuffix(strings.TrimSpace(line), "[vdso]") {
			continue
		}
		var end int64
		if _, err := fmt.Sscanf(line, "%x-%x", &base, &end); err != nil {
			return 0, nil, err
		}
		image = make([]byte, end-base)
		_, err = mem.ReadAt(image, base)
		return base, image, err
	}
	return 0, nil, errors.New("it has no vDSO")
}

func clockGettime(image []byte) (int64, error) {
	f, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return 0, err
	}
	if f.Machine != elf.EM_X86_64 {
		return 0, fmt.Errorf("%w on %s", errors.ErrUnsupported, f.Machine)
	}
	symbols, err := f.DynamicSymbols()
	if err != nil {
		return 0, err
	}
	for _, s := range symbols {
		if s.Name == "__vdso_clock_gettime" {
			return int64(s.Value), nil
		}
	}
	return 0, errors.New("its vDSO has no clock_gettime")
}

// findRoom finds zeros at the end of the image, so that the value is aligned.
func findRoom(image []byte) (int64, error) {
	at := len(image) - 64
	if at < 0 || len(bytes.Trim(image[at:], "\x00")) > 0 {
		return 0, errors.New("no room in its vDSO")
	}
	return int64(at + (8-len(clockCode)%8)%8), nil
}

// whileStopped calls f while the process stands still, and none of its threads in a range.
func whileStopped(pid int, base, size int64, f func() error) error {
	for range 100 {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			return err
		}
		quiet, err := isOutside(pid, base, size)
		if err == nil && quiet {
			err = f()
		}
		if err := errors.Join(err, syscall.Kill(pid, syscall.SIGCONT)); err != nil || quiet {
			return err
		}
		time.Sleep(time.Millisecond)
	}
	return errors.New("it reads the clock all the time")
}

// isOutside waits until all threads are stopped, and reports whether none is in the range.
func isOutside(pid int, base, size int64) (bool, error) {
	for range 1000 {
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
		if err != nil {
			return false, err
		}
		stopped, quiet := true, true
		for _, t := range tasks {
			pc, ok := programCounter(t)
			stopped = stopped && ok
			quiet = quiet && (pc < base || pc >= base+size)
		}
		if stopped {
			return quiet, nil
		}
		time.Sleep(time.Millisecond)
	}
	return false, errors.New("it does not stop")
}

// programCounter is the program counter of a stopped thread; it is the last of what the kernel
// says of its system call.
func programCounter(task string) (int64, bool) {
	status, err := os.ReadFile(filepath.Join(task, "stat"))
	if err != nil {
		return 0, true // it has ended
	}
	if i := bytes.LastIndexByte(status, ')'); i < 0 || !bytes.HasPrefix(status[i:], []byte(") T")) {
		return 0, false
	}
	call, err := os.ReadFile(filepath.Join(task, "syscall"))
	if err != nil {
		return 0, false
	}
	fields := strings.Fields(string(call))
	if len(fields) == 0 {
		return 0, false
	}
	pc, err := strconv.ParseInt(strings.TrimPrefix(fields[len(fields)-1], "0x"), 16, 64)
	return pc, err == nil
}
