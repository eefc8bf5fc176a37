//go:build linux

package tagscmd

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/imagetag/publish"
	"github.com/refit-dev/refit/internal/registry/registrytest"
)

// history of a repository: sixty images, one a line. The columns are the case
// that the planner has to find by itself, the long tag, and the pointers that have
// to follow: intermediate, short, aggregate (1.0), major (1), latest.
const history = `
1  1.0.0-rev1-b1.1   is..l
3  1.0.0-rev1-b1.2   isaml
3  1.0.0-rev1-b1.9   isaml
3  1.0.0-rev1-b1.10  isaml
4a 1.0.0-rev1-b1.11  isaml
3  1.0.0-rev1-b2.1   isaml
2  1.0.0-rev2-b2.2   isaml
3  1.0.0-rev2-b2.3   isaml
3  1.0.0-rev1-b2.4   i....
4a 1.0.0-rev2-b2.4   isaml
2  1.0.0-rev3-b3.1   isaml
3  1.0.0-rev3-b3.2   isaml
1  1.0.1-rev1-b1.1   isaml
3  1.0.1-rev1-b1.2   isaml
3  1.0.0-rev3-b3.3   is...
4a 1.0.1-rev1-b1.3   isaml
3  1.0.1-rev1-b1.4   isaml
2  1.0.1-rev2-b1.5   isaml
1  1.1.0-rc.1-rev1-b1 is...
3  1.1.0-rc.1-rev1-b2 is...
1  1.1.0-rc.2-rev1-b1 is...
3  1.0.1-rev2-b1.6   isaml
1  1.1.0-rev1-b1.1   isaml
3  1.1.0-rev1-b1.2   isaml
3  1.0.1-rev2-b1.7   isa..
4a 1.0.1-rev2-b1.8   isa..
2  1.1.0-rev2-b2.1   isaml
3  1.1.0-rev2-b2.2   isaml
1  1.0.2-rev1-b1.1   isa..
3  1.0.2-rev1-b1.2   isa..
4a 1.1.0-rev2-b2.3   isaml
3  1.1.0-rev2-b2.10  isaml
4a 1.1.0-rev1-b2.11  i....
1  1.1.1-rev1-b1.1   isaml
3  1.1.1-rev1-b1.2   isaml
4a 1.1.1-rev1-b1.3   isaml
3  1.0.2-rev1-b1.3   isa..
2  1.0.2-rev2-b1.4   isa..
4a 1.1.0-rev2-b2.11  is...
1  2.0.0-rc.1-rev1-b1 is...
3  2.0.0-rc.1-rev1-b10 is...
1  2.0.0-rev1-b1.1   isaml
3  2.0.0-rev1-b1.2   isaml
3  1.1.1-rev1-b1.4   isam.
2  1.1.1-rev2-b1.5   isam.
3  1.0.2-rev2-b1.5   isa..
4a 1.0.2-rev2-b1.6   isa..
2  2.0.0-rev2-b2.1   isaml
3  2.0.0-rev2-b2.2   isaml
1  1.1.2-rev1-b1.1   isam.
3  1.1.2-rev1-b1.2   isam.
1  2.0.1-rev1-b1.1   isaml
4a 2.0.1-rev1-b1.2   isaml
3  2.0.1-rev1-b1.3   isaml
1  2.0.10-rev1-b1.1  isaml
3  2.0.10-rev1-b1.2  isaml
3  2.0.1-rev1-b1.4   is...
2  2.0.10-rev2-b1.3  isaml
3  2.0.10-rev2-b1.10 isaml
4a 2.0.10-rev2-b1.11 isaml
`

// publisher pushes the history to a real registry, by the planner's word.
type publisher struct {
	*testing.T
	reg      *registrytest.Server
	releases map[string]int // of the application's package, by version
	bases    int
	n        int
	digests  map[string]string // long tag to digest
}

const repo, candidates = "product/app", "candidates/app"

// made is the image that a build service makes for a line of the history.
func (p *publisher) made(kase, long string) registrytest.Image {
	p.n++
	app, rest, _ := strings.Cut(long, "-rev")
	rev, _, _ := strings.Cut(rest, "-b")
	switch kase {
	case "4a":
		p.releases[app]++
	default:
		p.bases++
	}
	i := registrytest.Image{Version: app, Created: time.Date(2025, 1, p.n, 0, 0, 0, 0, time.UTC), Labels: map[string]string{
		publish.LabelDefinition: "definition of " + app + " revision " + rev, publish.LabelRev: rev,
		publish.LabelRelease: fmt.Sprintf("150600.%d.1", 9+p.releases[app]), publish.LabelBase: fmt.Sprintf("sha256:%064d", p.bases),
	}, Layers: []string{fmt.Sprint("base ", p.bases), fmt.Sprint("app ", app, p.releases[app])}}
	if p.n > 30 { // a platform may come, and not go
		i.Platforms = []string{"linux/amd64", "linux/arm64"}
	}
	return i
}

// plan asks the command line about a candidate.
func (p *publisher) plan(args ...string) (planView, result) {
	p.Helper()
	r := refit(p.T, "", append([]string{"tags", "plan", "--repo", p.reg.Ref(repo), "-o", "json"}, args...)...)
	var v planView
	if err := json.Unmarshal([]byte(r.out), &v); err != nil {
		p.Fatalf("%v: exit %d, %q %s", err, r.code, r.out, r.err)
	}
	return v, r
}

// push carries a plan out as the documentation says: look, stop on surprise, go on.
func (p *publisher) push(plan planView) {
	p.Helper()
	for _, s := range plan.Steps {
		if s.Verb == publish.Copy {
			p.reg.Copy(strings.TrimPrefix(s.From, p.reg.Addr+"/"), s.To, repo)
			continue
		}
		if at := p.reg.Resolve(repo, s.Tag); at != s.From {
			p.Fatalf("%s is at %q, the plan says %q", s.Tag, at, s.From)
		}
		p.reg.Tag(repo, s.To, s.Tag)
	}
}

// want is what a line of the history says: verb and tag of each step, in order.
func (p *publisher) want(long, letters string) []string {
	app, _, _ := strings.Cut(long, "-rev")
	middle, _, _ := strings.Cut(long, "-b")
	parts := strings.SplitN(app, ".", 3)
	names := []string{middle, app, parts[0] + "." + parts[1], parts[0], "latest"}
	want := []string{"copy ", "create " + long}
	for i, name := range names {
		if letters[i] == '.' {
			continue
		}
		verb := "move "
		if p.reg.Resolve(repo, name) == "" {
			verb = "create "
		}
		want = append(want, verb+name)
	}
	return want
}

// Against a real registry: the planner is right about each of sixty images, and
// refuses every bad move in between.
func TestHistoryOfSixtyImages(t *testing.T) {
	t.Parallel()
	p := &publisher{T: t, reg: registrytest.Start(t), releases: map[string]int{}, digests: map[string]string{}}
	lines := strings.Split(strings.TrimSpace(history), "\n")
	bad := badMoves()
	cases := map[string]int{}
	for i, line := range lines {
		f := strings.Fields(line)
		kase, long, letters := f[0], f[1], f[2]
		cases[kase]++
		digest := p.reg.Push(candidates, p.made(kase, long), long)
		p.digests[long] = digest
		args := []string{"--image", p.reg.Ref(candidates + ":" + long)}
		if i == 0 {
			args = append(args, "--floating", "latest")
		}
		want := p.want(long, letters)
		v, r := p.plan(args...)
		var got []string
		for _, s := range v.Steps {
			got = append(got, s.Verb+" "+s.Tag)
		}
		if d := cmp.Diff(want, got); d != "" || string(v.Case) != kase || v.Image != digest || r.code != console.ExitOK || v.Automatic != (kase == "3" || kase == "4a") {
			t.Fatalf("%s: exit %d, case %s: %s\n%s", line, r.code, v.Case, d, r.out)
		}
		p.push(v)
		if kase != "1" && !slices.Contains(v.ReachableBy, longOf(p.digests, v.Before)) {
			t.Errorf("%s: the image before is reached by %v", line, v.ReachableBy)
		}
		if i == 0 { // a person decides once that there are aggregates
			p.reg.Tag(repo, digest, "1.0")
			p.reg.Tag(repo, digest, "1")
		}
		for _, b := range bad[long] {
			p.refused(b)
		}
		delete(bad, long)
		if i%6 != 0 {
			continue // planning a second time shows the same each time
		}
		if again, _ := p.plan(args...); again.Case != publish.NoChange || len(again.Steps) > 0 || again.Refused() {
			t.Errorf("%s: pushed, and the plan is still %+v", line, again.Plan)
		}
	}
	if len(lines) != 60 || len(cases) != 4 || len(bad) > 0 {
		t.Errorf("%d images over %d cases, bad moves that were never tried: %v", len(lines), len(cases), bad)
	}
	for long, digest := range p.digests {
		if p.reg.Resolve(repo, long) != digest {
			t.Errorf("%s does not name its image any more", long)
		}
	}
	p.retention()
}

func longOf(digests map[string]string, digest string) string {
	for long, d := range digests {
		if d == digest {
			return long
		}
	}
	return ""
}

// badMove is tried at one point of the history.
type badMove struct {
	what   string
	image  func(*registrytest.Image) // changes the newest build's image
	as     string                    // long tag of the candidate
	args   []string
	reason string
}

// badMoves by the long tag after which they are tried.
func badMoves() map[string][]badMove {
	base := func(i *registrytest.Image) {
		i.Labels[publish.LabelBase], i.Layers[0] = "sha256:"+strings.Repeat("f", 64), "another base"
	}
	version := func(v string) func(*registrytest.Image) {
		return func(i *registrytest.Image) { base(i); i.Version = v }
	}
	return map[string][]badMove{
		"1.0.0-rev1-b1.10": {
			{"a long tag is overwritten", base, "1.0.0-rev1-b1.10", nil, "TagTaken"},
			{"the build is not above 1.10", base, "1.0.0-rev1-b1.3", nil, "BuildNotGreater"},
			{"a fix without a bump", func(i *registrytest.Image) { i.Labels[publish.LabelDefinition] = "fixed" }, "1.0.0-rev1-b1.11", nil, "RevNotBumped"},
			{"the tag names another version", version("1.0.1"), "1.0.0-rev1-b1.11", nil, "TagVersionMismatch"},
			{"the version of the contents is unknown", version(""), "1.0.0-rev1-b1.11", nil, "VersionUnknown"},
		},
		"1.0.0-rev2-b2.3": {
			{"it claims to be a rebuild, and is a fix", func(i *registrytest.Image) { i.Labels[publish.LabelDefinition] = "fixed" }, "1.0.0-rev3-b2.9", []string{"--case", "3"}, "CaseDiffers"},
			{"another digest was approved", base, "1.0.0-rev2-b2.9", []string{"--gate", "--approved", "sha256:" + strings.Repeat("0", 64)}, "ImageUnapproved"},
		},
		"1.1.0-rev1-b1.2": {
			{"an older line wants latest", version("1.0.2"), "1.0.2-rev1-b9", []string{"--want", "latest"}, "TagWouldRegress"},
			{"an older line wants the major version", version("1.0.2"), "1.0.2-rev1-b9", []string{"--want", "1"}, "TagWouldRegress"},
			{"an illegal tag", base, "1.1.0-rev1-b1.9", []string{"--want", "1.1.0-rev1+1.9"}, "TagIllegal"},
			{"a version that no tag may have", version("1.1.1+5"), "candidate", []string{"--build", "1"}, "TagIllegal"},
			{"a tag of another version", base, "1.1.0-rev1-b1.9", []string{"--want", "1.0.1"}, "TagVersionMismatch"},
		},
		"1.1.1-rev1-b1.3": {
			{"a platform is lost", func(i *registrytest.Image) { base(i); i.Platforms = nil }, "1.1.1-rev1-b1.9", nil, "PlatformsLost"},
			{"an older package", func(i *registrytest.Image) { i.Labels[publish.LabelRelease] = "150600.8.1" }, "1.1.1-rev1-b1.9", nil, "ReleaseWouldRegress"},
			{"a tag that does not follow", base, "1.1.1-rev1-b1.9", []string{"--want", "stable"}, "TagNotPlanned"},
		},
	}
}

// refused tries a bad move, and looks that nothing is planned.
func (p *publisher) refused(b badMove) {
	p.Helper()
	newest := slices.MaxFunc(slices.Collect(maps.Keys(p.digests)), func(x, y string) int { return p.place(x) - p.place(y) })
	app, rest, _ := strings.Cut(newest, "-rev")
	rev, _, _ := strings.Cut(rest, "-b")
	i := registrytest.Image{Version: app, Platforms: []string{"linux/amd64", "linux/arm64"}, Layers: []string{"base", "app"}, Labels: map[string]string{
		publish.LabelDefinition: "definition of " + app + " revision " + rev, publish.LabelRelease: fmt.Sprintf("150600.%d.1", 9+p.releases[app])}}
	b.image(&i)
	p.reg.Push(candidates, i, b.as)
	v, r := p.plan(append([]string{"--image", p.reg.Ref(candidates + ":" + b.as)}, b.args...)...)
	if r.code != console.ExitBlocked || len(v.Steps) > 0 || len(v.Refusals) == 0 || v.Refusals[0].Reason != b.reason || v.Refusals[0].Fix == "" {
		p.Errorf("%s: exit %d, want %s alone: %s", b.what, r.code, b.reason, r.out)
	}
}

// place of a long tag in the history.
func (p *publisher) place(long string) int { return strings.Index(history, " "+long+" ") }

// retention deletes from the real registry what the plan allows, and looks that
// everything that was named is still there.
func (p *publisher) retention() {
	p.Helper()
	first, kept := "1.0.0-rev1-b1.1", "1.0.0-rev1-b1.2"
	r := refit(p.T, "", "tags", "retain", "--repo", p.reg.Ref(repo), "--for", "1d", "--builds", "1", "--first", first, "--until", kept+"=2999-12-31", "-o", "json")
	var v retainView
	if err := json.Unmarshal([]byte(r.out), &v); err != nil || r.code != console.ExitOK {
		p.Fatalf("%v: exit %d, %s", err, r.code, r.err)
	}
	goes := map[string]bool{}
	for _, f := range v.Delete {
		for _, text := range f.Tags {
			goes[text] = true
		}
	}
	// 1.0.0 has eleven builds below its newest two: all but the named ones, what
	// revisions 1 to 3 point at and what a rollback from there takes may go.
	for text, want := range map[string]bool{first: false, kept: false, "1.0.0-rev1-b1.9": true, "1.0.0-rev1-b1.10": true, "1.0.0-rev1-b2.4": false, "1.0.0-rev1-b2.1": false, "1.0.0-rev3-b3.3": false, "1.0.0-rev3-b3.2": false, "latest": false, "1": false} {
		if goes[text] != want {
			p.Errorf("%s may be deleted: %v", text, goes[text])
		}
	}
	for _, f := range v.Delete {
		p.reg.Delete(repo, f.Digest)
	}
	for _, f := range v.Keep {
		for _, text := range f.Tags {
			if p.reg.Resolve(repo, text) != f.Digest {
				p.Errorf("%s was to stay (%v), and is gone", text, f.Why)
			}
		}
	}
	if len(v.Delete) < 10 {
		p.Errorf("only %d of 60 digests may be deleted", len(v.Delete))
	}
}
