package bootimage

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/refit-dev/refit/test/results"
)

var update = flag.Bool("update", false, "write golden files")

// Each decision with its whole message and fix.
func TestDecisionMessages(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	wrote := func(ago ...time.Duration) (out []Past) {
		for _, a := range ago {
			out = append(out, Past{At: now.Add(-a), To: "new"})
		}
		return out
	}
	const h, s = time.Hour, time.Second
	var got []string
	for _, c := range []struct {
		name   string
		change func(*Input)
	}{
		{"written", func(*Input) {}},
		{"written, no OS", func(i *Input) { i.Current.OS, i.Wanted.OS = "", "" }},
		{"same", func(i *Input) { i.Same = true }},
		{"deleting", func(i *Input) { i.Deleting = true }},
		{"excluded", func(i *Input) { i.Excluded = "Windows" }},
		{"not wanted", func(i *Input) { i.WantedErr = "no region" }},
		{"newer OS", func(i *Input) { i.Current.OS = "9.8.20260101-0" }},
		{"newer release", func(i *Input) { i.Current.OS, i.Current.Release = "", "4.20.0" }},
		{"newer release, wanted without OS", func(i *Input) { i.Wanted.OS, i.Current.Release = "", "4.20.0" }},
		{"newer release, same OS", func(i *Input) { i.Current.OS, i.Current.Release = i.Wanted.OS, "4.20.0" }},
		{"newer release, OS of another scheme", func(i *Input) { i.Current.OS, i.Current.Release = "3815.2.0", "4.20.0" }},
		{"the same OS and release", func(i *Input) { i.Current.OS, i.Current.Release = i.Wanted.OS, i.Wanted.Release }},
		{"custom", func(i *Input) { i.Recognised = false }},
		{"custom, not named", func(i *Input) { i.Recognised, i.Current = false, Image{} }},
		{"not uploaded", func(i *Input) { i.NotUploaded = true }},
		{"too fresh", func(i *Input) { i.MinimumAge = MinimumAge{Rule: "soak", Age: 30 * 24 * h, Built: now.Add(-24 * h)} }},
		{"too fresh, only observed", func(i *Input) {
			i.Mode, i.MinimumAge = Observe, MinimumAge{Rule: "soak", Age: 30 * 24 * h, Built: now.Add(-24 * h)}
		}},
		{"too fresh, age not known", func(i *Input) { i.MinimumAge = MinimumAge{Rule: "soak", Age: 30 * 24 * h} }},
		{"an update runs", func(i *Input) { i.Running = "ClusterUpdate/to-1.36" }},
		{"refused", func(i *Input) { i.Refused = "it does not start" }},
		{"refused, in use", func(i *Input) { i.Refused, i.Same = "it does not start", true }},
		{"refused, and a version is wanted", func(i *Input) {
			i.Mode, i.Refused, i.Same, i.WantedVersion = Piggyback, "it does not start", true, "v1.36.3"
		}},
		{"rolled back", func(i *Input) { i.Rollback, i.Current.OS = &Rollback{By: "ann", Rejected: i.Current}, "9.8.20260101-0" }},
		{"rolled back, done", func(i *Input) { i.Rollback, i.Same = &Rollback{By: "ann", Rejected: Image{Text: "newer"}}, true }},
		{"rolled back, too old", func(i *Input) {
			i.Rollback, i.RollbackBlocked = &Rollback{By: "ann", Reason: "no disks", Rejected: i.Current}, "its image is of OS 8"
		}},
		{"rolled back, only observed", func(i *Input) { i.Mode, i.Rollback = Observe, &Rollback{By: "ann", Rejected: i.Current} }},
		{"rolled back, replaces", func(i *Input) { i.Effect, i.Rollback = "Replaces", &Rollback{By: "ann", Rejected: i.Current} }},
		{"owned", func(i *Input) { i.Owner = "argocd" }},
		{"propose", func(i *Input) { i.Mode = Propose }},
		{"observe", func(i *Input) { i.Mode = Observe }},
		{"contested", func(i *Input) { i.Past, i.UndoneBy = wrote(h/2, h/3), "script" }},
		{"contested, not named", func(i *Input) { i.Past = wrote(h/2, h/3) }},
		{"contested, at the end of the window", func(i *Input) { i.Past = wrote(6*h, h/3) }},
		{"not contested, after the window", func(i *Input) { i.Past = wrote(6*h+s, h/3) }},
		{"contested, before the quiet time ends", func(i *Input) { i.Past = wrote(2*h, h-s) }},
		{"not contested, after the quiet time", func(i *Input) { i.Past = wrote(2*h, h) }},
		{"user data", func(i *Input) { i.UserData = "Secret x is no Ignition" }},
		{"user data that a template makes", func(i *Input) { i.MadeIgnition, i.MadeBy = "2.3", "AWSMachineTemplate w (spec.ignition.version)" }},
		{"replaces", func(i *Input) { i.Effect = "Replaces" }},
		{"drifts", func(i *Input) { i.Effect = drifts }},
		{"window", func(i *Input) { i.Mode, i.WindowOpen = Roll, false }},
		{"rolls", func(i *Input) { i.Mode, i.Effect = Roll, "Replaces" }},
		{"piggyback, harmless", func(i *Input) { i.Mode = Piggyback }},
		{"piggyback, no version", func(i *Input) { i.Mode, i.Effect, i.Version = Piggyback, "Replaces", "" }},
		{"piggyback, staged", func(i *Input) { i.Mode, i.Effect = Piggyback, "Replaces" }},
		{"piggyback, staged at the version", func(i *Input) { i.Mode, i.Effect, i.WantedVersion = Piggyback, "Replaces", "v1.35.4" }},
		{"piggyback, version", func(i *Input) { i.Mode, i.Effect, i.WantedVersion = Piggyback, "Replaces", "v1.36.3" }},
		{"piggyback, version, same image", func(i *Input) { i.Mode, i.Same, i.WantedVersion = Piggyback, true, "v1.36.3" }},
		{"piggyback, the version and the image are there", func(i *Input) { i.Mode, i.Same, i.WantedVersion = Piggyback, true, "v1.35.4" }},
		{"piggyback, skew", func(i *Input) { i.Mode, i.WantedVersion = Piggyback, "v1.38.0" }},
		{"piggyback, skew, same image", func(i *Input) { i.Mode, i.Same, i.WantedVersion = Piggyback, true, "v1.34.0" }},
		{"piggyback, blocked", func(i *Input) { i.Mode, i.WantedVersion, i.TargetBlocked = Piggyback, "v1.36.3", "pool b is too old" }},
		{"piggyback, blocked at the version", func(i *Input) { i.Mode, i.WantedVersion, i.TargetBlocked = Piggyback, "v1.35.4", "pool b is too old" }},
		{"piggyback, blocked, same image", func(i *Input) {
			i.Mode, i.Same, i.WantedVersion, i.TargetBlocked = Piggyback, true, "v1.36.3", "pool b is too old"
		}},
		{"piggyback, skew, owned", func(i *Input) { i.Mode, i.WantedVersion, i.Owner = Piggyback, "v1.38.0", "argocd" }},
		{"piggyback, version, same image, owned", func(i *Input) { i.Mode, i.Same, i.WantedVersion, i.Owner = Piggyback, true, "v1.36.3", "argocd" }},
		{"another mode does not write the version", func(i *Input) { i.Same, i.WantedVersion = true, "v1.36.3" }},
		{"another mode does not check the version", func(i *Input) { i.WantedVersion, i.TargetBlocked = "v1.38.0", "pool b is too old" }},
	} {
		in := Input{Now: now, Mode: NewMachinesOnly, Effect: newMachines, Recognised: true, WindowOpen: true, Version: "v1.35.4",
			Current: Image{Text: "old", OS: "9.4.20250101-0", Release: "4.18.0"}, Wanted: Image{Text: "new", OS: "9.6.20251023-0", Release: "4.19.0"},
			Contest: Contest{Writes: 2, Window: 6 * h, Quiet: h}}
		c.change(&in)
		d := Decide(in)
		got = append(got, fmt.Sprintf("%s: %s %s %s %q", c.name, d.Action, d.State, d.Reason, d.Version), "- "+d.Message)
		if d.Fix != "" {
			got = append(got, "- fix: "+d.Fix)
		}
	}
	results.CompareGolden(t, "testdata/decision-messages.golden", got, *update)
}

// The authority is written in each mode that writes, and in no other.
func TestAuthorityByMode(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]string{NewMachinesOnly: Write, Piggyback: Write, Roll: Write, Observe: Suggest, Propose: Suggest, "": Suggest} {
		if d := DecideAuthority(Authority{Mode: mode, Contest: Contest{Writes: 1}}); d.Action != want {
			t.Errorf("mode %s: %s, want %s", mode, d.Action, want)
		}
	}
}

// A clone's name has at most fifty characters of the template's, and a clone
// that has no name or no text is refused.
func TestCloneName(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 49)
	for name, base := range map[string]string{
		"w": "w", long: long, long + "b": long + "b", long + "bc": long + "b", long + "-c": long, long + ".c": long, long[:48] + "-.c": long[:48], long[:47] + "-.-": long[:47] + "-.-",
	} {
		c, err := Clone(map[string]any{"metadata": map[string]any{"name": name}, "spec": "s"}, "source")
		if err != nil {
			t.Fatal(err)
		}
		got := c["metadata"].(map[string]any)["name"].(string)
		hash, ok := strings.CutPrefix(got, base+"-")
		if !ok || len(hash) != 10 || strings.Trim(hash, "0123456789abcdef") != "" {
			t.Errorf("%s: %s", name, got)
		}
		if from, _ := MetadataValue(c, "annotations", annotationCloned); from != name {
			t.Errorf("%s is cloned from %s", name, from)
		}
	}
	for why, o := range map[string]map[string]any{
		"the template has no name": {"metadata": map[string]any{}, "spec": "s"},
		"json: unsupported type":   {"metadata": map[string]any{"name": "w"}, "spec": func() {}},
	} {
		if c, err := Clone(o, "source"); err == nil || c != nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%v, %v, want %s", c, err, why)
		}
	}
}

// What is uploaded is declared with each name that the policy leaves open, in
// order, and the resource controller only fetches what it can.
func TestUploadNames(t *testing.T) {
	t.Parallel()
	u := Upload{Platform: "openstack", Stream: "s", File: "f.qcow2", Version: "9.6", SHA256: "abc", Location: "https://e.test/f.qcow2",
		Names: map[string]string{"imageRef": "", "name": "", "template": "", "id": "", "zone": "", "area": "", "kept": "x"}}
	const declared = "refit bootimage uploaded 's' 'abc' --set 'area=AREA' --set 'id=ID' --set 'imageRef=refit-9.6' --set 'name=refit-9.6' --set 'template=refit-9.6' --set 'zone=ZONE'"
	if got := u.declareStep(); got != declared {
		t.Error(got)
	}
	for name, c := range map[string]struct {
		change func(*Upload)
		want   bool
	}{
		"an address and an imageRef": {func(*Upload) {}, true},
		"no address":                 {func(u *Upload) { u.Location = "" }, false},
		"no imageRef":                {func(u *Upload) { u.Names = map[string]string{"name": "x"} }, false},
		"another platform":           {func(u *Upload) { u.Platform = "vsphere" }, false},
	} {
		x := u
		c.change(&x)
		if got := x.usesORC(); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// Who owns a field: by the field itself, by all above it, not by its siblings.
func TestWithin(t *testing.T) {
	t.Parallel()
	path := []string{"spec", "template", "name"}
	for fields, want := range map[string]bool{
		`{}`:                           false,
		`{"f:spec":{}}`:                true,
		`{"f:spec":{"f:template":{}}}`: true,
		`{"f:spec":{"f:template":{"f:name":{}}}}`:         true,
		`{"f:spec":{"f:template":{"f:name":{"f:x":{}}}}}`: true,
		`{"f:spec":{"f:template":{"f:other":{}}}}`:        false,
		`{"f:spec":{"f:replicas":{}}}`:                    false,
		`{"f:spec":{"f:template":{"f:name":"x"}}}`:        false,
		`{"spec":{}}`: false,
		`{"f:spec":{"f:replicas":{}},"f:template":{}}`: false,
	} {
		w := Writer{Name: "w", Applies: true, Fields: []byte(fields)}
		if got := ownsAny(w, [][]string{{"metadata"}, path}); got != want {
			t.Errorf("%s: %t", fields, got)
		}
	}
	if containsPath(map[string]any{"f:spec": map[string]any{"f:x": map[string]any{}}}, nil) {
		t.Error("no path is owned")
	}
}

// The last writer is the latest that owns the field and is another.
func TestLastWriter(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	mine, other := []byte(`{"f:spec":{}}`), []byte(`{"f:status":{}}`)
	w := func(name string, minute int, fields []byte) Writer {
		return Writer{Name: name, At: at.Add(time.Duration(minute) * time.Minute), Fields: fields}
	}
	for name, c := range map[string]struct {
		writers []Writer
		want    string
		minute  int
	}{
		"the later comes first":    {[]Writer{w("late", 9, mine), w("early", 1, mine)}, "late", 9},
		"the later comes last":     {[]Writer{w("early", 1, mine), w("late", 9, mine)}, "late", 9},
		"at once: the last":        {[]Writer{w("a", 1, mine), w("b", 1, mine)}, "b", 1},
		"another field":            {[]Writer{w("early", 1, mine), w("late", 9, other)}, "early", 1},
		"refit is passed over":     {[]Writer{w("early", 1, mine), w("refit", 9, mine)}, "early", 1},
		"fields that are not JSON": {[]Writer{w("early", 1, mine), w("late", 9, []byte("{"))}, "early", 1},
	} {
		got, when := LastForeignWriter(c.writers, [][]string{{"spec", "image"}}, func(n string) bool { return n == "refit" })
		if got != c.want || !when.Equal(at.Add(time.Duration(c.minute)*time.Minute)) {
			t.Errorf("%s: %s at %s", name, got, when)
		}
	}
	if got, when := LastForeignWriter(nil, nil, nil); got != "" || !when.IsZero() {
		t.Errorf("no writer: %s at %s", got, when)
	}
}
