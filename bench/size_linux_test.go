package bench

import (
	"cmp"
	"debug/buildinfo"
	"debug/elf"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// programSize says what a program is made of.
type programSize struct {
	// FileBytes is the size of the released program, without symbols.
	FileBytes int64 `json:"fileBytes"`
	// Packages are those of refit and of Go, and the modules of others, with the bytes of
	// their code and data. What the linker makes of all (types, tables) is in no package.
	Packages []packageSize `json:"packages"`
}

type packageSize struct {
	Name  string `json:"name"`
	Bytes uint64 `json:"bytes"`
}

// smallest is what is listed by name, in bytes.
const smallest = 100_000

// maxBytes of the released programs: they travel on sticks and over slow lines.
var maxBytes = map[string]int64{"refit": 45_000_000, "refit-agent": 25_000_000}

// The released programs stay small enough. A larger one has a new dependency (TestSize names
// what grew), or was not built as the Makefile does.
func TestReleasedSize(t *testing.T) {
	t.Parallel()
	for name, most := range maxBytes {
		st, err := os.Stat("../bin/" + name)
		if err != nil {
			t.Skipf("run make build first: %v", err)
		}
		if st.Size() > most {
			t.Errorf("bin/%s has %d bytes, the limit is %d", name, st.Size(), most)
		}
	}
}

// TestSize lists what the programs are made of, so that a change of the file shows what grew.
func TestSize(t *testing.T) {
	resultsDir(t) // skips where nothing is measured
	out := map[string]programSize{}
	for _, name := range []string{"refit", "refit-render", "refit-agent", "refit-controller"} {
		out[name] = sizeOf(t, name)
	}
	writeResult(t, "size.json", out)
}

func sizeOf(t *testing.T, name string) programSize {
	t.Helper()
	released, err := os.Stat("../bin/" + name)
	if err != nil {
		t.Fatalf("run make build first: %v", err)
	}
	info, err := buildinfo.ReadFile("../bin/" + name)
	if err != nil {
		t.Fatal(err)
	}
	tags := ""
	for _, s := range info.Settings {
		if s.Key == "-tags" {
			tags = s.Value
		}
	}
	program := filepath.Join(t.TempDir(), name)
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-tags", tags, "-o", program, "../cmd/"+name)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v: %s", err, text)
	}
	f, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	modules := []string{}
	for _, m := range info.Deps {
		modules = append(modules, m.Path)
	}
	sizes := map[string]uint64{}
	for _, s := range symbols {
		if int(s.Section) < len(f.Sections) && f.Sections[s.Section].Type != elf.SHT_NOBITS { // such a section takes no room in the file
			sizes[ownerOf(s.Name, modules)] += s.Size
		}
	}
	p := programSize{FileBytes: released.Size()}
	for _, name := range slices.Sorted(maps.Keys(sizes)) {
		if sizes[name] >= smallest {
			p.Packages = append(p.Packages, packageSize{name, sizes[name]})
		}
	}
	slices.SortStableFunc(p.Packages, func(a, b packageSize) int { return cmp.Compare(b.Bytes, a.Bytes) })
	return p
}

// ownerOf is the package of a symbol, or the module that has it.
func ownerOf(symbol string, modules []string) string {
	symbol, _, _ = strings.Cut(symbol, "[") // type arguments
	if before, after, ok := strings.Cut(symbol, ":"); ok && !strings.Contains(before, ".") {
		if before != "type" {
			return before + ":"
		}
		return "type:" + packageOf(strings.TrimLeft(after, ".*[]"), modules)
	}
	return packageOf(symbol, modules)
}

func packageOf(symbol string, modules []string) string {
	symbol = strings.ReplaceAll(symbol, "%2e", ".") // the linker's form of a dot in the last element of a path
	owner := ""
	for _, m := range modules {
		if strings.HasPrefix(symbol, m) && len(m) > len(owner) {
			owner = m
		}
	}
	if owner != "" {
		return owner
	}
	dir, last := "", symbol
	if i := strings.LastIndex(symbol, "/"); i >= 0 {
		dir, last = symbol[:i+1], symbol[i+1:]
	}
	last, _, _ = strings.Cut(last, ".")
	return dir + last
}
