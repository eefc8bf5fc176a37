package osdriver

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// dep makes one deployment after the keys that rpm-ostree writes.
func rpmEntry(sum, ref, digest, more string) string {
	return `{"id":"os-` + sum + `.0","osname":"os","serial":0,"checksum":"` + sum + `","version":"42","timestamp":1700000000,"booted":false,"staged":false,"pinned":false,"unlocked":"none",
	"container-image-reference":"` + ref + `","container-image-reference-digest":"` + digest + `","packages":[],"requested-packages":[],"requested-local-packages":[],"requested-base-removals":[],
	"requested-base-local-replacements":[],"base-removals":[],"base-local-replacements":[],"regenerate-initramfs":false` + more + `}`
}

func list(transaction string, deps ...string) string {
	out := `{"deployments":[`
	for i, d := range deps {
		if i > 0 {
			out += ","
		}
		out += d
	}
	return out + `],"transaction":` + transaction + `,"cached-update":null,"update-driver":null}`
}

const (
	refA, refB        = "ostree-unverified-registry:q/os@sha256:a", "ostree-image-signed:docker://q/os@sha256:b"
	rpmBooted, staged = `,"booted":true`, `,"staged":true`
)

var rpmA, rpmB = &Deployment{ID: "aa.0", Image: "q/os@sha256:a", Digest: "sha256:a", Version: "42"}, &Deployment{ID: "bb.0", Image: "q/os@sha256:b", Digest: "sha256:b", Version: "42"}

func TestRPMOstreeStatus(t *testing.T) {
	for name, c := range map[string]struct {
		doc  string
		want Status
	}{
		"booted and an older one":          {list("null", rpmEntry("aa", refA, "sha256:a", rpmBooted), rpmEntry("bb", refB, "sha256:b", "")), Status{Booted: rpmA, Rollback: rpmB, Next: rpmA}},
		"what is staged is next":           {list("null", rpmEntry("bb", refB, "sha256:b", staged), rpmEntry("aa", refA, "sha256:a", rpmBooted)), Status{Booted: rpmA, Staged: rpmB, Next: rpmB}},
		"a rollback, or a pick, is queued": {list("null", rpmEntry("bb", refB, "sha256:b", ""), rpmEntry("aa", refA, "sha256:a", rpmBooted)), Status{Booted: rpmA, Rollback: rpmB, Next: rpmB, RollbackQueued: true}},
		"the daemon is at work: wait":      {list(`["rebase","--x"]`, rpmEntry("aa", refA, "sha256:a", rpmBooted)), Status{Booted: rpmA, Next: rpmA, Busy: "rebase --x"}},
		"finalisation is locked, and it is pinned": {list("null", rpmEntry("bb", refB, "sha256:b", `,"staged":true,"pinned":true,"finalization-locked":true`), rpmEntry("aa", refA, "sha256:a", rpmBooted)),
			Status{Booted: rpmA, Staged: &Deployment{ID: "bb.0", Image: rpmB.Image, Digest: "sha256:b", Version: "42", Pinned: true, Locked: true},
				Next: &Deployment{ID: "bb.0", Image: rpmB.Image, Digest: "sha256:b", Version: "42", Pinned: true, Locked: true}}},
		"everything that drifts": {list("null", rpmEntry("aa", refA, "sha256:a", `,"booted":true,"unlocked":"development","live-replaced":"cc","requested-packages":["htop","vim"],"requested-local-packages":["x"],"requested-base-removals":["y"],"requested-base-local-replacements":[["z"]],"regenerate-initramfs":true`)),
			Status{Booted: &Deployment{ID: "aa.0", Image: rpmA.Image, Digest: "sha256:a", Version: "42", Incompatible: true}, Next: &Deployment{ID: "aa.0", Image: rpmA.Image, Digest: "sha256:a", Version: "42", Incompatible: true},
				Drift: []Drift{{Kind: DriftOverlay, Detail: "/usr of the booted deployment was unlocked on the node (development)"},
					{Kind: DriftOverlay, Detail: "packages were applied live over the booted deployment"},
					{Kind: DriftPackages, Detail: "the booted deployment was changed on the node: an initramfs of its own, packages added: 3, packages removed: 1, packages replaced: 1"}}}},
		"not from an image yet": {list("null", `{"id":"x","osname":"os","serial":2,"checksum":"aa","booted":true,"staged":false,"origin":"fedora:x"}`),
			Status{Booted: &Deployment{ID: "aa.2"}, Next: &Deployment{ID: "aa.2"}, Drift: []Drift{{Kind: DriftForeign, Detail: "the booted deployment is not from a container image"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Script{Answers: map[string]Answer{"rpm-ostree status --json": {Out: c.doc}, "ostree": {Code: 1}}}
			got, err := NewRPMOstree(s.Host(t, nil)).Status(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			c.want.Driver, c.want.Running, c.want.Capabilities = RPMOSTree, []string{"root=/dev/x"}, []string{CanKargsVerb, CanKargsImage}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Fatal(d)
			}
		})
	}
}

// Scheme and transport say how an image came, not which it is.
func TestPlain(t *testing.T) {
	for ref, want := range map[string]string{refA: "q/os@sha256:a", refB: "q/os@sha256:b", "ostree-unverified-image:docker://q/os:1": "q/os:1", "ostree-remote-image:fedora:docker://q/os:1": "q/os:1",
		"ostree-unverified-image:oci:/var/lib/x": "/var/lib/x", "ostree-unverified-image:containers-storage:q/os:1": "q/os:1", "": ""} {
		if got := withoutNumber(ref); got != want {
			t.Errorf("%q is %q, not %q", ref, got, want)
		}
	}
}

// The image comes first, the arguments on top of what is pending: those that the new
// image brings, those of the target, less those that the old image brought. What updates the
// host by itself is bypassed, and what is staged is locked.
func TestRPMOstreeStage(t *testing.T) {
	before, after := list("null", rpmEntry("aa", refA, "sha256:a", rpmBooted)), list("null", rpmEntry("bb", refB, "sha256:b", staged), rpmEntry("aa", refA, "sha256:a", rpmBooted))
	const image, kargs = "ostree-unverified-image:oci:/var/lib/b", " --delete-if-present=old-image=1 --delete-if-present=given=1 --append-if-missing=new-image=1 --append-if-missing=wanted"
	locks := Answer{Out: "  --lock-finalization   Prevent automatic deployment finalization on shutdown"}
	for name, c := range map[string]struct {
		driver       string
		rebase, args Answer
		want         []string
	}{
		"an old one": {"null", Answer{}, Answer{}, []string{"rpm-ostree rebase --experimental " + image, "rpm-ostree kargs" + kargs}},
		"it locks":   {"null", locks, locks, []string{"rpm-ostree rebase --experimental --lock-finalization " + image, "rpm-ostree kargs" + kargs + " --lock-finalization"}},
		"it locks, and would unlock for the arguments": {"null", locks, Answer{}, []string{"rpm-ostree rebase --experimental " + image, "rpm-ostree kargs" + kargs}},
		"Fedora CoreOS, which Zincati updates": {zincati, locks, locks,
			[]string{"rpm-ostree rebase --experimental --bypass-driver --lock-finalization " + image, "rpm-ostree kargs" + kargs + " --lock-finalization"}},
	} {
		t.Run(name, func(t *testing.T) {
			driven := func(doc string) Answer {
				return Answer{Out: strings.Replace(doc, `"update-driver":null`, `"update-driver":`+c.driver, 1)}
			}
			s := &Script{Answers: map[string]Answer{"rpm-ostree status --json": driven(before), "rpm-ostree": {}, "rpm-ostree rebase --help": c.rebase, "rpm-ostree kargs --help": c.args}}
			s.Do = func(line string, s *Script) {
				switch {
				case !strings.HasSuffix(line, image):
				case c.driver != "null" && !strings.Contains(line, "--bypass-driver"):
					s.Answers["rpm-ostree rebase"] = Answer{Code: 1, Out: "error: Updates and deployments are driven by Zincati (zincati.service)"}
				default:
					s.Answers["rpm-ostree status --json"] = driven(after)
				}
			}
			h := s.Host(t, map[string]string{"proc/cmdline": "root=/dev/x old-image=1 given=1 local ostree=/x", "usr/lib/bootc/kargs.d/10.toml": `kargs = ["old-image=1"]`,
				"ostree/deploy/os/deploy/bb.0/usr/lib/bootc/kargs.d/10.toml": `kargs = ["new-image=1"]`})
			err := NewRPMOstree(h).Stage(t.Context(), Target{Image: "q/os@sha256:b", Digest: "sha256:b", Source: Source{Transport: Layout, Location: "/var/lib/b"}, Kargs: []string{"wanted"}, Drop: []string{"given=1"}})
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, s.Changes()); d != "" {
				t.Fatal(d)
			}
		})
	}
}

// zincati is how rpm-ostree reports a program that has registered to update the host.
const zincati = `{"driver-name":"Zincati","driver-sd-unit":"zincati.service"}`

// A host that another program updates reports it.
func TestRPMOstreeUpdateDriver(t *testing.T) {
	doc := strings.Replace(list("null", rpmEntry("aa", refA, "sha256:a", rpmBooted)), `"update-driver":null`, `"update-driver":`+zincati, 1)
	s := &Script{Answers: map[string]Answer{"rpm-ostree status --json": {Out: doc}, "ostree": {Code: 1}}}
	got, err := NewRPMOstree(s.Host(t, nil)).Status(t.Context())
	if err != nil || len(got.Drift) != 1 || got.Drift[0].Kind != DriftSelfUpdates || !strings.HasPrefix(got.Drift[0].Detail, "Zincati (zincati.service)") {
		t.Fatalf("%+v %v", got, err)
	}
}

// Each of these is a change of the node that an image does not have.
func TestRPMOstreeLayered(t *testing.T) {
	for more, want := range map[string]string{
		`,"requested-local-fileoverride-packages":["x"]`:                                      "packages added: 1",
		`,"requested-base-remote-replacements":[["from repo",["kernel"]]]`:                    "packages replaced from repositories",
		`,"requested-base-remote-replacements":{"from repo=x":["kernel"]}`:                    "packages replaced from repositories",
		`,"requested-base-remote-replacements":{}`:                                            "",
		`,"requested-base-remote-replacements":[],"requested-local-fileoverride-packages":[]`: "",
		`,"initramfs-etc":["/etc/crypttab"]`:                                                  "an initramfs of its own",
	} {
		s := &Script{Answers: map[string]Answer{"rpm-ostree status --json": {Out: list("null", rpmEntry("aa", refA, "sha256:a", rpmBooted+more))}, "ostree": {Code: 1}}}
		got, err := NewRPMOstree(s.Host(t, nil)).Status(t.Context())
		if err != nil || got.Booted.Incompatible != (want != "") || (want == "") != (len(got.Drift) == 0) || want != "" && !strings.HasSuffix(got.Drift[0].Detail, want) {
			t.Errorf("%s: %+v %v", more, got, err)
		}
	}
	s := &Script{Answers: map[string]Answer{"rpm-ostree status --json": {Out: list("null", rpmEntry("aa", refA, "sha256:a", rpmBooted+`,"live-inprogress":"cc"`))}, "ostree": {Code: 1}}}
	if got, err := NewRPMOstree(s.Host(t, nil)).Status(t.Context()); err != nil || len(got.Drift) != 1 || got.Drift[0].Kind != DriftOverlay {
		t.Errorf("packages are applied live: %+v %v", got, err)
	}
}

// Verbs by what is there.
func TestVerbs(t *testing.T) {
	plain := list("null", rpmEntry("aa", refA, "sha256:a", rpmBooted), rpmEntry("bb", refB, "sha256:b", ""))
	pending := list("null", rpmEntry("cc", refB, "sha256:b", `,"staged":true,"finalization-locked":true`), rpmEntry("aa", refA, "sha256:a", rpmBooted), rpmEntry("bb", refB, "sha256:b", ""))
	queued := list("null", rpmEntry("bb", refB, "sha256:b", ""), rpmEntry("aa", refA, "sha256:a", rpmBooted))
	for name, c := range map[string]struct {
		doc, then string
		do        func(*testing.T, *RPMOstreeDriver) error
		want      []string
	}{
		"drop what is pending":              {pending, plain, func(t *testing.T, d *RPMOstreeDriver) error { return d.Discard(t.Context()) }, []string{"rpm-ostree cleanup --pending"}},
		"drop a rollback that was queued":   {queued, plain, func(t *testing.T, d *RPMOstreeDriver) error { return d.Discard(t.Context()) }, []string{"rpm-ostree rollback"}},
		"rollback":                          {plain, queued, func(t *testing.T, d *RPMOstreeDriver) error { return d.Rollback(t.Context()) }, []string{"rpm-ostree rollback"}},
		"rollback drops the pending one":    {pending, plain, func(t *testing.T, d *RPMOstreeDriver) error { return d.Rollback(t.Context()) }, []string{"rpm-ostree cleanup --pending", "rpm-ostree rollback"}},
		"a queued rollback is not repeated": {queued, queued, func(t *testing.T, d *RPMOstreeDriver) error { return d.Rollback(t.Context()) }, nil},
		"let go what is locked": {pending, pending, func(t *testing.T, d *RPMOstreeDriver) error {
			_, err := d.Activate(t.Context(), Target{})
			return err
		}, []string{"rpm-ostree finalize-deployment sha256:b"}},
		"let go what is locked, and is from no image": {strings.Replace(pending, `"container-image-reference-digest":"sha256:b"`, `"container-image-reference-digest":""`, 1), pending, func(t *testing.T, d *RPMOstreeDriver) error {
			_, err := d.Activate(t.Context(), Target{})
			return err
		}, []string{"rpm-ostree finalize-deployment cc"}},
		"nothing is locked": {plain, plain, func(t *testing.T, d *RPMOstreeDriver) error {
			_, err := d.Activate(t.Context(), Target{})
			return err
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Script{Answers: map[string]Answer{"rpm-ostree status --json": {Out: c.doc}, "rpm-ostree": {}}}
			s.Do = func(line string, s *Script) {
				if line != "rpm-ostree status --json" && !strings.HasSuffix(line, "--help") {
					s.Answers["rpm-ostree status --json"] = Answer{Out: c.then}
				}
			}
			if err := c.do(t, NewRPMOstree(s.Host(t, nil))); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, s.Changes()); d != "" {
				t.Fatal(d)
			}
		})
	}
}
