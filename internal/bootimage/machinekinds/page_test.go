package machinekinds_test

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/bootimage/machinekinds"
)

var update = flag.Bool("update", false, "write docs/reference/machine-kinds.md")

// The reference page is the table.
func TestPage(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("# Machine kinds\n\nWhere each kind has its boot image, and the effect of a change. Made from `internal/bootimage/machinekinds/table.yaml`\n" +
		"by `go test ./internal/bootimage/machinekinds -update`. The last column names the source of a row. Rows with \"published\" are tested against\n" +
		"the provider's own schema. The others are tested with a realistic object whose unknown fields must survive.\n\n" +
		"Further rows: `spec.kinds` of a BootImagePolicy, as `{managers: [...], images: [...]}` in the format of that file. A row of a kind\n" +
		"that refit knows replaces refit's own. Paths: `a.b`, `a[field=value].b`, `a[only].b` (a list of one), `a[\"key/with.dots\"]`.\n\n" +
		"## Who creates machines\n\n| kind | image | version | a change is for | unless | left alone | written from |\n| --- | --- | --- | --- | --- | --- | --- |\n")
	for _, m := range machinekinds.BuiltIn().Managers {
		where := "in itself"
		if len(m.Template) > 0 {
			where = "referred to at " + codes(m.Template)
		} else if m.Embedded != "" {
			where = "within `" + m.Embedded + "`"
		}
		b.WriteString("| " + m.Kind + "." + m.Group + " | " + where + " | " + code(m.Version) + " | " + m.Effect + " | " + effects(m.Effects) + " | " + exclusions(m.Exclude) + " | " + m.Schema + " |\n")
	}
	b.WriteString("\n`Replaces`: running machines are replaced, so refit writes only in mode Roll, or with the next version (Piggyback). `Drifts`: the same,\nunless every NodePool blocks drift. `NewMachines`: running machines stay. While machines\nof an object are being replaced, refit does not write it (BootImageUpdateRunning): `upToDate` and `rollingOut` of a row are the paths that show it.\n\n" +
		"## Where the image is\n\n| kind | platform | what is written, from which attribute of the stream's image | region | changed or cloned | left alone | written from |\n| --- | --- | --- | --- | --- | --- | --- |\n")
	for _, k := range machinekinds.BuiltIn().Images {
		how := "changed"
		if k.Immutable {
			how = "cloned"
		}
		name := k.Kind
		if k.Group != "" {
			name += "." + k.Group
		}
		b.WriteString("| " + name + " | " + k.Platform + " | " + forms(k.Forms) + " | " + region(k) + " | " + how + " | " + exclusions(k.Exclude) + " | " + k.Schema + " |\n")
	}
	const page = "../../../docs/reference/machine-kinds.md"
	if *update {
		if err := os.WriteFile(page, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if err != nil || string(got) != b.String() {
		t.Errorf("%s is not the table (%v): run go test ./internal/bootimage/machinekinds -update", page, err)
	}
}

// region returns the place of the region of an image.
func region(k machinekinds.ImageKind) string {
	if k.RegionOfNodes {
		return "that of the nodes"
	}
	out := code(k.Region)
	for _, r := range k.RegionOf {
		out += ", " + code(r.Path) + " of the Cluster's " + r.Kind
	}
	return strings.TrimPrefix(out, ", ")
}

func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + s + "`"
}

func codes(in []string) string {
	var out []string
	for _, s := range in {
		out = append(out, code(s))
	}
	return strings.Join(out, " or ")
}

func effects(in []machinekinds.Effect) string {
	var out []string
	for _, e := range in {
		out = append(out, "`"+e.Path+"` is "+e.Value+": "+e.Effect)
	}
	return strings.Join(out, "; ")
}

func exclusions(in []machinekinds.Exclusion) string {
	var out []string
	for _, e := range in {
		out = append(out, e.Why)
	}
	out = slices.Compact(out)
	return strings.Join(out, "; ")
}

func forms(in []machinekinds.Form) string {
	var out []string
	for _, f := range in {
		var set []string
		for _, s := range f.Set {
			if s.From != "" {
				set = append(set, "`"+s.Path+"` from "+s.From)
			}
		}
		text := strings.Join(set, ", ")
		if f.When != "" {
			text = "with `" + f.When + "`: " + text
		}
		out = append(out, text)
	}
	return strings.Join(out, ". Else ")
}
