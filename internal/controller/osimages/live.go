package osimages

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/refit-dev/refit/internal/controller/ssa"
	"github.com/refit-dev/refit/internal/text"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/nodeconfigs"

	"github.com/refit-dev/refit/internal/controller/osimages/osbuild"

	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/osimage"
	"github.com/refit-dev/refit/internal/osimage/contents"
)

// mostWritten paths of a pool are written over those of an image at the same time.
const mostWritten = 2 * contents.MaxFiles

// decideReboot decides whether nodes have to boot the image of a decision: it compares the
// image with the one that they have. A Content stores the result, so that it is known while
// registries are unavailable, and after a restart.
func (r *Reconciler) decideReboot(ctx context.Context, w *imageSnapshot, x *poolPlan, s osimage.Situation, ways osbuild.Inputs) error {
	current := s.Comparable(x.decision)
	if current == nil {
		return nil
	}
	wanted := w.build(x.decision.Build)
	if current.Inputs.Output != "" || x.inputs.Output != "" {
		x.boot = "an image that nodes put together is in no registry, and is not compared"
		return nil
	}
	why, err := r.stayBlocker(ctx, w, x, current, ways)
	if err != nil || why != "" {
		x.boot = why
		return err
	}
	was, is := current.Digest, wanted.Status.Digest
	live, found := w.known(x, was, wanted)
	if !found {
		live, err = r.compare(ctx, w, x, current, wanted, ways)
		if err != nil || x.decision.Verb == osimage.Wait {
			return err
		}
	}
	if x.boot != "" {
		return nil
	}
	if n := len(join(x.before.Written, paths(live.Files))); n > mostWritten {
		x.boot = fmt.Sprintf("%d files would be written over those of the image, and at most %d are", n, mostWritten)
		return nil
	}
	return r.recordLive(ctx, w, x, s, wanted, live, was, is)
}

// recordLive writes down what was found, and decides with it.
func (r *Reconciler) recordLive(ctx context.Context, w *imageSnapshot, x *poolPlan, s osimage.Situation, wanted *v1alpha1.OSBuild, live contents.Live, was, is string) error {
	l := &v1alpha1.OSImageLive{Build: wanted.Name, Image: w.imageOf(x, wanted), Files: int32(len(live.Files))}
	say := "image " + l.Image + " (build " + wanted.Name + ") " + live.Summary
	if len(live.Files) > 0 {
		say += ": written without a reboot; the next image that needs one brings it"
	} else {
		say += ": nodes stay on the one that they have"
	}
	l.Message = text.Truncate(say, 1024)
	c, err := ssa.MakeContent(ctx, r.Client, v1alpha1.ContentOSLive, string(contents.SealFiles(was, is, live.Files)))
	if err != nil {
		return err
	}
	w.named[c.Name], w.contents[c.Name] = true, c
	l.Content, x.live, s.BootNotNeeded = c.Name, l, say
	x.decision = osimage.Decide(s)
	return nil
}

// imageOf a build, where nodes find it.
func (w *imageSnapshot) imageOf(x *poolPlan, b *v1alpha1.OSBuild) string {
	repository := x.image.Spec.PullRepository
	if repository == "" {
		repository = b.Spec.Repository
	}
	return repository + "@" + b.Status.Digest
}

// gatherLive at nodes and what their agents say, once.
func (r *Reconciler) gatherLive(ctx context.Context, w *imageSnapshot) (err error) {
	if w.site == nil {
		w.site, err = (&prepuller{Client: r.Client, Live: r.Live}).Gather(ctx)
	}
	return err
}

// stayBlocker says why nodes of a pool cannot stay on their image, empty if they can.
func (r *Reconciler) stayBlocker(ctx context.Context, w *imageSnapshot, x *poolPlan, current *osimage.Build, ways osbuild.Inputs) (why string, err error) {
	if err := r.gatherLive(ctx, w); err != nil {
		return "", err
	}
	booted := false
	for _, nu := range w.site.Reports(x.pool) {
		f := fieldsOf(nu)
		if d := f[model.FieldOSDriver]; d == "sysext" || d == "package" {
			return "node " + nu.Name + " takes no /etc from an image (" + d + ")", nil
		}
		at := f[model.FieldOSImage]
		booted = booted || at != "" && (at == current.Digest || slices.Contains(current.Manifests, at))
	}
	if !booted {
		return "no node has booted the image before", nil
	}
	if there, err := r.askRegistry(ctx, x.image, *current, ways.Transport(r.Over)); err != nil || there == osimage.Absent {
		return "the registry has the image before no more, and new nodes could not have it", err
	}
	return "", nil
}

func fieldsOf(nu *v1alpha1.NodeUpdate) map[string]string {
	if nu.Status.Observed == nil {
		return nil
	}
	return nu.Status.Observed.Fields
}

// known is what an earlier look has found about the same two images. The rules are asked
// again: they may have changed.
func (w *imageSnapshot) known(x *poolPlan, was string, wanted *v1alpha1.OSBuild) (live contents.Live, found bool) {
	l := x.before.Live
	if l == nil || l.Build != wanted.Name || w.contents[l.Content] == nil {
		return live, false
	}
	files, err := contents.OpenFiles([]byte(w.contents[l.Content].Data), was, wanted.Status.Digest)
	if err != nil {
		return live, false // of other images
	}
	live, x.boot = w.rules(x).Reapply(files)
	return live, true
}

func (w *imageSnapshot) rules(x *poolPlan) contents.Rules {
	return contents.Rules{Pool: nodeconfigs.Rules(x.pool)}
}

// compare reads what differs. A registry that does not answer makes the pool wait.
func (r *Reconciler) compare(ctx context.Context, w *imageSnapshot, x *poolPlan, current *osimage.Build, wanted *v1alpha1.OSBuild, ways osbuild.Inputs) (contents.Live, error) {
	rules := w.rules(x)
	var boots bool
	if rules.Known, boots = w.configPaths(x); boots {
		x.boot = "the pool's configuration has changes that need a reboot too"
		return contents.Live{}, nil
	}
	was, is := current.Inputs.Repository+"@"+current.Digest, wanted.Spec.Repository+"@"+wanted.Status.Digest
	if wait := r.inRetryDelay(was + is); wait {
		x.decision = waitDecision(x, "they could not be compared a moment ago, and it is tried again")
		return contents.Live{}, nil
	}
	keys, problem, err := osbuild.Keys(ctx, r.Live, osbuild.PushSecret(&x.image.Spec))
	if err != nil {
		return contents.Live{}, err
	}
	if problem != "" {
		x.boot = problem
		return contents.Live{}, nil
	}
	from, err := osbuild.RegistryReader(keys, ways.Transport(r.Over))
	if err != nil {
		return contents.Live{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, compareTime)
	defer cancel()
	found, err := compareImages(ctx, from, was, is, rules)
	if err != nil {
		r.startRetryDelay(was + is)
		x.decision = waitDecision(x, err.Error())
		return contents.Live{}, nil
	}
	x.boot = found.Boot
	return found.Live, nil
}

const (
	// compareTime bounds one comparison, compareRest is the time until the next try.
	compareTime = time.Minute
	compareRest = 30 * time.Second
	// maxTried failures are remembered; each saves questions only.
	maxTried = 64
)

func waitDecision(x *poolPlan, why string) osimage.Decision {
	return osimage.Decision{Verb: osimage.Wait, Build: x.decision.Build, Reason: v1alpha1.ReasonRegistryUnreachable,
		Why: "it is not known yet whether nodes have to boot the image of build " + x.decision.Build + ": " + why}
}

func (r *Reconciler) inRetryDelay(key string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, ok := r.tried[key]
	return ok && r.Now().Sub(at) < compareRest && !r.Now().Before(at)
}

func (r *Reconciler) startRetryDelay(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tried == nil || len(r.tried) > maxTried {
		r.tried = map[string]time.Time{}
	}
	r.tried[key] = r.Now()
}

// configPaths are the paths that the pool's configuration brings, then or now: it says itself
// what a change of them costs. boots: and some of what changed of it needs a reboot.
func (w *imageSnapshot) configPaths(x *poolPlan) (known map[string]bool, boots bool) {
	known = map[string]bool{}
	for _, e := range x.placed.Entries {
		known["/"+e.Path] = true
	}
	c := w.contents[x.before.Content]
	if c == nil {
		return known, true
	}
	old, err := osimage.OpenConfig([]byte(c.Data))
	if err != nil {
		return known, true
	}
	was, vs := osimage.PlaceConfig(old)
	if len(vs) > 0 {
		return known, true
	}
	for _, e := range was.Entries {
		known["/"+e.Path] = true
	}
	return known, isChanged(x, old).Reboots()
}

// writtenPaths are the paths of /etc that agents wrote for a pool over an image's, whichever
// OSImage had it then.
func (w *imageSnapshot) writtenPaths(pool string) (out []string) {
	for i := range w.images {
		for _, p := range w.images[i].Status.Pools {
			if p.Name == pool {
				out = join(out, p.Written)
			}
		}
	}
	return out
}

// livePart of a pool's status: which newer image is not booted, and what is written over
// the one that is.
func (r *Reconciler) livePart(ctx context.Context, w *imageSnapshot, x *poolPlan, st *v1alpha1.OSImagePool) error {
	switch x.decision.Verb {
	case osimage.Use, osimage.Keep:
		st.Live = x.live
	case osimage.Make, osimage.Remake, osimage.Ask, osimage.Wait, osimage.Stuck: // it stays what it was
	}
	switch {
	case x.boot != "" && x.decision.Verb == osimage.Use:
		st.Reboot = text.Truncate(x.boot, 1024)
	case st.Build != x.before.Build:
		st.Reboot = ""
	}
	var live []string
	if c := w.contents[contentOf(st.Live)]; c != nil {
		live = contents.SealedPaths([]byte(c.Data))
	}
	if st.Written = join(st.Written, live); len(st.Written) == 0 {
		st.Written = nil
		return nil
	}
	if err := r.gatherLive(ctx, w); err != nil {
		return err
	}
	w.dropRestoredPaths(x, st, live)
	return nil
}

func contentOf(l *v1alpha1.OSImageLive) string {
	if l == nil {
		return ""
	}
	return l.Content
}

// dropRestoredPaths drops the paths that every node has restored to those of its image: the
// next image replaces them by itself.
func (w *imageSnapshot) dropRestoredPaths(x *poolPlan, st *v1alpha1.OSImagePool, live []string) {
	reports := w.site.Reports(x.pool)
	_, digest, _ := strings.Cut(st.Image, "@")
	st.Written = slices.DeleteFunc(st.Written, func(path string) bool {
		return !slices.Contains(live, path) && !slices.ContainsFunc(reports, func(nu *v1alpha1.NodeUpdate) bool {
			f := fieldsOf(nu)
			return f[model.FieldFile+path] != model.ValueAsImage || f[model.FieldOSImage] != digest
		})
	})
	if len(st.Written) == 0 {
		st.Written = nil
	}
}

func paths(files []model.ConfigFile) (out []string) {
	for _, f := range files {
		out = append(out, f.Path)
	}
	return out
}

// join two lists, each path once, sorted.
func join(a, b []string) []string {
	out := append(slices.Clone(a), b...)
	slices.Sort(out)
	return slices.Compact(out)
}
