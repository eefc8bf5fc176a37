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
	"github.com/refit-dev/refit/internal/controller/bootstreams"
	"github.com/refit-dev/refit/internal/convert/rolloutfacts"
	"github.com/refit-dev/refit/internal/pipeline/rollout"
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
	// imageObject is the object that holds the image: the manager itself, or the
	// template that it refers to.
	imageObject  *unstructured.Unstructured
	imageListing *machineobjects.Listing
	ref          machinekinds.Reference

	query  ImageQuery
	stream *bootstreams.Stream
	image  bootstream.Image
	// upload is what a person must upload first, nil if nothing.
	upload *bootimage.Upload
	// edit is the edit of imageObject that sets the wanted image.
	edit *machinekinds.Edit

	// converted is the converted first-boot configuration that must be written before
	// the image, nil if there is none.
	converted *corev1.Secret
	// authority is the verdict about its CA certificates, nil if the policy does not
	// manage them.
	authority *authorityVerdict

	// canaryName is the manager of the canary for the wanted image, and canaryTemplate its
	// template.
	canaryName, canaryTemplate string

	in       bootimage.Input
	decision bootimage.Decision
	// written is what writeImage wrote, nil if nothing; staged names a template that is
	// ready.
	written *v1alpha1.BootImageWrite
	staged  string
	// wroteAt is when refit wrote the fields last, by managedFields.
	wroteAt time.Time
}

// candidates returns the machine managers that a policy selects and no earlier policy has
// claimed.
func (r *Reconciler) candidates(ctx context.Context, w *machineSnapshot, p *v1alpha1.BootImagePolicy) []*candidate {
	table := machinekinds.BuiltIn()
	if p.Spec.Kinds != nil && len(p.Spec.Kinds.Raw) > 0 {
		more, err := machinekinds.Parse(p.Spec.Kinds.Raw)
		if err != nil {
			w.addInvalid(p, "spec.kinds: "+err.Error())
			return nil
		}
		table, w.table = table.With(more), w.table.With(more)
	}
	var out []*candidate
	for i := range p.Spec.Managers {
		choice := &p.Spec.Managers[i]
		row, problem := rowOf(table, choice)
		if problem != "" {
			w.addInvalid(p, fmt.Sprintf("spec.managers[%d]%s", i, problem))
			continue
		}
		l := w.kinds.List(ctx, row.Group, row.Kind, row.Versions)
		if l.Err != nil {
			w.addUnread(p, l.Err)
			continue
		}
		for _, o := range l.Items {
			if machineobjects.IsCanary(o) {
				continue
			}
			c := &candidate{policy: p, choice: choice, table: table, row: row, object: o, listing: l, name: machineobjects.SourceName(row.Group, row.Kind, o.GetNamespace(), o.GetName())}
			if c.facts = table.Facts(row, o.Object); c.facts.PartOf == "" && w.claim(c) {
				out = append(out, c)
			}
		}
	}
	return out
}

// rowOf returns the row of an entry, or the problem with the entry.
func rowOf(table *machinekinds.Table, choice *v1alpha1.MachineSelection) (row *machinekinds.Manager, problem string) {
	row = table.Manager(choice.Group, choice.Kind)
	switch {
	case row == nil:
		return nil, fmt.Sprintf(": there is no row for %s of group %q", choice.Kind, choice.Group)
	case choice.Canary != nil && choice.Canary.Mode == v1alpha1.CanaryReplica && !row.Canary:
		return nil, fmt.Sprintf(".canary: a %s cannot be copied for one machine: set mode None", choice.Kind)
	}
	return row, ""
}

// claim claims a selected machine manager that no earlier entry has. An entry with select None
// claims it too, so that no later entry gets it, but it is no candidate.
func (w *machineSnapshot) claim(c *candidate) bool {
	switch {
	case w.claimed[c.name] || w.deselected[c.name] || !c.selected():
		return false
	case c.choice.Select == "None":
		w.deselected[c.name] = true
		return false
	}
	w.claimed[c.name] = true
	c.source = w.sources[c.name]
	return true
}

// selected reports whether namespace and labels match the policy's entry.
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

// decide gathers the facts and makes the decision.
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
		c.in.MadeIgnition, c.in.MadeBy = c.ref.UserDataSpec, fmt.Sprintf("%s %s (%s)", c.holder.Row.Kind, c.holder.Name, c.holder.Row.UserDataSpec)
		if err := c.chooseImage(w); err != nil {
			c.in.WantedErr = err.Error()
		}
	}
	c.recogniseImage(w)
	c.addHistory()
	c.addWriters()
	if c.in.Effect == machinekinds.Drifts && c.in.WantedErr == "" {
		c.in.DriftHeld = w.kinds.DriftHeld(ctx, c.object.GetName())
	}
	c.in.UserData, c.in.Running = c.userData(ctx, w), c.running(w)
	c.in.MinimumAge, c.in.Refused, c.in.RollbackBlocked = c.minimumAge(w), c.refused(), c.rollbackBlocked(w)
	c.in.TargetBlocked, c.in.Canary = c.blocked(w, c.in.WantedVersion), c.canary(ctx, w)
	c.decision = bootimage.Decide(c.in)
}

// running returns the update or the rollout that a write waits for, as Kind/name.
func (c *candidate) running(w *machineSnapshot) string {
	if w.update == "" && c.facts.RollingOut {
		return "the rollout of " + c.object.GetKind() + "/" + c.object.GetName()
	}
	return w.update
}

func (c *candidate) windowOpen(now time.Time) bool {
	if len(c.choice.Windows) == 0 {
		return true
	}
	ws, why := rolloutfacts.Windows(c.choice.Windows)
	return why == "" && rollout.FitWindows(ws, now, 0, 0).Open
}

// readObject finds the object that holds the image, and reads the image.
func (c *candidate) readObject(ctx context.Context, w *machineSnapshot) error {
	var err error
	if c.holder, err = c.table.Holder(c.row, c.object.Object); err != nil {
		return err
	}
	c.imageObject, c.imageListing = c.object, c.listing
	if k := c.holder.Row; c.holder.Name != "" {
		c.imageListing = w.kinds.List(ctx, k.Group, k.Kind, k.Versions)
		switch {
		case c.imageListing.Err != nil:
			return c.imageListing.Err
		case c.imageListing.Absent:
			return fmt.Errorf("the cluster does not serve kind %s of group %s", k.Kind, k.Group)
		}
		if c.imageObject = c.imageListing.ByName[c.object.GetNamespace()+"/"+c.holder.Name]; c.imageObject == nil {
			return fmt.Errorf("there is no %s %s/%s", k.Kind, c.object.GetNamespace(), c.holder.Name)
		}
	}
	c.ref, err = c.holder.Row.Read(c.imageObject.Object, c.holder.Part)
	c.query = ImageQuery{Choice: c.choice, Row: c.holder.Row, Ref: c.ref, Facts: c.facts, Architecture: w.architecture}
	if c.ref.Region == "" && c.choice.Region == "" {
		c.query.Region, c.query.RegionErr = machineobjects.Region(ctx, w.kinds, c.table, c.row, c.holder.Row, c.object, w.region)
	}
	return err
}

// findImage finds the image that the streams want.
func (c *candidate) findImage(w *machineSnapshot) (bootimage.Image, error) {
	version := cmp.Or(c.facts.Version, w.running)
	if c.in.Mode == bootimage.Piggyback && c.in.WantedVersion != "" {
		version = c.in.WantedVersion
	}
	if c.stream = bootstreams.Newest(w.streams, c.policy.Spec.Streams, version); c.stream == nil {
		return bootimage.Image{}, fmt.Errorf("none of the streams %s can be used for Kubernetes %q: see their conditions", strings.Join(c.policy.Spec.Streams, ", "), version)
	}
	var err error
	if c.image, err = c.query.Find(c.stream); err != nil {
		if errors.Is(err, bootstream.ErrNone) && c.facts.OSStream != "" {
			c.in.Excluded = cmp.Or(c.in.Excluded, "it is of OS stream "+c.facts.OSStream+", which is not in the boot image stream")
		}
		return bootimage.Image{}, err
	}
	return bootimage.Image{OS: c.image.Version, Release: c.stream.Data.ReleaseOf(c.image)}, nil
}

// chooseImage chooses the wanted image, of a rollback or of a stream, and prepares the edit.
func (c *candidate) chooseImage(w *machineSnapshot) error {
	wanted, err := c.findImage(w)
	if r := c.heldRollback(wanted); r != nil {
		return c.chooseFormer(r)
	}
	if err != nil {
		return err
	}
	var named bool
	c.upload, named = c.query.Upload(c.stream.Name, c.image, c.holder.Row.Needs(c.imageObject.Object, c.holder.Part))
	c.in.NotUploaded = c.upload != nil
	c.in.Wanted = wanted
	if c.in.NotUploaded && !named {
		c.in.Wanted.Text = c.upload.File
		return nil
	}
	edit := machinekinds.NewEdit(c.imageObject.Object)
	if err := c.holder.Row.Write(edit, c.holder.Part, c.query.Names(c.image)); err != nil {
		return err
	}
	c.edit, c.in.Same = edit, !edit.Changed()
	now, err := c.holder.Row.Read(edit.Object, c.holder.Part)
	c.in.Wanted.Text = now.Text
	return err
}

// recogniseImage finds out which image is there: one of a stream, one that refit wrote, or the
// vendor's own.
func (c *candidate) recogniseImage(w *machineSnapshot) {
	if c.in.Same && c.in.WantedErr == "" {
		c.in.Recognised, c.in.Current = true, c.in.Wanted
		return
	}
	if c.holder.Row == nil || len(c.ref.Attributes) == 0 {
		return
	}
	if !c.anyStream(w, c.recognisedBy) && !c.wasWritten() {
		c.anyStream(w, c.isStock)
	}
}

// anyStream reports whether a condition is true for any of the policy's streams.
func (c *candidate) anyStream(w *machineSnapshot, is func(*bootstreams.Stream) bool) bool {
	return slices.ContainsFunc(c.policy.Spec.Streams, func(name string) bool {
		s := w.streams[name]
		return s != nil && is(s)
	})
}

// wasWritten recognises an image from the history of refit's writes.
func (c *candidate) wasWritten() bool {
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

// isStock recognises the vendor's own image of a release that no stream here describes.
func (c *candidate) isStock(s *bootstreams.Stream) (ok bool) {
	c.in.Current.OS, ok = c.query.Stock(s)
	c.in.Recognised = ok
	return ok
}

func (c *candidate) recognisedBy(s *bootstreams.Stream) bool {
	i, ok := c.query.Recognise(s)
	if ok {
		c.in.Recognised, c.in.Current.OS, c.in.Current.Release = true, i.Version, s.Data.ReleaseOf(i)
	}
	return ok
}

func (c *candidate) addHistory() {
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

// addWriters adds the field managers of the fields that refit would write.
func (c *candidate) addWriters() {
	if c.edit == nil {
		return
	}
	target, fields := c.object, [][]string{}
	switch {
	case c.holder.Name != "" && c.holder.Row.Immutable:
		fields = append(fields, strings.Split(c.holder.NamePath, "."))
	default:
		target = c.imageObject
		for _, op := range c.edit.Ops() {
			fields = append(fields, bootimage.KeysOf(op.Path))
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
	c.in.Owner = cmp.Or(c.in.Owner, bootimage.ForeignOwner(writers, fields, isOurs))
	c.in.UndoneBy, c.in.ForeignAt = bootimage.LastForeignWriter(writers, fields, isOurs)
	_, c.wroteAt = bootimage.LastForeignWriter(writers, fields, func(manager string) bool { return manager != FieldOwner })
}

func isOurs(manager string) bool { return strings.HasPrefix(manager, "refit") }
