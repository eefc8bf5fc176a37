package bootimage_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/refit-dev/refit/internal/bootimage"
)

func image(name, os string) bootimage.Image { return bootimage.Image{Text: name, OS: os} }

var (
	imageA = image("a", "9.2.20240101-0")
	imageB = image("b", "9.4.20250101-0")
	imageC = image("c", "9.6.20251023-0")
	imageD = image("d", "9.8.20260101-0")
)

// A rollback counts until a newer image than the rejected one comes. What cannot be compared is
// not newer.
func TestRollbackHolds(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		rejected, wanted bootimage.Image
		holds            bool
	}{
		"the rejected image":                 {imageC, imageC, true},
		"its version under another name":     {imageC, image("c2", imageC.OS), true},
		"an older one":                       {imageC, imageB, true},
		"a newer one":                        {imageC, imageD, false},
		"a later build":                      {imageC, image("c3", "9.6.20251024-0"), false},
		"no image at all":                    {imageC, bootimage.Image{}, true},
		"a version of another scheme":        {imageC, image("f", "3815.2.0"), true},
		"by release, newer":                  {bootimage.Image{Release: "1.36.3"}, bootimage.Image{Release: "1.36.4"}, false},
		"by release, the same":               {bootimage.Image{Release: "1.36.3"}, bootimage.Image{Release: "1.36.3"}, true},
		"the OS version decides":             {bootimage.Image{OS: imageC.OS, Release: "1.36.3"}, bootimage.Image{OS: imageB.OS, Release: "1.37.0"}, true},
		"a rejected image without a version": {image("golden", ""), imageD, true},
	} {
		r := bootimage.Rollback{To: imageA, Rejected: tc.rejected}
		if got := r.Holds(tc.wanted); got != tc.holds {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// The previous image is the one before the current image came, also after earlier rollbacks.
func TestPlanRollback(t *testing.T) {
	t.Parallel()
	wrote := func(pairs ...bootimage.Image) (out []bootimage.Written) {
		for i := 1; i < len(pairs); i++ {
			out = append(out, bootimage.Written{From: pairs[i-1], To: pairs[i]})
		}
		return out
	}
	back := func(from, to bootimage.Image) bootimage.Written {
		return bootimage.Written{From: from, To: to, Rollback: true}
	}
	for name, tc := range map[string]struct {
		history []bootimage.Written
		current bootimage.Image
		active  *bootimage.Rollback
		to      string
		want    string // to, rejected; or the error
	}{
		"one step":                             {wrote(imageA, imageB, imageC), imageC, nil, "", "b c"},
		"asked for twice":                      {wrote(imageA, imageB, imageC), imageC, &bootimage.Rollback{To: imageB, Rejected: imageC}, "", "b c"},
		"two steps reject the newer one still": {append(wrote(imageA, imageB, imageC), back(imageC, imageB)), imageB, &bootimage.Rollback{To: imageB, Rejected: imageC}, "", "a c"},
		"an earlier rollback is over":          {append(append(wrote(imageA, imageB, imageC), back(imageC, imageB)), bootimage.Written{From: imageB, To: imageD}), imageD, &bootimage.Rollback{To: imageB, Rejected: imageC}, "", "b d"},
		"to a named one":                       {wrote(imageA, imageB, imageC), imageC, nil, "a", "a c"},
		"forward to a named one":               {append(wrote(imageA, imageB, imageC), back(imageC, imageA)), imageA, &bootimage.Rollback{To: imageA, Rejected: imageC}, "b", "b c"},
		"written again and again":              {wrote(imageA, imageB, imageA, imageB), imageB, nil, "", "a b"},
		"a version alone was written":          {append(wrote(imageA, imageB), bootimage.Written{From: imageB, To: imageB}), imageB, nil, "", "a b"},
		"nothing was written":                  {nil, imageC, nil, "", "there is no previous one"},
		"a person wrote the current image":     {wrote(imageA, imageB), imageD, nil, "", "there is no previous one"},
		"an image of another history":          {wrote(imageA, imageB), imageB, nil, "x", `no image "x"`},
		"the image that is in use":             {wrote(imageA, imageB), imageB, nil, "b", "already"},
	} {
		r, err := bootimage.PlanRollback(tc.history, tc.current, tc.active, tc.to)
		got := r.To.Text + " " + r.Rejected.Text
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, tc.want) || err == nil && got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// A rejected and a refused image is never written, in any mode.
func TestRejectedIsNeverWritten(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		pick := func(name string, of ...string) string { return rapid.SampledFrom(of).Draw(rt, name) }
		stream := rapid.SampledFrom([]bootimage.Image{imageA, imageB, imageC, imageD}).Draw(rt, "stream")
		r := &bootimage.Rollback{To: imageB, Rejected: imageC, By: "ann"}
		refusals := []bootimage.Refusal{{OS: pick("refused", "", imageB.OS, imageD.OS), Reason: "it does not start"}}
		in := pool(func(i *bootimage.Input) {
			i.Mode = pick("mode", bootimage.Observe, bootimage.NewMachinesOnly, bootimage.Piggyback, bootimage.Roll, bootimage.Propose)
			i.Effect, i.Version, i.WantedVersion = pick("effect", "NewMachines", "Replaces"), "v1.35.4", pick("version", "", "v1.36.3")
			i.Current, i.Wanted = imageC, stream
			if r.Holds(stream) {
				i.Wanted, i.Rollback = r.To, r
			}
			i.RollbackBlocked = pick("blocked", "", "too old")
			i.Refused = bootimage.Refused(refusals, i.Wanted)
		})
		d := bootimage.Decide(in)
		if d.Action != bootimage.Write && d.Action != bootimage.Stage && d.Action != bootimage.Suggest {
			return
		}
		if in.Wanted == imageC || in.Wanted.OS == refusals[0].OS || in.Rollback != nil && in.RollbackBlocked != "" {
			rt.Fatalf("%+v: %+v", in, d)
		}
	})
}

func TestRefused(t *testing.T) {
	t.Parallel()
	list := []bootimage.Refusal{{Image: "ami-1", Reason: "by name"}, {OS: "9.6.20251023-0", Reason: "by version"}}
	for i, want := range map[bootimage.Image]string{
		image("ami-1", ""): "by name", image("ami-2", "9.6.20251023-0"): "by version", image("ami-2", "9-6-20251023-0"): "by version",
		image("ami-2", "9.6.20251024-0"): "", image("", ""): "",
	} {
		if got := bootimage.Refused(list, i); got != want {
			t.Errorf("%+v: %q, want %q", i, got, want)
		}
	}
}

// A rollback names the person, the image and the reason.
func TestRollbackText(t *testing.T) {
	t.Parallel()
	r := &bootimage.Rollback{To: imageB, Rejected: imageC}
	for want, change := range map[string]func(){
		"an administrator rejected c (9.6.20251023-0)":      func() {},
		"ann rejected c (9.6.20251023-0)":                   func() { r.By = "ann" },
		"ann rejected c (9.6.20251023-0) (it has no disks)": func() { r.By, r.Reason = "ann", "it has no disks" },
	} {
		r.By, r.Reason = "", ""
		change()
		if got := fmt.Sprint(r); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
