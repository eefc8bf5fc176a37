package bootimagecheck

import (
	"bytes"
	"debug/pe"
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

// ReadBootloader the machine below root.
func ReadBootloader(root string) Bootloader {
	if l, ok := recorded(root); ok {
		return l
	}
	return installed(root)
}

// maxLoader record that is read.
const maxLoader = 8 << 20

// component as bootupd writes it.
type component struct {
	Meta struct {
		Timestamp time.Time `json:"timestamp"`
		Version   string    `json:"version"`
	} `json:"meta"`
}

// recorded by bootupd: of the firmware that the machine has, else of the other.
func recorded(root string) (Bootloader, bool) {
	data, err := readAll(filepath.Join(root, "boot/bootupd-state.json"))
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

// named is a package with its version: shim-x64-15.6-2.x86_64,
// grub2-efi-x64-1:2.06-29.fc36.x86_64.
var named = regexp.MustCompile(`^(shim|grub2?)[a-z0-9_-]*?-(?:\d{1,3}:)?(\d{1,4}(?:\.\d{1,4}){1,3})(?:[-~^].*)?$`)

func fromPackages(text string) Bootloader {
	var l Bootloader
	for p := range strings.SplitSeq(text, ",") {
		m := named.FindStringSubmatch(strings.TrimSpace(p))
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

// installed on the EFI system partition. The vendor's directory counts before the
// one for removable media.
func installed(root string) Bootloader {
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
					*program.to = sbat(f, program.name)
				}
			}
		}
	}
	return l
}

func isFallback(dir string) bool { return strings.EqualFold(filepath.Base(dir), "BOOT") }

// longestSBAT section that is read.
const longestSBAT = 64 << 10

// sbat returns the version of a part in a program's SBAT section: lines of
// part, generation, vendor, package, version, address.
func sbat(path, part string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	p, err := pe.NewFile(f)
	if err != nil {
		return ""
	}
	s := p.Section(".sbat")
	if s == nil || s.Size > longestSBAT {
		return ""
	}
	data, err := s.Data()
	if err != nil {
		return ""
	}
	lines := csv.NewReader(bytes.NewReader(bytes.TrimRight(data, "\x00")))
	lines.FieldsPerRecord, lines.LazyQuotes = -1, true
	for {
		fields, err := lines.Read()
		if err != nil {
			return ""
		}
		if len(fields) >= 5 && fields[0] == part {
			return version.FindString(fields[4])
		}
	}
}

// version at the beginning of a text.
var version = regexp.MustCompile(`^\d{1,4}(\.\d{1,4}){1,3}`)

func readAll(path string) ([]byte, error) {
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
