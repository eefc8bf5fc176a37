package bootimagecheck

import (
	"bytes"
	"encoding/binary"
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"time"
)

// Bootloader of a machine.
type Bootloader struct {
	// Shim and Grub are versions, empty if not known.
	Shim, Grub string
	// Built is when the recorded part was made, zero if not known.
	Built time.Time
}

// ReadBootloader reads the boot loader of the machine below root.
func ReadBootloader(root string) Bootloader {
	if l, ok := readBootupd(root); ok {
		return l
	}
	return readESP(root)
}

// maxLoader is the largest record that is read, in bytes.
const maxLoader = 8 << 20

// component is an entry of bootupd's state.
type component struct {
	Meta struct {
		Timestamp time.Time `json:"timestamp"`
		Version   string    `json:"version"`
	} `json:"meta"`
}

// readBootupd reads bootupd's record: of the machine's firmware, else of the other.
func readBootupd(root string) (Bootloader, bool) {
	data, err := readLimited(filepath.Join(root, "boot/bootupd-state.json"))
	if err != nil {
		return Bootloader{}, false
	}
	var state struct {
		Installed map[string]component `json:"installed"`
	}
	if json.Unmarshal(data, &state) != nil {
		return Bootloader{}, false
	}
	order := []string{"BIOS", "EFI"}
	if _, err := os.Stat(filepath.Join(root, "sys/firmware/efi")); err == nil {
		order = []string{"EFI", "BIOS"}
	}
	for _, name := range order {
		c, ok := state.Installed[name]
		if l := fromPackages(c.Meta.Version); ok && (l.Shim != "" || l.Grub != "") {
			l.Built = c.Meta.Timestamp.UTC()
			return l, true
		}
	}
	return Bootloader{}, false
}

// packageVersion matches a package with its version: shim-x64-15.6-2.x86_64,
// grub2-efi-x64-1:2.06-29.fc36.x86_64.
var packageVersion = regexp.MustCompile(`^(shim|grub2?)[a-z0-9_-]*?-(?:\d{1,3}:)?(\d{1,4}(?:\.\d{1,4}){1,3})(?:[-~^].*)?$`)

func fromPackages(text string) Bootloader {
	var l Bootloader
	for p := range strings.SplitSeq(text, ",") {
		m := packageVersion.FindStringSubmatch(strings.TrimSpace(p))
		switch {
		case m == nil:
		case m[1] == "shim":
			l.Shim = m[2]
		default:
			l.Grub = m[2]
		}
	}
	return l
}

// readESP reads the EFI system partition. The vendor's directory comes before the one for
// removable media.
func readESP(root string) Bootloader {
	var l Bootloader
	dirs, _ := filepath.Glob(filepath.Join(root, "boot/efi/EFI/*"))
	sort.Slice(dirs, func(i, j int) bool {
		a, b := isFallback(dirs[i]), isFallback(dirs[j])
		return a != b && b || a == b && dirs[i] < dirs[j]
	})
	for _, d := range dirs {
		for _, program := range []struct {
			glob, name string
			to         *string
		}{{"shim*.efi", "shim", &l.Shim}, {"grub*.efi", "grub", &l.Grub}} {
			files, _ := filepath.Glob(filepath.Join(d, program.glob))
			for _, f := range files {
				if *program.to == "" {
					*program.to = readSBATVersion(f, program.name)
				}
			}
		}
	}
	return l
}

func isFallback(dir string) bool { return strings.EqualFold(filepath.Base(dir), "BOOT") }

// sectionHeader is an entry of a PE program's section table (Microsoft's PE format, "Section Table").
type sectionHeader struct {
	Name                               [8]byte
	VirtualSize, Address, Size, Offset uint32
	_                                  [16]byte
}

// readSection returns the data of a PE program's section, nil if there is none. Standard debug/pe
// brings debug/dwarf, which would make the agent larger.
func readSection(f io.ReaderAt, name string) []byte {
	var dos struct {
		_      [0x3c]byte
		Header uint32 // where the PE header begins
	}
	var coff struct {
		Signature         [4]byte
		_, Sections       uint16
		_                 [12]byte
		OptionalHeader, _ uint16
	}
	const coffSize = 24
	if binary.Read(io.NewSectionReader(f, 0, 0x40), binary.LittleEndian, &dos) != nil ||
		binary.Read(io.NewSectionReader(f, int64(dos.Header), coffSize), binary.LittleEndian, &coff) != nil ||
		string(coff.Signature[:]) != "PE\x00\x00" {
		return nil
	}
	table := make([]sectionHeader, min(coff.Sections, maxSections))
	at := int64(dos.Header) + coffSize + int64(coff.OptionalHeader)
	if binary.Read(io.NewSectionReader(f, at, int64(binary.Size(table))), binary.LittleEndian, table) != nil {
		return nil
	}
	for _, s := range table {
		if string(bytes.TrimRight(s.Name[:], "\x00")) != name || s.Size > maxSBAT {
			continue
		}
		data := make([]byte, s.Size)
		if _, err := f.ReadAt(data, int64(s.Offset)); err != nil && !errors.Is(err, io.EOF) {
			return nil
		}
		return data
	}
	return nil
}

// maxSections is how many sections the Windows loader takes.
const maxSections = 96

// maxSBAT is the largest SBAT section that is read, in bytes.
const maxSBAT = 64 << 10

// readSBATVersion returns the version of a part in a program's SBAT section: lines of
// part, generation, vendor, package, version, address.
func readSBATVersion(path, part string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	data := readSection(f, ".sbat")
	lines := csv.NewReader(bytes.NewReader(bytes.TrimRight(data, "\x00")))
	lines.FieldsPerRecord, lines.LazyQuotes = -1, true
	for {
		fields, err := lines.Read()
		if err != nil {
			return ""
		}
		if len(fields) >= 5 && fields[0] == part {
			return versionPrefix.FindString(fields[4])
		}
	}
}

// versionPrefix matches a version at the beginning of a text.
var versionPrefix = regexp.MustCompile(`^\d{1,4}(\.\d{1,4}){1,3}`)

func readLimited(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxLoader+1))
	if err == nil && len(data) > maxLoader {
		err = errors.New("too large")
	}
	return data, err
}
