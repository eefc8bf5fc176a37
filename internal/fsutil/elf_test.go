package fsutil

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"os/exec"
	"runtime"
	"testing"
)

// The test's own program is static, the shell of the machine is not; debug/elf agrees.
func TestReadProgram(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	paths := []string{self}
	if sh, err := exec.LookPath("sh"); err == nil {
		paths = append(paths, sh)
	}
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		want, err := elf.NewFile(f)
		if err != nil {
			t.Skipf("%s: %v", path, err)
		}
		static := true
		for _, p := range want.Progs {
			static = static && p.Type != elf.PT_INTERP
		}
		if got, err := ReadProgram(f); err != nil || got != (Program{Architecture: runtime.GOARCH, Static: static}) {
			t.Errorf("%s: %+v, %v; debug/elf says static %t", path, got, err, static)
		}
	}
}

// header32 is the header of a big-endian 32-bit program with one program header.
func header32(machine elf.Machine, kind elf.ProgType) []byte {
	var b bytes.Buffer
	h := elf.Header32{Machine: uint16(machine), Phoff: 52, Phentsize: 32, Phnum: 1}
	copy(h.Ident[:], elf.ELFMAG)
	h.Ident[elf.EI_CLASS], h.Ident[elf.EI_DATA] = byte(elf.ELFCLASS32), byte(elf.ELFDATA2MSB)
	_ = binary.Write(&b, binary.BigEndian, h)
	_ = binary.Write(&b, binary.BigEndian, elf.Prog32{Type: uint32(kind)})
	return b.Bytes()
}

func TestReadProgramOfOtherMachines(t *testing.T) {
	t.Parallel()
	loads := header32(elf.EM_S390, elf.PT_LOAD)
	for name, c := range map[string]struct {
		file []byte
		want Program
		err  error
	}{
		"static":              {loads, Program{Architecture: "s390x", Static: true}, nil},
		"with an interpreter": {header32(elf.EM_ARM, elf.PT_INTERP), Program{Architecture: "arm"}, nil},
		"unknown machine":     {header32(elf.EM_68K, elf.PT_LOAD), Program{Static: true}, nil},
		"a script":            {[]byte("#!/bin/sh\nexec true # longer than a header would be, which is 64 bytes\n"), Program{}, ErrNoProgram},
		"nothing":             {nil, Program{}, ErrNoProgram},
		"ends in the header":  {loads[:40], Program{Architecture: "s390x"}, ErrNoProgram},
		"ends before headers": {append(bytes.Clone(loads[:28]), append([]byte{0x7f, 0, 0, 0}, loads[32:]...)...), Program{Architecture: "s390x"}, ErrNoProgram},
	} {
		if got, err := ReadProgram(bytes.NewReader(c.file)); got != c.want || err != c.err { //nolint:errorlint // exactly this one
			t.Errorf("%s: %+v, %v, want %+v, %v", name, got, err, c.want, c.err)
		}
	}
}
