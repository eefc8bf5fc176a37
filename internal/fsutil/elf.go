package fsutil

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"
)

// Program is what the header of an ELF file states.
type Program struct {
	// Architecture is Go's name for it, "" for one that is not in the table.
	Architecture string
	// Static: the program needs no interpreter, which would load shared libraries.
	Static bool
}

// ErrNoProgram is the error for a file that is no ELF program, or that ends in its headers.
var ErrNoProgram = errors.New("no ELF program")

var architectures = map[elf.Machine]string{
	elf.EM_X86_64: "amd64", elf.EM_AARCH64: "arm64", elf.EM_ARM: "arm", elf.EM_PPC64: "ppc64le",
	elf.EM_S390: "s390x", elf.EM_RISCV: "riscv64", elf.EM_386: "386", elf.EM_LOONGARCH: "loong64",
}

// ELFHeaderSize is the most that a header has, without the program headers.
const ELFHeaderSize = 64

// ReadProgram reads the header of an ELF file and its program headers. It reads nothing else:
// debug/elf also reads sections, and costs a program 150 kB for that. Of a file that ends in its
// headers it returns the architecture with [ErrNoProgram].
func ReadProgram(r io.ReaderAt) (Program, error) {
	var head [ELFHeaderSize]byte
	n, err := r.ReadAt(head[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return Program{}, err
	}
	if n < 20 || string(head[:len(elf.ELFMAG)]) != elf.ELFMAG {
		return Program{}, ErrNoProgram
	}
	var order binary.ByteOrder = binary.LittleEndian
	if elf.Data(head[elf.EI_DATA]) == elf.ELFDATA2MSB {
		order = binary.BigEndian
	}
	p := Program{Architecture: architectures[elf.Machine(order.Uint16(head[18:]))]}
	if n < len(head) {
		return p, ErrNoProgram
	}
	// Where the program headers begin, the size of one, and their number.
	at, size, count := int64(order.Uint32(head[28:])), int64(order.Uint16(head[42:])), order.Uint16(head[44:])
	if elf.Class(head[elf.EI_CLASS]) == elf.ELFCLASS64 {
		at, size, count = int64(order.Uint64(head[32:])), int64(order.Uint16(head[54:])), order.Uint16(head[56:])
	}
	for i := range int64(count) {
		var kind [4]byte
		if _, err := r.ReadAt(kind[:], at+i*size); err != nil {
			return p, ErrNoProgram
		}
		if elf.ProgType(order.Uint32(kind[:])) == elf.PT_INTERP {
			return p, nil
		}
	}
	p.Static = true
	return p, nil
}
