package bootimages

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/bootimage"
	"github.com/refit-dev/refit/internal/bootimage/bootstream"
	"github.com/refit-dev/refit/internal/bootimage/machinekinds"

	"github.com/refit-dev/refit/internal/controller/bootimages/machineobjects"
	"github.com/refit-dev/refit/internal/controller/bootimages/userdata"
	"github.com/refit-dev/refit/internal/controller/bootstreams"
	"github.com/refit-dev/refit/internal/convert/rolloutfacts"
	"github.com/refit-dev/refit/internal/pipeline/rollout/window"
)

// candidate is one machine manager that a policy selects.
type candidate struct {
	policy  *v1alpha1.BootImagePolicy
	choice  *v1alpha1.MachineSelection
	table   *machinekinds.Table
	row     *machinekinds.Manager
	object  *unstructured.Unstructured
	listing *machineobjects.Listing
	name    string // of its MachineSource
	source  *v1alpha1.MachineSource

	facts  machinekinds.Facts
	holder machinekinds.Holder
	// held is the object that holds the image, the manager itself unless it
	// refers to another.
	held        *unstructured.Unstructured
	heldListing *machineobjects.Listing
	ref         machinekinds.Reference

	asker  Asker
	stream *bootstreams.Stream
	image  bootstream.Image
	// upload is what a person must do first, nil for nothing.
	upload *bootimage.Upload
	// edit of held that brings the wanted image.
	edit *machinekinds.Edit

	// stub is the converted first-boot configuration that is to be written before
	// the image, nil for none.
	stub *corev1.Secret
	// authority in it, nil if the policy does not look after that.
	authority *userdata.Verdict

	in       bootimage.Input
	decision bootimage.Decision
	// written says what act did, nil for nothing; staged names a template that is
	// ready.
	written *v1alpha1.BootImageWrite
	staged  string
}

// candidates are the machine managers of a policy that no earlier one has.
func (r *Reconciler) candidates(ctx context.Context, w *machineSnapshot, p *v1alpha1.BootImagePolicy) []*candidate {
	table := machinekinds.BuiltIn()
	if p.Spec.Kinds != nil && len(p.Spec.Kinds.Raw) > 0 {
		more, err := machinekinds.Parse(p.Spec.Kinds.Raw)
		if err != nil {
			w.problem(p, "spec.kinds: "+err.Error())
			return nil
		}
		table, w.table = table.With(more), w.table.With(more)
	}
	var out []*candidate
	for i := range p.Spec.Managers {
		choice := &p.Spec.Managers[i]
		row := table.Manager(choice.Group, choice.Kind)
		if row == nil {
			w.problem(p, fmt.Sprintf("spec.managers[%d]: there is no row for %s of group %q", i, choice.Kind, choice.Group))
			continue
		}
		l := w.kinds.List(ctx, row.Group, row.Kind, row.Versions)
		if l.Err != nil {
			w.problem(p, l.Err.Error())
			continue
		}
		for _, o := range l.Items {
			c := &candidate{policy: p, choice: choice, table: table, row: row, object: o, listing: l, name: machineobjects.SourceName(row.Group, row.Kind, o.GetNamespace(), o.GetName())}
			if c.facts = table.Facts(row, o.Object); c.facts.PartOf == "" && w.claim(c) {
				out = append(out, c)
			}
		}
	}
	return out
}

// claim takes what is selected and nobody has. What is selected to None is
// claimed too, so that no later entry takes it, and is no candidate.
func (w *machineSnapshot) claim(c *candidate) bool {
	switch {
	case w.claimed[c.name] || w.none[c.name] || !c.selected():
		return false
	case c.choice.Select == "None":
		w.none[c.name] = true
		return false
	}
	w.claimed[c.name] = true
	c.source = w.sources[c.name]
	return true
}

func (w *machineSnapshot) problem(p *v1alpha1.BootImagePolicy, what string) {
	w.problems[p.Name], w.partial = append(w.problems[p.Name], what), true
}

// selected by namespace and labels.
func (c *candidate) selected() bool {
	if ns := c.choice.Namespaces; len(ns) > 0 && !slices.Contains(ns, c.object.GetNamespace()) {
		return false
	}
	if c.choice.Select != "Partial" {
		return true
	}
	s, err := metav1.LabelSelectorAsSelector(c.choice.Selector)
	return err == nil && c.choice.Selector != nil && s.Matches(labels.Set(c.object.GetLabels()))
}

// decide gathers what is known and decides.
func (c *candidate) decide(ctx context.Context, w *machineSnapshot) {
	c.in = bootimage.Input{Now: w.now, Mode: string(cmp.Or(c.choice.Mode, v1alpha1.BootImageObserve)), Adopt: c.choice.Adopt,
		Deleting: c.facts.Deleting, Excluded: c.facts.Excluded, Owner: c.facts.Owner, Effect: c.facts.Effect,
		Version: c.facts.Version, WantedVersion: c.object.GetAnnotations()[v1alpha1.AnnotationWantedVersion], WindowOpen: c.windowOpen(w.now)}
	if err := c.readObject(ctx, w); err != nil {
		c.in.WantedErr = err.Error()
	} else {
		c.in.Excluded = cmp.Or(c.in.Excluded, c.ref.Excluded)
		c.in.Effect = cmp.Or(c.ref.Effect, c.in.Effect)
		c.in.Current = bootimage.Image{Text: c.ref.Text}
		if err := c.want(w); err != nil {
			c.in.WantedErr = err.Error()
		}
	}
	c.recognise(w)
	c.past()
	c.writers()
	if c.in.Effect == machinekinds.Drifts && c.in.WantedErr == "" {
		c.in.DriftHeld = w.kinds.DriftHeld(ctx, c.object.GetName())
	}
	c.in.UserData = c.userData(ctx, w)
	c.in.TooFresh = c.tooFresh(w)
	c.in.TargetBlocked = c.blocked(w, c.in.WantedVersion)
	c.decision = bootimage.Decide(c.in)
}

func (c *candidate) windowOpen(now time.Time) bool {
	if len(c.choice.Windows) == 0 {
		return true
	}
	ws, why := rolloutfacts.Windows(c.choice.Windows)
	return why == "" && window.FitIn(ws, now, 0, 0).Open
}

// readObject finds the object that holds the image, and the image.
func (c *candidate) readObject(ctx context.Context, w *machineSnapshot) error {
	var err error
	if c.holder, err = c.table.Holder(c.row, c.object.Object); err != nil {
		return err
	}
	c.held, c.heldListing = c.object, c.listing
	if k := c.holder.Row; c.holder.Name != "" {
		c.heldListing = w.kinds.List(ctx, k.Group, k.Kind, k.Versions)
		switch {
		case c.heldListing.Err != nil:
			return c.heldListing.Err
		case c.heldListing.Absent:
			return fmt.Errorf("the cluster does not serve kind %s of group %s", k.Kind, k.Group)
		}
		if c.held = c.heldListing.ByName[c.object.GetNamespace()+"/"+c.holder.Name]; c.held == nil {
			return fmt.Errorf("there is no %s %s/%s", k.Kind, c.object.GetNamespace(), c.holder.Name)
		}
	}
	c.ref, err = c.holder.Row.Read(c.held.Object, c.holder.Part)
	c.asker = Asker{Choice: c.choice, Row: c.holder.Row, Ref: c.ref, Facts: c.facts, Architecture: w.architecture}
	if c.ref.Region == "" && c.choice.Region == "" {
		c.asker.Region, c.asker.RegionErr = Region(ctx, w.kinds, c.table, c.row, c.holder.Row, c.object, w.region)
	}
	return err
}

// want finds the wanted image and edits a copy.
func (c *candidate) want(w *machineSnapshot) error {
	version := cmp.Or(c.facts.Version, w.running)
	if c.in.Mode == bootimage.Piggyback && c.in.WantedVersion != "" {
		version = c.in.WantedVersion
	}
	if c.stream = bootstreams.Newest(w.streams, c.policy.Spec.Streams, version); c.stream == nil {
		return fmt.Errorf("none of the streams %s can be used for Kubernetes %q: see their conditions", strings.Join(c.policy.Spec.Streams, ", "), version)
	}
	var err error
	if c.image, err = c.asker.Find(c.stream); err != nil {
		if errors.Is(err, bootstream.ErrNone) && c.facts.OSStream != "" {
			c.in.Excluded = cmp.Or(c.in.Excluded, "it is of OS stream "+c.facts.OSStream+", which is not in the boot image stream")
		}
		return err
	}
	var named bool
	c.upload, named = c.asker.Upload(c.stream.Name, c.image, c.holder.Row.Needs(c.held.Object, c.holder.Part))
	c.in.NotUploaded = c.upload != nil
	if c.in.NotUploaded && !named {
		c.in.Wanted = bootimage.Image{Text: c.upload.File, OS: c.image.Version, Release: c.stream.Data.ReleaseOf(c.image)}
		return nil
	}
	edit := machinekinds.NewEdit(c.held.Object)
	if err := c.holder.Row.Write(edit, c.holder.Part, c.asker.Names(c.image)); err != nil {
		return err
	}
	c.edit, c.in.Same = edit, !edit.Changed()
	now, err := c.holder.Row.Read(edit.Object, c.holder.Part)
	c.in.Wanted = bootimage.Image{Text: now.Text, OS: c.image.Version, Release: c.stream.Data.ReleaseOf(c.image)}
	return err
}

// recognise the image that is there: a stream has it, or refit wrote it.
func (c *candidate) recognise(w *machineSnapshot) {
	if c.in.Same && c.in.WantedErr == "" {
		c.in.Recognised, c.in.Current = true, c.in.Wanted
		return
	}
	if c.holder.Row == nil || len(c.ref.Attributes) == 0 {
		return
	}
	if !c.anyStream(w, c.recognisedBy) && !c.remembered() {
		c.anyStream(w, c.stock)
	}
}

// anyStream of the policy of which something is true.
func (c *candidate) anyStream(w *machineSnapshot, is func(*bootstreams.Stream) bool) bool {
	return slices.ContainsFunc(c.policy.Spec.Streams, func(name string) bool {
		s := w.streams[name]
		return s != nil && is(s)
	})
}

// remembered: refit wrote it.
func (c *candidate) remembered() bool {
	if c.source == nil {
		return false
	}
	for _, h := range slices.Backward(c.source.Status.History) {
		if h.To == c.ref.Text {
			c.in.Recognised, c.in.Current.OS, c.in.Current.Release = true, h.OS, h.Release
			return true
		}
	}
	return false
}

// stock: it is the vendor's own, of a release whose stream is not here.
func (c *candidate) stock(s *bootstreams.Stream) (ok bool) {
	c.in.Current.OS, ok = c.asker.Stock(s)
	c.in.Recognised = ok
	return ok
}

func (c *candidate) recognisedBy(s *bootstreams.Stream) bool {
	i, ok := c.asker.Recognise(s)
	if ok {
		c.in.Recognised, c.in.Current.OS, c.in.Current.Release = true, i.Version, s.Data.ReleaseOf(i)
	}
	return ok
}

func (c *candidate) past() {
	contest := c.policy.Spec.Contest
	c.in.Contest = bootimage.Contest{Writes: int(cmp.Or(contest.Writes, 3)), Window: time.Duration(cmp.Or(contest.WindowMinutes, 360)) * time.Minute,
		Quiet: time.Duration(cmp.Or(contest.QuietMinutes, 60)) * time.Minute}
	if c.source == nil {
		return
	}
	for _, h := range c.source.Status.History {
		c.in.Past = append(c.in.Past, bootimage.Past{At: h.WrittenAt.Time, To: h.To})
	}
}

// writers of the field that would be written.
func (c *candidate) writers() {
	if c.edit == nil {
		return
	}
	target, fields := c.object, [][]string{}
	switch {
	case c.holder.Name != "" && c.holder.Row.Immutable:
		fields = append(fields, strings.Split(c.holder.NamePath, "."))
	default:
		target = c.held
		for _, op := range c.edit.Ops() {
			fields = append(fields, keysOf(op.Path))
		}
	}
	var writers []bootimage.Writer
	for _, f := range target.GetManagedFields() {
		wr := bootimage.Writer{Name: f.Manager, Applies: f.Operation == metav1.ManagedFieldsOperationApply}
		if f.Time != nil {
			wr.At = f.Time.Time
		}
		if f.FieldsV1 != nil {
			wr.Fields = f.FieldsV1.GetRawBytes()
		}
		writers = append(writers, wr)
	}
	c.in.Owner = cmp.Or(c.in.Owner, bootimage.Owner(writers, fields, isOurs))
	c.in.UndoneBy, c.in.ForeignAt = bootimage.Last(writers, fields, isOurs)
}

func isOurs(manager string) bool { return strings.HasPrefix(manager, "refit") }

// keysOf a JSON pointer up to the first list.
func keysOf(pointer string) []string {
	var out []string
	for _, s := range strings.Split(strings.TrimPrefix(pointer, "/"), "/") {
		if s != "" && strings.Trim(s, "0123456789") == "" {
			break
		}
		out = append(out, strings.ReplaceAll(strings.ReplaceAll(s, "~1", "/"), "~0", "~"))
	}
	return out
}
