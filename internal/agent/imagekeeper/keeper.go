package imagekeeper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/refit-dev/refit/internal/agent/host/containerd"
	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/fsutil/statefile"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/pin"
)

// Runtime holds images.
type Runtime interface {
	// Present lists what is there, as CRI reports it.
	Present(ctx context.Context) ([]pin.Present, error)
	// Load brings an image in and pins it; Pin pins one that is there (ok is
	// false if it is not). Both return the names that carry the pin.
	Load(ctx context.Context, img containerd.Image, blobs containerd.Blobs) (names []string, err error)
	Pin(ctx context.Context, img containerd.Image) (names []string, ok bool, err error)
	Unpin(ctx context.Context, names []string) error
}

// Puller is a Runtime that can fetch an image from a registry itself, and pins
// it as Load does.
type Puller interface {
	Pull(ctx context.Context, img containerd.Image) (names []string, err error)
}

// Preparer is a Runtime whose configuration takes images and pins: it is told of a
// whole pass beforehand, since telling it takes longer than an image does.
type Preparer interface {
	// Names by which Load and Pin will pin an image.
	Names(img containerd.Image) []string
	// Prepare pins names, those of images that come now among them, and what was
	// pinned before if that was lost; load are the images that Load is called for
	// afterwards. end is called when that is over, in any case.
	Prepare(ctx context.Context, names []string, load []containerd.Image, blobs containerd.Blobs) (end func(context.Context) error, err error)
}

// Source knows the images of bundles.
type Source interface {
	// Image describes a held image; ok is false while not all its blobs are here.
	Image(img model.HeldImage) (out containerd.Image, ok bool)
	// MayPull reports whether the runtime may fetch it from a registry now.
	MayPull(img model.HeldImage) bool
	containerd.Blobs
}

// Result is what the node holds now.
type Result struct {
	// Total of bundles, held and pinned; of registries FetchedTotal, and Fetched
	// that are held and pinned.
	Total, Held, Pinned   int
	FetchedTotal, Fetched int
	// Waiting counts images whose blobs are not all here.
	Waiting int
	// Failed says which image could not be loaded or pinned, and why.
	Failed map[string]error
	// Restored are images that were held and pinned, were gone, and are back.
	Restored []Restored
}

// Restored is an image that came back.
type Restored struct {
	Image model.HeldImage
	// Own: from the blobs that this node had; otherwise they had to come again.
	Own bool
}

// Complete reports that everything of bundles is held and pinned.
func (r Result) Complete() bool { return r.Pinned == r.Total && r.Held == r.Total }

// Parallel is a Runtime that can load several images at once: unpacking is work for
// a processor, and one image alone keeps but one of them busy.
type Parallel interface{ AtOnce() int }

// Keeper keeps one node's images. One Sync at a time.
type Keeper struct {
	runtime Runtime
	path    string

	// mu guards what follows, and the result of a Sync: images are loaded side by side.
	mu  sync.Mutex
	own pin.Own
	// lost: the record was damaged, and what of it the runtime knows is not read yet.
	lost bool
	// unsaved: the record could not be written.
	unsaved bool
	note    statefile.Note
	// had are the images that were held and pinned last, false for those whose
	// blobs were not here either when they were missed. What is in the record at
	// the start counts: it was pinned by an agent before this one.
	had map[string]bool
}

// Owner is a Runtime that knows which pins are refit's own.
type Owner interface {
	// OwnPins are the names that carry a pin of refit.
	OwnPins(ctx context.Context) ([]string, error)
}

// recovered is the key in the record for pins of refit whose image is not known, since
// the record was lost. No image has it, so they go once all images that are wanted have
// pins of their own.
const recovered = "recovered"

// contactFile names, by the installer, the images of refit itself.
const contactFile = "first-contact.json"

// NewKeeper reads the record of own pins in dir. If it is damaged it is rebuilt from what
// the runtime knows; a pin that others made is never in it.
func NewKeeper(rt Runtime, dir string, note statefile.Note) *Keeper {
	k := &Keeper{runtime: rt, path: filepath.Join(dir, "pins.json"), own: pin.Own{}, had: map[string]bool{}, note: note}
	damaged := func(p statefile.Problem) {
		k.lost = true
		note(p)
	}
	if !statefile.Read(k.path, "the record of pins is rebuilt from what the container runtime has", k.decode, damaged) {
		k.own = pin.Own{}
	}
	for key, names := range k.own {
		if len(names) > 0 && key != recovered {
			k.had[key] = true
		}
	}
	return k
}

func (k *Keeper) decode(b []byte) error {
	err := json.Unmarshal(b, &k.own)
	if err == nil && k.own == nil {
		return errors.New("it is no record of pins")
	}
	return err
}

// recover brings back the pins of a record that was lost. The images that the installer
// pinned stay out of it: they are not of a hold list and must not be released.
func (k *Keeper) recover(ctx context.Context) error {
	rt, ok := k.runtime.(Owner)
	if !k.lost || !ok {
		return nil
	}
	names, err := rt.OwnPins(ctx)
	if err != nil {
		return err
	}
	var contact struct{ Names []string }
	statefile.Read(filepath.Join(filepath.Dir(k.path), contactFile), "only uninstall needs it", func(b []byte) error { return json.Unmarshal(b, &contact) }, k.note)
	names = slices.DeleteFunc(names, func(n string) bool { return slices.Contains(contact.Names, n) })
	k.lost = false
	if len(names) == 0 {
		return nil
	}
	k.own[recovered] = names
	return k.save()
}

// settled is the record by which pins are released: without those whose image is not
// known as long as a wanted image has no pin of its own, since it may be one of theirs.
func (k *Keeper) settled(r Result) pin.Own {
	if r.Waiting == 0 && len(r.Failed) == 0 {
		return k.own
	}
	own := maps.Clone(k.own)
	delete(own, recovered)
	return own
}

// Known are the images (by pin.Key) that were held and pinned once and are still
// wanted, false for those whose blobs were gone too when they were missed: somebody
// may be waiting for them. It may be called at any time.
func (k *Keeper) Known() map[string]bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.had)
}

// Sync does what is missing and says what is there then. progress is called
// after every load; it never says that everything is pinned, the end does.
func (k *Keeper) Sync(ctx context.Context, want []model.HeldImage, src Source, progress func(Result)) (Result, error) {
	have, err := k.runtime.Present(ctx)
	if err == nil {
		err = k.recover(ctx)
	}
	if err != nil {
		return Result{}, err
	}
	if k.unsaved { // there may be room now
		if err := k.save(); err != nil {
			return Result{}, err
		}
	}
	d := pin.Decide(want, have, k.own)
	l := model.HoldList{Images: want}
	r := Result{Held: d.Held, Pinned: d.Pinned, Fetched: d.Fetched, Failed: map[string]error{}}
	r.Total, r.FetchedTotal = l.Counts()
	end, err := k.prepare(ctx, d, src)
	if err == nil && !d.Done() {
		r, err = k.work(ctx, want, have, d, src, r, progress)
	}
	// Whatever became of it: what was for loading only goes away.
	return r, errors.Join(err, end(context.WithoutCancel(ctx)))
}

// prepare tells a runtime that wants to be told what comes. The names are in the
// record first: what a crash leaves pinned is known, and let go if it is not wanted.
func (k *Keeper) prepare(ctx context.Context, d pin.Decision, src Source) (end func(context.Context) error, err error) {
	rt, ok := k.runtime.(Preparer)
	if !ok {
		return func(context.Context) error { return nil }, nil
	}
	var names []string
	var load []containerd.Image
	note := func(img model.HeldImage, what containerd.Image) {
		k.own[pin.Key(img)] = rt.Names(what)
	}
	for _, img := range d.Pin {
		note(img, containerd.Image{Name: img.Name, Digest: img.Digest})
	}
	for _, img := range d.Load {
		if what, ok := src.Image(img); ok {
			note(img, what)
			load = append(load, what)
		}
	}
	if len(d.Pin)+len(load) > 0 {
		if err := k.save(); err != nil {
			return func(context.Context) error { return nil }, err
		}
	}
	for _, of := range k.own {
		names = append(names, of...)
	}
	// Those that are let go now are pinned no more a moment later.
	return rt.Prepare(ctx, names, load, src)
}

// work does what was decided.
func (k *Keeper) work(ctx context.Context, want []model.HeldImage, have []pin.Present, d pin.Decision, src Source, r Result, progress func(Result)) (Result, error) {
	k.loadAll(ctx, d.Load, src, &r, progress)
	for _, img := range d.Pin {
		k.one(ctx, img, src, &r)
	}
	// Anew: a name may have got another image meanwhile, whose pin it carries now.
	if err := k.release(ctx, pin.Decide(want, have, k.settled(r))); err != nil {
		return r, err
	}
	return k.readBack(ctx, want, r)
}

// loadAll loads images, as many at once as the runtime can.
func (k *Keeper) loadAll(ctx context.Context, all []model.HeldImage, src Source, r *Result, progress func(Result)) {
	one := func(img model.HeldImage) {
		ok := k.one(ctx, img, src, r)
		k.mu.Lock()
		defer k.mu.Unlock()
		if ok && !img.Registry {
			// On the way only: whether all are held is for the runtime to say.
			r.Held, r.Pinned = min(r.Held+1, r.Total), min(r.Pinned+1, r.Total-1)
		}
		progress(*r)
	}
	rt, ok := k.runtime.(Parallel)
	if !ok {
		for _, img := range all {
			one(img)
		}
		return
	}
	var group errgroup.Group
	group.SetLimit(max(rt.AtOnce(), 1))
	for _, img := range all {
		group.Go(func() error {
			one(img)
			return nil
		})
	}
	_ = group.Wait() // what failed is in the result
}

// one loads or pins an image and reports whether it did.
func (k *Keeper) one(ctx context.Context, img model.HeldImage, src Source, r *Result) bool {
	if ctx.Err() != nil {
		return false
	}
	ok, err := k.load(ctx, img, src, r)
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case err != nil:
		r.Failed[img.Name] = err
	case !ok:
		r.Waiting++
		if _, had := k.had[pin.Key(img)]; had {
			k.had[pin.Key(img)] = false
		}
	}
	return ok && err == nil
}

func (k *Keeper) load(ctx context.Context, img model.HeldImage, src Source, r *Result) (bool, error) {
	// What others brought in under this name and digest only lacks a name or a pin.
	if ok, err := k.pin(ctx, img); ok || err != nil {
		return ok, err
	}
	what, ok := src.Image(img)
	switch {
	case !ok && src.MayPull(img):
		return k.pull(ctx, img)
	case !ok:
		return false, nil
	}
	names, err := k.runtime.Load(ctx, what, src)
	if err != nil {
		return false, err
	}
	k.mu.Lock()
	if own, had := k.had[pin.Key(img)]; had {
		r.Restored = append(r.Restored, Restored{Image: img, Own: own})
	}
	k.mu.Unlock()
	return true, k.remember(img, names)
}

func (k *Keeper) pull(ctx context.Context, img model.HeldImage) (bool, error) {
	puller, can := k.runtime.(Puller)
	if !can {
		return false, fmt.Errorf("image %s: refit cannot have this node's runtime fetch from a registry; bring the image in a bundle", img.Name)
	}
	names, err := puller.Pull(ctx, containerd.Image{Name: img.Name, Digest: img.Digest, Here: img.Kubelet})
	if errors.Is(err, containerd.ErrNotHere) {
		return false, nil // waited for, as for blobs that are on the way
	}
	if err != nil {
		return false, err
	}
	return true, k.remember(img, names)
}

func (k *Keeper) pin(ctx context.Context, img model.HeldImage) (bool, error) {
	names, ok, err := k.runtime.Pin(ctx, containerd.Image{Name: img.Name, Digest: img.Digest})
	if !ok || err != nil {
		return ok, err
	}
	return true, k.remember(img, names)
}

func (k *Keeper) remember(img model.HeldImage, names []string) error {
	failpoint.Here(failpoint.PinRecord)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.had[pin.Key(img)] = true
	if slices.Equal(k.own[pin.Key(img)], names) {
		return nil
	}
	k.own[pin.Key(img)] = names
	return k.save()
}

func (k *Keeper) release(ctx context.Context, d pin.Decision) error {
	if len(d.Release) == 0 {
		return nil
	}
	// Unpinned first, forgotten second: a crash between the two unpins again.
	if err := k.runtime.Unpin(ctx, d.Unpin); err != nil {
		return err
	}
	k.mu.Lock()
	for _, key := range d.Release {
		delete(k.own, key)
		delete(k.had, key)
	}
	k.mu.Unlock()
	return k.save()
}

// save writes the record. A disk that takes nothing keeps no image from being pinned: the
// record stays in memory and is written when there is room.
func (k *Keeper) save() error {
	b, err := json.MarshalIndent(k.own, "", " ")
	if err != nil {
		return fmt.Errorf("record of pins: %w", err)
	}
	err = fsutil.WriteFile(k.path, b, 0o600)
	switch {
	case err != nil && !k.unsaved:
		k.note(statefile.NotWritable(k.path, err))
	case err == nil && k.unsaved:
		k.note(statefile.WrittenAgain(k.path))
	}
	k.unsaved = err != nil
	return nil
}

// readBackTries is how often CRI is asked: it learns of new names by events,
// some hundred milliseconds later.
const readBackTries = 20

// preparedTries are those of a runtime that has to read its configuration first:
// on a busy node that takes seconds, and to be told too early that pins are
// ignored would stop an update.
const preparedTries = 300

func (k *Keeper) readBack(ctx context.Context, want []model.HeldImage, r Result) (Result, error) {
	tries := readBackTries
	if _, ok := k.runtime.(Preparer); ok {
		tries = preparedTries
	}
	for try := range tries {
		have, err := k.runtime.Present(ctx)
		if err != nil {
			return r, err
		}
		d := pin.Decide(want, have, k.own)
		r.Held, r.Pinned, r.Fetched = d.Held, d.Pinned, d.Fetched
		if len(d.Load)-r.Waiting-len(r.Failed) <= 0 && len(d.Pin) == 0 || try == tries-1 {
			break
		}
		select {
		case <-ctx.Done():
			return r, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	return r, nil
}

// ReleaseAll lets go of every pin that refit made.
func (k *Keeper) ReleaseAll(ctx context.Context) error {
	if err := k.recover(ctx); err != nil {
		return err
	}
	return k.release(ctx, pin.Decide(nil, nil, k.own))
}
