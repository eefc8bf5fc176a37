package bench

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/refit-dev/refit/internal/registry/registrytest"
)

// hashPass is set in the process that reads every blob of a layout once and hashes it.
const hashPass = "REFIT_BENCH_HASH_PASS"

// craneChecks of the images are checked by crane, which takes ten seconds for each.
const craneChecks = 3

// createRuns is how often each program runs, in turns; the least processor time counts.
const createRuns = 3

// peers that copy the same images from the same registry to a disk, as Go modules.
var createPeers = map[string]string{
	"crane": "github.com/google/go-containerregistry/cmd/crane@v0.20.6",
	"oras":  "oras.land/oras/cmd/oras@v1.2.3",
}

// runHashPass hashes every blob of an OCI layout.
func runHashPass(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "blobs", "sha256", "*"))
	if err != nil {
		return err
	}
	buf := make([]byte, 1<<20)
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		h := sha256.New()
		_, err = io.CopyBuffer(h, struct{ io.Reader }{f}, buf)
		f.Close()
		if err != nil {
			return err
		}
		if got := fmt.Sprintf("%x", h.Sum(nil)); got != filepath.Base(name) {
			return fmt.Errorf("blob %s has digest %s", name, got)
		}
	}
	return nil
}

// cost of one run of a program.
type cost struct {
	Seconds    float64 `json:"seconds"`
	CPUSeconds float64 `json:"cpuSeconds"`
	PeakMiB    float64 `json:"peakRSSMiB"` // of the largest process
}

// run runs commands one after the other and adds up what they cost.
func run(t *testing.T, env []string, commands ...[]string) cost {
	t.Helper()
	var out cost
	began := time.Now()
	for _, argv := range commands {
		c := exec.Command(argv[0], argv[1:]...)
		c.Env = append(os.Environ(), env...)
		text, peak, err := runPeak(c)
		if err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, text)
		}
		out.CPUSeconds += (c.ProcessState.UserTime() + c.ProcessState.SystemTime()).Seconds()
		out.PeakMiB = max(out.PeakMiB, float64(peak)/(1<<20))
	}
	out.Seconds = time.Since(began).Seconds()
	return out
}

// peerProgram builds a peer once for the user.
func peerProgram(t *testing.T, name string) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	version := createPeers[name][strings.LastIndex(createPeers[name], "@")+1:]
	bin := filepath.Join(cache, "refit", "bench", version)
	path := filepath.Join(bin, name)
	if _, err := os.Stat(path); err == nil {
		return path
	}
	c := exec.Command("go", "install", "-trimpath", createPeers[name])
	c.Env = append(os.Environ(), "GOBIN="+bin, "GOFLAGS=")
	if text, err := c.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", name, err, text)
	}
	return path
}

// TestCreate makes a bundle of thirty images from a registry. crane copies the same images
// to a disk; a bundle needs one more hash of every byte, for its chunks. So crane and one
// pass of SHA-256 are the measure.
func TestCreate(t *testing.T) {
	resultsDir(t)
	refit, err := filepath.Abs("../bin/refit")
	if err != nil {
		t.Fatal(err)
	}
	set, reg := makeImageSet(t), registrytest.Start(t)
	var refs, sources []string
	for i := range set.images {
		ref := reg.Ref(fmt.Sprintf("app%02d:1", i))
		refs, sources = append(refs, ref), append(sources, "docker://"+ref)
		run(t, nil, []string{"skopeo", "--insecure-policy", "copy", "--preserve-digests", "--dest-tls-verify=false",
			fmt.Sprintf("oci:%s:registry.example/app%02d:1", set.dir, i), "docker://" + ref})
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	crane, oras := peerProgram(t, "crane"), peerProgram(t, "oras")
	checks := checkers(t, set, refs, refit, crane, oras)
	best, checked := map[string]cost{}, map[string]cost{}
	for n := range createRuns {
		dir := filepath.Join(t.TempDir(), fmt.Sprint(n)) // of one program at a time: each writes some gigabytes
		at := func(name string) string { return filepath.Join(dir, name) }
		oci, layout := at("skopeo"), at("oras")
		var skopeo, orasCopies [][]string
		for i, ref := range refs {
			skopeo = append(skopeo, []string{"skopeo", "--insecure-policy", "copy", "--src-tls-verify=false", "docker://" + ref, fmt.Sprintf("oci:%s:app%02d", oci, i)})
			orasCopies = append(orasCopies, []string{oras, "cp", "--from-plain-http", "--no-tty", "--to-oci-layout", ref, fmt.Sprintf("%s:app%02d", layout, i)})
		}
		for name, f := range map[string]func() cost{
			"sha256": func() cost { return run(t, []string{hashPass + "=" + set.dir}, []string{self}) },
			"crane": func() cost {
				return run(t, nil, append([]string{crane, "pull", "--insecure", "--format=oci"}, append(refs, at("crane"))...))
			},
			"skopeo": func() cost { return run(t, nil, skopeo...) },
			"oras":   func() cost { return run(t, nil, orasCopies...) },
			"refit": func() cost {
				return run(t, nil, append([]string{refit, "bundle", "create", "--unsigned", "--output", at("a")}, sources...))
			},
			"refit-oci": func() cost {
				return run(t, nil, []string{refit, "bundle", "create", "--unsigned", "--output", at("b"), "oci:" + set.dir})
			},
			"refit-verify": func() cost {
				return run(t, nil, []string{refit, "bundle", "create", "--unsigned", "--check-layers", "--output", at("c"), "oci:" + set.dir})
			},
		} {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			c := f()
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			keepLeast(t, best, name, c)
		}
		for name, commands := range checks {
			keepLeast(t, checked, name, run(t, nil, commands...))
		}
	}
	ratio := best["refit"].CPUSeconds / (best["crane"].CPUSeconds + best["sha256"].CPUSeconds)
	verifyRatio := checked["refit"].CPUSeconds / best["sha256"].CPUSeconds
	writeResult(t, "create.json", map[string]any{
		"machine": thisMachine(), "load": load(), "bytes": set.bytes, "runs": createRuns, "best": best, "ratio": ratio, "verify": checked, "verifyRatio": verifyRatio, "refitPeakRSSMiB": best["refit"].PeakMiB,
		"what": "thirty images from a registry on this machine into one bundle (refit) or to a disk (crane, oras, skopeo). refit-oci and refit-verify (with --check-layers) read a layout. sha256 reads and hashes every byte once. " +
			"The ratio is refit's processor time to that of crane and sha256 together. verify: the same images on this disk, checked by refit bundle verify. The peers have no check of a copy as it is. " +
			"crane validates archives of three of the images, and unpacks them for that. oras and skopeo check a layout while they copy it once more. Its ratio is refit's processor time to that of sha256. The least time and the largest memory of all runs count (make bench-site)",
	})
	if ratio > 1.15 {
		t.Errorf("bundle create takes %.2f of the processor time of crane and one hash pass, the promise is 1.15", ratio)
	}
	if verifyRatio > 1.4 {
		t.Errorf("bundle verify takes %.2f of the processor time of one hash pass, the promise is 1.4", verifyRatio)
	}
	for name, got := range map[string]float64{"create": best["refit"].PeakMiB, "verify": checked["refit"].PeakMiB} {
		if got > 40 {
			t.Errorf("bundle %s takes %.1f MiB, the promise is 40", name, got)
		}
	}
}

// checkers makes copies, and returns the commands with which each program checks the images once they are on a disk.
func checkers(t *testing.T, set *imageSet, refs []string, refit, crane, oras string) map[string][][]string {
	t.Helper()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	digest, err := exec.Command(refit, "bundle", "create", "--unsigned", "--output", at("bundle"), "oci:"+set.dir).Output()
	if err != nil {
		t.Fatalf("bundle create: %v", err)
	}
	out := map[string][][]string{"refit": {{refit, "bundle", "verify", at("bundle"), "--digest", strings.TrimSpace(string(digest))}}}
	for i, ref := range refs {
		app := fmt.Sprintf("app%02d", i)
		if i < craneChecks {
			run(t, nil, []string{crane, "pull", "--insecure", ref, at(app + ".tar")})
		}
		run(t, nil, []string{oras, "cp", "--from-plain-http", "--no-tty", "--to-oci-layout", ref, at("layout:" + app)})
		if i < craneChecks {
			out["crane"] = append(out["crane"], []string{crane, "validate", "--tarball", at(app + ".tar")})
		}
		out["oras"] = append(out["oras"], []string{oras, "cp", "--no-tty", "--from-oci-layout", at("layout:" + app), "--to-oci-layout", at("oras:" + app)})
		out["skopeo"] = append(out["skopeo"], []string{"skopeo", "--insecure-policy", "copy", fmt.Sprintf("oci:%s:registry.example/app%02d:1", set.dir, i), "dir:" + at("skopeo/"+app)})
	}
	// A copy of the run before would spare the next one its work.
	out["oras"] = append([][]string{{"rm", "-rf", at("oras")}}, out["oras"]...)
	out["skopeo"] = append([][]string{{"rm", "-rf", at("skopeo")}, {"mkdir", at("skopeo")}}, out["skopeo"]...)
	return out
}

// keepLeast keeps the least time and the largest memory of all runs of a program.
func keepLeast(t *testing.T, best map[string]cost, name string, c cost) {
	t.Helper()
	t.Logf("%s: %.1f s, cpu %.2f s, %.1f MiB, load %s", name, c.Seconds, c.CPUSeconds, c.PeakMiB, load())
	if b, ok := best[name]; ok {
		c = cost{Seconds: min(b.Seconds, c.Seconds), CPUSeconds: min(b.CPUSeconds, c.CPUSeconds), PeakMiB: max(b.PeakMiB, c.PeakMiB)}
	}
	best[name] = c
}
