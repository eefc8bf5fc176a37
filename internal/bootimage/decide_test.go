package bootimage_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/refit-dev/refit/internal/bootimage"
)

var now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// pool is a source whose old stock image is to be refreshed.
func pool(change func(*bootimage.Input)) bootimage.Input {
	in := bootimage.Input{Now: now, Mode: bootimage.NewMachinesOnly, Effect: "NewMachines", Recognised: true, WindowOpen: true,
		Current: bootimage.Image{Text: "ami-old", OS: "9.4.20250101-0", Release: "4.18.0"}, Wanted: bootimage.Image{Text: "ami-new", OS: "9.6.20251023-0", Release: "4.19.0"},
		Contest: bootimage.Contest{Writes: 3, Window: 6 * time.Hour, Quiet: time.Hour}}
	change(&in)
	return in
}

const day = 24 * time.Hour

// young is the age of an image that is one second too young.
var young = bootimage.MinimumAge{Rule: "soak", Age: 30 * day, Built: now.Add(time.Second - 30*day)}

// An image is written from the moment on at which it has the minimum age, and the wait names
// that moment.
func TestMinimumAge(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		age := time.Duration(rapid.Int64Range(0, int64(100*day)).Draw(rt, "minimum"))
		built := now.Add(-time.Duration(rapid.Int64Range(int64(-10*day), int64(110*day)).Draw(rt, "age")))
		d := bootimage.Decide(pool(func(i *bootimage.Input) { i.MinimumAge = bootimage.MinimumAge{Rule: "soak", Age: age, Built: built} }))
		if enough := age == 0 || now.Sub(built) >= age; (d.Action == bootimage.Write) != enough {
			rt.Fatalf("age %s of %s: %+v", now.Sub(built), age, d)
		}
		if d.Action == bootimage.Write {
			return
		}
		then := bootimage.Decide(pool(func(i *bootimage.Input) {
			i.Now, i.MinimumAge = d.Wait.Until, bootimage.MinimumAge{Rule: "soak", Age: age, Built: built}
		}))
		if !d.Wait.Until.After(now) || then.Action != bootimage.Write {
			rt.Fatalf("the wait ends at %s: %+v", d.Wait.Until, then)
		}
	})
}

// While an update or a rollout runs, nothing is written but a rollback of the image alone.
func TestNothingIsWrittenDuringAnUpdate(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		pick := func(name string, of ...string) string { return rapid.SampledFrom(of).Draw(rt, name) }
		in := pool(func(i *bootimage.Input) {
			i.Mode = pick("mode", bootimage.Observe, bootimage.NewMachinesOnly, bootimage.Piggyback, bootimage.Roll, bootimage.Propose)
			i.Effect, i.Version, i.WantedVersion = pick("effect", "NewMachines", "Replaces"), "v1.35.4", pick("wanted", "", "v1.36.3")
			i.Same, i.Owner, i.Refused = rapid.Bool().Draw(rt, "same"), pick("owner", "", "x"), pick("refused", "", "x")
			if rapid.Bool().Draw(rt, "rollback") {
				i.Rollback = &bootimage.Rollback{Rejected: i.Current}
			}
		})
		idle := bootimage.Decide(in)
		in.Running = "ClusterUpdate/to-1.36"
		d := bootimage.Decide(in)
		alone := in.Rollback != nil && idle.Version == ""
		if idle.Action != bootimage.Write || alone {
			if d != idle {
				rt.Fatalf("only a write waits: %+v, without an update %+v", d, idle)
			}
			return
		}
		if d.Action != bootimage.Leave || d.Reason != "BootImageUpdateRunning" || d.Wait.For != in.Running || !strings.Contains(d.Message, in.Running) || d.State != idle.State {
			rt.Fatalf("%+v", d)
		}
	})
}

// Every "no" has its word, every mode writes only what it may.
func TestDecide(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*bootimage.Input)
		want   string // action state reason [version]
	}{
		"an old image, met by new machines only": {func(*bootimage.Input) {}, "Write Outdated BootImageWritten"},
		"the wanted image":                       {func(i *bootimage.Input) { i.Same = true }, "Leave Current AsExpected"},
		"it goes away":                           {func(i *bootimage.Input) { i.Deleting = true }, "Leave Excluded BootImageExcluded"},
		"Windows":                                {func(i *bootimage.Input) { i.Excluded = "its machines run Windows" }, "Leave Excluded BootImageExcluded"},
		"no region":                              {func(i *bootimage.Input) { i.WantedErr = "no region is named" }, "Leave Unknown BootImageUnknown"},
		"a custom image":                         {func(i *bootimage.Input) { i.Recognised = false }, "Leave Skipped BootImageCustom"},
		"a custom image with consent":            {func(i *bootimage.Input) { i.Recognised, i.Adopt = false, true }, "Write Outdated BootImageWritten"},
		"an object of another tool":              {func(i *bootimage.Input) { i.Owner = "argocd" }, "Suggest Skipped BootImageOwned"},
		"it is too young":                        {func(i *bootimage.Input) { i.MinimumAge = young }, "Leave Outdated BootImageTooFresh"},
		"no image that is too young is proposed": {func(i *bootimage.Input) { i.MinimumAge, i.Mode = young, bootimage.Propose }, "Leave Outdated BootImageTooFresh"},
		"nor written with a version": {func(i *bootimage.Input) {
			i.MinimumAge, i.Effect, i.Mode, i.Version, i.WantedVersion = young, "Replaces", bootimage.Piggyback, "v1.35.4", "v1.36.3"
		}, "Leave Outdated BootImageTooFresh"},
		"an age that is not known":             {func(i *bootimage.Input) { i.MinimumAge = bootimage.MinimumAge{Rule: "soak", Age: time.Hour} }, "Leave Outdated BootImageTooFresh"},
		"an image in use has no minimum age":   {func(i *bootimage.Input) { i.MinimumAge, i.Same = young, true }, "Leave Current AsExpected"},
		"another tool's object waits as well":  {func(i *bootimage.Input) { i.MinimumAge, i.Owner = young, "argocd" }, "Leave Outdated BootImageTooFresh"},
		"an image that is old enough on a day": {func(i *bootimage.Input) { i.MinimumAge = bootimage.MinimumAge{Age: day, Built: now.Add(-day)} }, "Write Outdated BootImageWritten"},
		"mode Observe":                         {func(i *bootimage.Input) { i.Mode = bootimage.Observe }, "Leave Outdated BootImageOutdated"},
		"mode Propose":                         {func(i *bootimage.Input) { i.Mode = bootimage.Propose }, "Suggest Outdated BootImageOutdated"},
		"it would roll":                        {func(i *bootimage.Input) { i.Effect = "Replaces" }, "Leave Outdated WouldReplaceMachines"},
		"it may roll":                          {func(i *bootimage.Input) { i.Effect, i.Mode = "Replaces", bootimage.Roll }, "Write Outdated BootImageWritten"},
		"it may roll, later":                   {func(i *bootimage.Input) { i.Effect, i.Mode, i.WindowOpen = "Replaces", bootimage.Roll, false }, "Stage Outdated BootImageStaged"},
		"a node class drifts":                  {func(i *bootimage.Input) { i.Effect = "Drifts" }, "Leave Outdated WouldReplaceMachines"},
		"a node class whose drift is held":     {func(i *bootimage.Input) { i.Effect, i.DriftHeld = "Drifts", true }, "Write Outdated BootImageWritten"},
		"a control plane waits for a version":  {func(i *bootimage.Input) { i.Effect, i.Mode, i.Version = "Replaces", bootimage.Piggyback, "v1.35.4" }, "Stage Outdated BootImageStaged"},
		"both in one write": {func(i *bootimage.Input) {
			i.Effect, i.Mode, i.Version, i.WantedVersion = "Replaces", bootimage.Piggyback, "v1.35.4", "v1.36.3"
		}, "Write Outdated BootImageWritten v1.36.3"},
		"the version alone if the image is right": {func(i *bootimage.Input) {
			i.Same, i.Effect, i.Mode, i.Version, i.WantedVersion = true, "Replaces", bootimage.Piggyback, "v1.35.4", "v1.36.3"
		}, "Write Current BootImageWritten v1.36.3"},
		"a version that is there already": {func(i *bootimage.Input) {
			i.Effect, i.Mode, i.Version, i.WantedVersion = "Replaces", bootimage.Piggyback, "v1.35.4", "v1.35.4"
		}, "Stage Outdated BootImageStaged"},
		"an older version": {func(i *bootimage.Input) {
			i.Effect, i.Mode, i.Version, i.WantedVersion = "Replaces", bootimage.Piggyback, "v1.35.4", "v1.34.1"
		}, "Leave Outdated VersionSkew"},
		"two minors at once": {func(i *bootimage.Input) {
			i.Effect, i.Mode, i.Version, i.WantedVersion = "Replaces", bootimage.Piggyback, "v1.35.4", "v1.37.0"
		}, "Leave Outdated VersionSkew"},
		"a version that is none": {func(i *bootimage.Input) {
			i.Effect, i.Mode, i.Version, i.WantedVersion = "Replaces", bootimage.Piggyback, "v1.35.4", "next"
		}, "Leave Outdated VersionSkew"},
		"a target that is blocked": {func(i *bootimage.Input) {
			i.Effect, i.Mode, i.Version, i.WantedVersion, i.TargetBlocked = "Replaces", bootimage.Piggyback, "v1.35.4", "v1.36.3", "pool b is too old"
		}, "Leave Outdated BootImageTooOld"},
		"another tool's control plane is not moved": {func(i *bootimage.Input) {
			i.Effect, i.Mode, i.Version, i.WantedVersion, i.Owner = "Replaces", bootimage.Piggyback, "v1.35.4", "v1.36.3", "argocd"
		}, "Suggest Skipped BootImageOwned"},
		"nothing to ride on":                      {func(i *bootimage.Input) { i.Effect, i.Mode = "Replaces", bootimage.Piggyback }, "Leave Outdated WouldReplaceMachines"},
		"a stub that cannot be converted":         {func(i *bootimage.Input) { i.UserData = "Secret x is not Ignition" }, "Leave Outdated UserDataUnusable"},
		"a template that makes old Ignition":      {func(i *bootimage.Input) { i.MadeIgnition = "2.3" }, "Leave Outdated UserDataUnusable"},
		"one of Ignition 3":                       {func(i *bootimage.Input) { i.MadeIgnition = "3.4" }, "Write Outdated BootImageWritten"},
		"a provider that chooses late":            {func(i *bootimage.Input) { i.Current, i.Recognised = bootimage.Image{}, false }, "Leave Skipped BootImageCustom"},
		"a file that is not uploaded":             {func(i *bootimage.Input) { i.NotUploaded = true }, "Leave Outdated BootImageNotUploaded"},
		"a file is not proposed to others either": {func(i *bootimage.Input) { i.NotUploaded, i.Owner = true, "argocd" }, "Leave Outdated BootImageNotUploaded"},
		"a control plane does not move without its file": {func(i *bootimage.Input) {
			i.NotUploaded, i.Effect, i.Mode, i.Version, i.WantedVersion = true, "Replaces", bootimage.Piggyback, "v1.35.4", "v1.36.3"
		}, "Leave Outdated BootImageNotUploaded"},
		"what is used already was uploaded": {func(i *bootimage.Input) { i.NotUploaded, i.Same = true, true }, "Leave Current AsExpected"},
		"recognised without any version":    {func(i *bootimage.Input) { i.Current.OS, i.Current.Release = "", "" }, "Write Outdated BootImageWritten"},
		"a version of another scheme":       {func(i *bootimage.Input) { i.Current.OS = "3815.2.0" }, "Write Outdated BootImageWritten"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := bootimage.Decide(pool(tc.change))
			if got := strings.TrimSpace(strings.Join([]string{d.Action, d.State, d.Reason, d.Version}, " ")); got != tc.want {
				t.Errorf("%s, want %s: %+v", got, tc.want, d)
			}
			if d.Message == "" || d.Reason != "AsExpected" && d.Reason != "BootImageWritten" && d.Fix == "" && d.Message != "it is being deleted" {
				t.Errorf("a refusal needs a reason and a fix: %+v", d)
			}
		})
	}
}

// A4: an image that is newer than the stream is left alone, also with consent and
// in mode Roll.
func TestA4NewerIsLeftAlone(t *testing.T) {
	t.Parallel()
	for name, newer := range map[string]bootimage.Image{
		"by OS version":                         {Text: "ami-x", OS: "9.8.20260101-0"},
		"by release":                            {Text: "ami-x", Release: "4.20.0"},
		"the OS decides before the release":     {Text: "ami-x", OS: "9.8.20260101-0", Release: "4.10.0"},
		"a later build of the same minor":       {Text: "ami-x", OS: "9.6.20251024-0"},
		"an older scheme with a newer OS in it": {Text: "ami-x", OS: "420.98.202601221327-0"},
	} {
		for _, mode := range []string{bootimage.NewMachinesOnly, bootimage.Roll, bootimage.Propose} {
			d := bootimage.Decide(pool(func(i *bootimage.Input) { i.Current, i.Mode, i.Adopt = newer, mode, true }))
			if d.Action != bootimage.Leave || d.Reason != "BootImageNewer" || d.State != bootimage.Skipped {
				t.Errorf("%s, %s: %+v", name, mode, d)
			}
		}
	}
}

// After three writes in the window it is enough, the writer
// is named, and after quiet it goes on.
func TestContest(t *testing.T) {
	t.Parallel()
	wrote := func(ago ...time.Duration) (out []bootimage.Past) {
		for _, a := range ago {
			out = append(out, bootimage.Past{At: now.Add(-a), To: "ami-new"})
		}
		return out
	}
	const m = time.Minute
	for name, tc := range map[string]struct {
		past    []bootimage.Past
		foreign time.Duration
		want    string
	}{
		"never written":                         {nil, 0, "Write"},
		"twice":                                 {wrote(20*m, 10*m), 5 * m, "Write"},
		"three times":                           {wrote(30*m, 20*m, 10*m), 5 * m, "Suggest"},
		"three times over months":               {wrote(3000*m, 2000*m, 10*m), 5 * m, "Write"},
		"three times to another image":          {[]bootimage.Past{{At: now, To: "a"}, {At: now, To: "b"}, {At: now, To: "c"}}, 0, "Write"},
		"three times, and quiet since":          {wrote(120*m, 110*m, 100*m), 61 * m, "Write"},
		"quiet here, but the other still wrote": {wrote(120*m, 110*m, 100*m), 59 * m, "Suggest"},
		"tried again and undone again":          {wrote(180*m, 170*m, 160*m, 10*m), 5 * m, "Suggest"},
	} {
		d := bootimage.Decide(pool(func(i *bootimage.Input) {
			i.Past, i.UndoneBy, i.ForeignAt = tc.past, "night-script", now.Add(-tc.foreign)
		}))
		if d.Action != tc.want {
			t.Errorf("%s: %+v", name, d)
		}
		if tc.want == "Suggest" && (d.State != bootimage.Contested || !strings.Contains(d.Message, "reverted by night-script")) {
			t.Errorf("%s names the writer: %+v", name, d)
		}
	}
}

// No machine that runs is replaced but in mode Roll, or with a version that a
// person asked for; nothing foreign, newer, custom or excluded is written at all.
func TestNothingIsReplacedAsASideEffect(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		pick := func(name string, of ...string) string { return rapid.SampledFrom(of).Draw(rt, name) }
		flag := func(name string) bool { return rapid.Bool().Draw(rt, name) }
		in := pool(func(i *bootimage.Input) {
			i.Mode = pick("mode", bootimage.Observe, bootimage.NewMachinesOnly, bootimage.Piggyback, bootimage.Roll, bootimage.Propose)
			i.Effect = pick("effect", "NewMachines", "Replaces", "Drifts")
			i.Excluded, i.Owner, i.WantedErr, i.UserData = pick("excluded", "", "", "x"), pick("owner", "", "", "x"), pick("err", "", "", "x"), pick("stub", "", "", "x")
			i.Version, i.WantedVersion = pick("version", "", "v1.35.4"), pick("wanted", "", "v1.36.3", "v1.35.4", "v1.38.0")
			i.Recognised, i.Adopt, i.Same, i.DriftHeld, i.WindowOpen, i.Deleting = flag("r"), flag("a"), flag("s"), flag("d"), flag("w"), flag("x")
			i.Current.OS = pick("os", "9.4.20250101-0", "9.8.20260101-0", "", "x")
		})
		d := bootimage.Decide(in)
		if d.Action != bootimage.Write {
			return
		}
		asked := in.Mode == bootimage.Piggyback && d.Version != "" && d.Version == in.WantedVersion
		if in.Effect != "NewMachines" && (in.Effect != "Drifts" || !in.DriftHeld) && in.Mode != bootimage.Roll && !asked {
			rt.Fatalf("machines are replaced: %+v %+v", in, d)
		}
		if in.Excluded != "" || in.Owner != "" || in.Deleting || in.WantedErr != "" || in.Mode == bootimage.Observe || in.Mode == bootimage.Propose {
			rt.Fatalf("written: %+v %+v", in, d)
		}
		if !in.Same && (!in.Recognised && !in.Adopt || in.UserData != "" || in.Current.OS == "9.8.20260101-0") {
			rt.Fatalf("written: %+v %+v", in, d)
		}
	})
}

// The name of a clone is the hash of its content, and it has no mark of another tool.
func TestClone(t *testing.T) {
	t.Parallel()
	old := func() map[string]any {
		return map[string]any{"apiVersion": "g/v1", "kind": "T", "spec": map[string]any{"image": "new", "n": int64(3)}, "status": map[string]any{"x": "y"},
			"metadata": map[string]any{"name": "workers", "namespace": "ns", "uid": "u", "resourceVersion": "1", "ownerReferences": []any{map[string]any{"name": "c"}},
				"labels":      map[string]any{"cluster.x-k8s.io/cluster-name": "c1", "app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/instance": "argo"},
				"annotations": map[string]any{"kubectl.kubernetes.io/last-applied-configuration": "{}", "argocd.argoproj.io/tracking-id": "x", "note": "mine"}}}
	}
	c, err := bootimage.Clone(old(), "source-uid")
	if err != nil {
		t.Fatal(err)
	}
	name := c["metadata"].(map[string]any)["name"].(string)
	want := map[string]any{"apiVersion": "g/v1", "kind": "T", "spec": old()["spec"], "metadata": map[string]any{"name": name, "namespace": "ns",
		"labels":      map[string]any{"cluster.x-k8s.io/cluster-name": "c1", "app.kubernetes.io/managed-by": "refit-controller", "refit.dev/boot-image-source": "source-uid"},
		"annotations": map[string]any{"note": "mine", "refit.dev/cloned-from": "workers"}}}
	if diff := cmp.Diff(want, c); diff != "" || !strings.HasPrefix(name, "workers-") {
		t.Error(name, diff)
	}
	if again, _ := bootimage.Clone(old(), "source-uid"); again["metadata"].(map[string]any)["name"] != name {
		t.Error("the same clone has another name")
	}
	second := c
	second["spec"].(map[string]any)["image"] = "newer"
	next, err := bootimage.Clone(second, "source-uid")
	if n := next["metadata"].(map[string]any)["name"].(string); err != nil || n == name || strings.Count(n, "-") != 1 {
		t.Errorf("a clone of a clone is named after the first: %s %v", n, err)
	}
	if s, ok := bootimage.CloneSource(next); !ok || s != "source-uid" {
		t.Error("a clone is ours")
	}
	if _, ok := bootimage.CloneSource(old()); ok {
		t.Error("the old one is not ours")
	}
}

// A6 (the rule): who else claims the field.
func TestOwner(t *testing.T) {
	t.Parallel()
	ref := [][]string{{"spec", "template", "spec", "infrastructureRef", "name"}}
	ours := func(n string) bool { return strings.HasPrefix(n, "refit") }
	whole := []byte(`{"f:spec":{"f:template":{"f:spec":{"f:infrastructureRef":{}}}}}`)
	part := []byte(`{"f:spec":{"f:template":{"f:spec":{"f:infrastructureRef":{"f:name":{}}}}}}`)
	other := []byte(`{"f:spec":{"f:replicas":{}}}`)
	w := func(name string, applies bool, fields []byte) []bootimage.Writer {
		return []bootimage.Writer{{Name: name, Applies: applies, Fields: fields, At: now}}
	}
	for name, tc := range map[string]struct {
		writers []bootimage.Writer
		want    string
	}{
		"an applier of the field":              {w("gitops", true, part), "gitops"},
		"an applier of the whole reference":    {w("gitops", true, whole), "gitops"},
		"an applier of something else":         {w("autoscaler", true, other), ""},
		"ourselves":                            {w("refit-boot-images", true, part), ""},
		"a person's edit":                      {w("kubectl-edit", false, part), ""},
		"a GitOps tool without apply":          {w("argocd-controller", false, part), "argocd-controller"},
		"a GitOps tool that owns other fields": {w("argocd-controller", false, other), ""},
		"fields that cannot be read":           {w("gitops", true, []byte("{")), ""},
	} {
		if got := bootimage.ForeignOwner(tc.writers, ref, ours); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
	many := append(w("early", false, part), bootimage.Writer{Name: "late", Fields: part, At: now.Add(time.Minute)}, bootimage.Writer{Name: "refit", Fields: part, At: now.Add(time.Hour)})
	if name, at := bootimage.LastForeignWriter(many, ref, ours); name != "late" || !at.Equal(now.Add(time.Minute)) {
		t.Error(name, at)
	}
}
